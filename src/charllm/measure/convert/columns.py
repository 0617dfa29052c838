"""What the columns of a table are, by the names people give them."""

import re
from typing import NamedTuple

from charllm.measure.convert.foreign import POWER, Meaning
from charllm.measure.convert.names import dcgm_meaning, meanings, smi_meaning
from charllm.measure.convert.values import unit_factor
from charllm.measure.quantities import QUANTITIES

IDENTITIES: dict[str, tuple[str, ...]] = {
    "gpu": ("gpu", "index", "gpu_index", "gpu_id", "gpuid", "gpu_idx", "idx", "device", "device_id", "device_index",
            "device_idx", "card", "gpu_num", "gpu_number", "entity", "minor_number", "local_rank", "rank", "gpu_i",
            "deviceid", "gpuindex"),
    "uuid": ("uuid", "gpu_uuid", "gpu_serial", "serial"),
    "name": ("name", "gpu_name", "model", "modelname", "model_name", "product", "product_name", "gpu_model", "gpu_type",
             "device_name", "card_series", "card_model"),
    "pci": ("pci.bus_id", "gpu_bus_id", "pci_bus_id", "pci.bus", "bus_id", "pci", "bdf", "gpu_bdf", "busid"),
    "node": ("node", "host", "hostname", "nodename", "node_name", "server", "machine", "instance", "exported_instance",
             "node_id", "host_name"),
}  # fmt: skip
TIMES = ("timestamp", "datetime", "date_time", "wall_time", "walltime", "time", "unix_time", "unix_timestamp", "epoch",
         "epoch_time", "ts", "timestamp_iso", "iso_timestamp", "timestamp_utc", "time_utc", "utc", "ts_utc",
         "localtime", "t", "elapsed", "elapsed_time", "relative_time", "rel_time", "time_elapsed", "seconds", "sec",
         "monotonic", "since_start", "time_since_start", "wall", "unix", "sample_time", "t_rel", "perf_counter",
         "perf_time", "timestamp_rel", "uptime", "relative_time_(process)", "relative_time_(wall)")  # fmt: skip
"""Names of a time, the one to prefer first."""
DATE = ("date", "day")
UNIT_TAIL = re.compile(r"^(.*?)[\s_.]*[\[(]\s*([^\])]*?)\s*[\])]\s*$")

POWER_WORDS = {"power", "pwr", "watt", "watts", "draw", "p", "pow", "wattage", "powerdraw", "gpupower", "powerusage"}
HEAT_WORDS = {"temp", "temperature", "thermal", "tmp", "hotspot", "junction", "edge", "temps", "gtemp", "tgpu",
              "gputemp", "celsius"}  # fmt: skip
CLOCK_WORDS = {"clock", "clk", "clocks", "freq", "frequency", "mhz", "sclk", "smclk", "pclk", "gclk", "smclock",
               "gpuclock"}  # fmt: skip
USE_WORDS = {"util", "utilization", "utilisation", "usage", "busy", "activity", "load", "u", "gpuutil", "use", "utl"}
MEMORY_WORDS = {"mem", "memory", "vram", "fb", "hbm", "dram", "umc", "mclk", "framebuffer"}
FOREIGN_WORDS = {"cpu", "sys", "system", "node", "ambient", "inlet", "fan", "psu", "server", "ram", "host", "disk",
                 "net", "encoder", "decoder", "enc", "dec", "video", "jpeg", "ofa", "max", "min", "peak", "std", "var",
                 "median", "p95", "p99", "p50", "target", "slowdown", "shutdown", "threshold", "default", "total",
                 "free", "reserved", "requested", "limits", "sum", "delta", "package", "rapl", "chassis", "app",
                 "applications", "loss", "tokens", "swap", "process", "pid", "bar1", "pcie", "nvlink", "predicted",
                 "est", "estimated", "error", "count", "samples", "wall", "outlet", "soc", "vr",
                 "cumulative", "processor", "ia", "vclk", "dclk", "socclk", "fclk", "lclk", "locked", "deep",
                 "sleep"}  # fmt: skip
