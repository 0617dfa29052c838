"""A run while it is recorded, as a few lines and a table of its GPUs that fit the terminal."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from charllm.report.tables import metric_headings, render_table, wrap
from charllm.units import GIB, GIGA, KILO, MEGA, format_percent

STATES = {
    "waiting": "waiting for the first reading",
    "running": "running",
    "silent": "no new readings",
    "ended": "ended",
}
MEAN, MARGIN = metric_headings(("power_mean_w", "margin_to_slowdown_k"))
COLUMNS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "node": lambda gpu: str(gpu["node"]),
    "GPU": lambda gpu: str(gpu["gpu"]),
    "rank": lambda gpu: _text(gpu["rank"], "d"),
    "W": lambda gpu: _text(gpu["power_w"]),
    MEAN: lambda gpu: _text(gpu["power_mean_w"]),
    "cap W": lambda gpu: _reading(gpu, "power_limit_w"),
    "C": lambda gpu: _reading(gpu, "temperature_c"),
    MARGIN: lambda gpu: _reading(gpu, "margin_k"),
    "MHz": lambda gpu: _reading(gpu, "clock_hz", MEGA),
    "held by": lambda gpu: ",".join(gpu["limited_by"]) if "limits" in gpu["readings"]["values"] else "-",
    "GiB": lambda gpu: _reading(gpu, "memory_used_bytes", GIB, ".1f"),
    "busy %": lambda gpu: _reading(gpu, "utilization_fraction", 0.01),
    "link out GB/s": lambda gpu: _rate(gpu, "link_sent_bytes"),
    "link in GB/s": lambda gpu: _rate(gpu, "link_received_bytes"),
    "PCIe out GB/s": lambda gpu: _rate(gpu, "pcie_sent_bytes"),
    "PCIe in GB/s": lambda gpu: _rate(gpu, "pcie_received_bytes"),
}
"""Heading: what stands under it."""
DROP = (
    "PCIe in GB/s", "PCIe out GB/s", "link in GB/s", "rank", "link out GB/s", "cap W", MEAN, "GiB", "busy %",
    MARGIN, "held by",
)  # fmt: skip
SHOWN = ("power_instant_w", "power_mean_w", "power_limit_w", "temperature_c", "margin_k", "clock_hz", "limits",
         "memory_used_bytes", "utilization_fraction", "link_sent_bytes", "pcie_sent_bytes")  # fmt: skip
"""Quantities of the table whose absence is explained."""
LEAST_GPUS = 2
"""GPUs that are shown before the reasons of what is missing."""


def render_live(snapshot: Mapping[str, Any], width: int, height: int | None = None) -> str:
    """Lay out a snapshot in at most `height` lines: GPUs that have no room are counted."""
    gpus = [gpu for node in snapshot["nodes"] for gpu in node["gpus"]]
    top, notes = _headlines(snapshot, len(gpus), width), _notes(snapshot, gpus, width)
    if not gpus:
        return "\n".join([*top, *notes][:height])
    table = _table(gpus, width)
    if height is None or len(top) + len(table) + len(notes) <= height:
        return "\n".join([*top, *table, *notes])
    heading = len(table) - len(gpus) + 1
    room = height - len(top) - heading - len(notes)
    if room < min(LEAST_GPUS, len(gpus)):
        # Readings come before why some are missing.
        room, notes = room + len(notes), []
    shown = max(1, min(room, len(gpus)))
    more = [f"({len(gpus) - shown} more GPUs have no room)"] if shown < len(gpus) else []
    return "\n".join([*top, *more, *_table(gpus[:shown], width), *notes][:height])


def _headlines(snapshot: Mapping[str, Any], gpus: int, width: int) -> list[str]:
    job, nodes = snapshot["job"], snapshot["nodes"]
    begun = "" if snapshot["elapsed_s"] is None else f", {_clock(snapshot['elapsed_s'])} since the command began"
    ages = [node["age_s"] for node in nodes if node["age_s"] is not None]
    late = f", newest reading {_clock(min(ages))} old" if snapshot["state"] == "silent" and ages else ""
    where = f"{gpus} GPU{'' if gpus == 1 else 's'}" + (f" on {len(nodes)} nodes" if len(nodes) > 1 else "")
    lines = [f"{snapshot['folder']}: {STATES[snapshot['state']]}{begun}{late}; {where}"]
    lines.append(f"power {_text(snapshot['power_w'], ',.0f')} W; energy {_energy(snapshot['energy_used_j'])} so far")
    told = [
        f"step {_text(job['steps'], 'd')}",
        f"{_text(job['step_time_s'], '.4g')} s/step",
        f"{_text(job['tokens_per_s'], ',.0f')} tokens/s",
        f"loss {_text(job['loss'], '.4f')}",
        f"{_text(job['tokens_per_j'], '.4g')} tokens/J",
    ]
    lines.append("; ".join(told) if job["steps"] is not None else f"steps: {job['missing']['steps']}")
    lines += [line for node in nodes if (line := _host(node, several=len(nodes) > 1))]
    return [part for line in lines for part in wrap(line, width, indent="  ")]


def _host(node: Mapping[str, Any], *, several: bool) -> str:
    """Return a line on a node's host, where it is read."""
    values, rates = node["host"]["values"], node["host"]["rates_per_s"]
    told = []
    if "cpu_load_fraction" in values:
        told.append(f"CPU {format_percent(values['cpu_load_fraction'], 0)}")
    for label, name in (("CPU", "cpu_energy_j"), ("DRAM", "memory_energy_j")):
        watts = [rate for key, rate in rates.items() if key.partition(":")[0] == name]
        told += [f"{label} {sum(watts):.0f} W"] if watts else []
    if "memory_used_bytes" in values:
        told.append(f"memory {values['memory_used_bytes'] / GIB:.0f} GiB")
    for label, kind in (("NIC", "nic"), ("Ethernet", "ethernet")):
        sent, received = (
            [rate for key, rate in rates.items() if key.partition(":")[0] == f"{kind}_{way}_bytes"]
            for way in ("sent", "received")
        )
        if sent or received:
            told.append(f"{label} out {sum(sent) / GIGA:.2f} in {sum(received) / GIGA:.2f} GB/s")
    systems = [value for key, value in values.items() if key.partition(":")[0] == "system_power_w"]
    told += [f"system {max(systems):.0f} W"] if systems else []
    inlets = [value for key, value in values.items() if key.partition(":")[0] == "inlet_c"]
    told += [f"inlet {min(inlets):.0f} C"] if inlets else []
    return f"host{' ' + node['name'] if several else ''}: {', '.join(told)}" if told else ""