"""A column with one of these is of something else, or a figure over many readings."""
WANDB_GPU = re.compile(r"(?:^|[ /.-])system[./]gpu\.(?P<gpu>\d{1,4})\.(?P<name>[a-z]{1,40})$")
"""A system metric of Weights & Biases; those of the process (system.gpu.process.0...) repeat them."""
PART_CLOCK = re.compile(r"^gfx_\d{1,2}_clk$")
"""amd-smi names the clock of each die of a GPU: the GPU's is their mean."""
RATE = re.compile(r"^(?:gpu_)?(?P<link>pcie|pci|nvlink|nvl|link|xgmi)_(?P<way>tx|rx|sent|received|send|recv)_"
                  r"(?P<unit>bytes|kb|mb|gb|kib|mib|gib)_?(?:per_|/)?s(?:ec)?$")  # fmt: skip
ACTIVE = {"tensor": "tensor_active_fraction", "sm": "sm_active_fraction", "dram": "dram_active_fraction"}
MEMORY_USED = {"used", "usage", "allocated", "use", "inuse"}


class Column(NamedTuple):
    """One column: what it identifies, or the meaning of its readings."""

    role: str
    """time, date, gpu, uuid, name, pci, node, reading, metric, value; empty for a column that is left out."""
    meaning: Meaning | None = None
    unit: str = ""
    gpu: int | None = None
    """The GPU that a column of a wide table is of."""
    vague: bool = False
    """Whether no unit is known for it but the usual one."""


LEFT_OUT = Column("")


def understand(heading: str, *, amd: bool = False) -> Column:
    """Say what a column is by its heading: a tool's own name, or what people write."""
    name, unit = split_unit(heading)
    bare = re.sub(r"[\s\-/]+", "_", name.strip().lower()).strip("_#.")
    tracked = WANDB_GPU.search(heading.strip().strip('"').lower())
    if tracked:
        meaning = meanings("wandb").get(tracked["name"])
        return LEFT_OUT if meaning is None else Column("reading", meaning, gpu=int(tracked["gpu"]))
    for role, names in IDENTITIES.items():
        if bare in names:
            return Column(role)
    known = smi_meaning(bare) or (dcgm_meaning(name) if name.upper() == name or name.startswith("DCGM_") else None)
    if known is None and amd:
        known = meanings("amd-smi").get(PART_CLOCK.sub("gfx_clk", " ".join(re.sub(r"[()]", " ", name.lower()).split())))
    if known is not None:
        return Column("reading", known, unit)
    if bare in QUANTITIES:
        return Column("reading", Meaning(bare))
    if bare in ("throttle_reasons", "clocks_throttle_reasons", "clocks_event_reasons", "clock_throttle_reasons"):
        return Column("reading", Meaning("limits", how="reasons"))
    rate = RATE.match(bare)
    if rate:
        link, way = (
            "pcie" if rate["link"].startswith("pci") else "link",
            "sent" if rate["way"][0] in "ts" else "received",
        )
        return Column("reading", Meaning(f"{link}_{way}_bytes", (unit_factor(rate["unit"]) or ("", 1.0))[1], "rate"))
    stem, tail = split_tail(bare)
    if bare in DATE:
        return Column("date")
    if bare in TIMES or (stem in TIMES and unit_factor(tail or "") is not None):
        return Column("time", unit=tail or unit)
    if bare in ("metric", "metric_name", "field", "measurement", "quantity"):
        return Column("metric")
    if bare in ("value", "val", "reading"):
        return Column("value")
    return _guess(bare, unit)


def split_unit(heading: str) -> tuple[str, str]:
    """Split ``power.draw [W]`` or ``Power (W)`` into its name and unit."""
    cleaned = heading.strip().strip('"').lstrip("#").strip()
    match = UNIT_TAIL.match(cleaned)
    if match and unit_factor(match[2]) is not None:
        return match[1], match[2]
    return cleaned, ""


def split_tail(name: str) -> tuple[str, str | None]:
    """Split ``power_mw`` into a stem and a unit; no unit where the last word is none."""
    stem, divider, tail = name.rpartition("_")
    if divider and unit_factor(tail) is not None:
        return stem, tail
    return name, None


def _guess(name: str, unit: str) -> Column:
    """Read a name as people write it: ``gpu0_power_w``, ``p0_W``, ``sm_clock_mhz``, ``Temp``."""
    stem, tail = split_tail(name)
    unit = unit or tail or ""
    stem, gpu = _split_gpu(stem)
    if not unit:
        stem, tail = split_tail(stem)
        unit = tail or ""
    words = [word for word in re.split(r"[^a-z0-9%]+", stem) if word]
    meaning = _meaning(set(words), unit)
    if meaning is None:
        return LEFT_OUT
    return Column("reading", meaning, unit, gpu, vague=not unit)


def _split_gpu(stem: str) -> tuple[str, int | None]:
    """Take the number of a GPU out of a name."""
    for pattern in (r"(?:^|_)(?:gpu|card|device|dev|rank)[_\[.:]*(\d{1,4})\]?(?=_|$|\.)", r"[_\[.:]*(\d{1,4})\]?$"):
        match = re.search(pattern, stem)
        if match:
            rest = f"{stem[: match.start()]}_{stem[match.end() :]}".strip("_.[] ")
            return rest or stem, int(match[1])
    return stem, None


def _meaning(words: set[str], unit: str) -> Meaning | None:
    """Return what the words of a name mean; None where they are of something else or of nothing known."""
    si = (unit_factor(unit) or ("", 1.0))[0]
    memory = bool(words & MEMORY_WORDS)
    if words & {"limit", "cap", "limits", "powerlimit"} and words & POWER_WORDS and not words & {"cpu", "max", "min"}:
        return Meaning("power_limit_w")
    if words & {"margin", "tlimit", "headroom"} and (words & HEAT_WORDS or si in ("c", "k")):
        return Meaning("margin_k")
    if words & FOREIGN_WORDS or words & {"limit", "cap"}:
        return None
    if words & {"energy"} and si in ("j", ""):
        return Meaning("energy_j") if si else None
    if words & POWER_WORDS and si in ("w", ""):
        if memory:
            return Meaning("memory_power_w")
        if words & {"avg", "average", "mean"}:
            return Meaning("power_average_w")
        return Meaning("power_instant_w") if words & {"instant", "inst", "instantaneous"} else Meaning(POWER, rank=2)
    if words & HEAT_WORDS and si in ("c", ""):
        if words & {"hotspot", "junction"} and not memory:
            return Meaning("hotspot_c")
        return Meaning("memory_temperature_c" if memory else "temperature_c")
    if words & CLOCK_WORDS and si in ("hz", ""):
        return Meaning("memory_clock_hz" if memory else "clock_hz", rank=int(bool(words & {"graphics", "gr"})))
    for unit_word, quantity in ACTIVE.items():
        if (
            unit_word in words
            and words & (USE_WORDS | {"active", "occupied"})
            and (unit_word != "sm" or "active" in words)
        ):
            return Meaning(quantity)
    if memory and si == "bytes" and (words & MEMORY_USED or words <= MEMORY_WORDS | {"gpu"}):
        return Meaning("memory_used_bytes")
    if memory and "used" in words and si == "":
        return Meaning("memory_used_bytes")
    if words & USE_WORDS and si in ("fraction", ""):
        if memory:
            return Meaning("memory_utilization_fraction") if words & {"util", "utilization", "utilisation"} else None
        return Meaning("utilization_fraction")
    return _by_unit(words, si)


def _by_unit(words: set[str], si: str) -> Meaning | None:
    """Read a column named only after the GPU and a unit: ``gpu0_w``."""
    if words <= {"gpu", "board", "card", "sm"} and si in ("w", "c", "hz"):
        return {"w": Meaning(POWER, rank=2), "c": Meaning("temperature_c"), "hz": Meaning("clock_hz")}[si]
    return None