def _table(gpus: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    several = len({gpu["node"] for gpu in gpus}) > 1
    names = [name for name in COLUMNS if several or name != "node"]
    rows = [[COLUMNS[name](gpu) for name in names] for gpu in gpus]
    text = render_table("", names, rows, drop=DROP, width=width)
    return text.split("\n")[1:]


def _notes(snapshot: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """Say why what is missing is missing, each reason once."""
    reasons: dict[tuple[str, str], int] = {}
    for gpu in gpus:
        for name in SHOWN:
            if name in gpu["readings"]["missing"]:
                key = (name, gpu["readings"]["missing"][name])
                reasons[key] = reasons.get(key, 0) + 1
    told = [
        f"{name} {reason}{'' if count == len(gpus) else f' ({count} GPUs)'}"
        for (name, reason), count in reasons.items()
    ]
    job = snapshot["job"]
    told += [f"{name}: {reason}" for name, reason in job["missing"].items() if job["steps"] is not None]
    told += [f"{name}: {reason}" for name, reason in snapshot["missing"].items()]
    hosts = list(dict.fromkeys(node["host"]["missing"].get("host", "") for node in snapshot["nodes"]))
    told += [reason for reason in hosts if reason]
    return wrap(f"missing: {'; '.join(told)}", width, indent="  ") if told else []


def _reading(gpu: Mapping[str, Any], name: str, unit: float = 1.0, form: str = ".0f") -> str:
    value = gpu["readings"]["values"].get(name)
    return "-" if value is None else format(value / unit, form)


def _rate(gpu: Mapping[str, Any], name: str) -> str:
    value = gpu["readings"]["rates_per_s"].get(name)
    return "-" if value is None else f"{value / GIGA:.2f}"


def _text(value: float | None, form: str = ".0f") -> str:
    return "-" if value is None else format(value, form)


def _energy(value_j: float | None) -> str:
    if value_j is None:
        return "-"
    return f"{value_j / MEGA:,.2f} MJ" if value_j >= MEGA else f"{value_j / KILO:,.1f} kJ"


def _clock(seconds_s: float) -> str:
    """Write a time as hours, minutes and seconds."""
    minutes, seconds = divmod(round(seconds_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
