"""Metrics as a page shows them: their name in plain words, their unit, and which way is better."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from charllm.result.answers import LABEL_WORDS
from charllm.result.metrics import CAUSES
from charllm.units import DAY_S, GIB, GIGA, KILO, MEGA, MIB, SUFFIXES, split_suffix

PERCENT = SUFFIXES["percent"][1]
CLOCK_LOSS = "clock_loss"
"""The clock lost to all causes together: the sum of `clock_loss_fraction`."""
JOULES_PER_TOKEN = "joules_per_token"


def is_number(value: Any) -> bool:
    """Tell whether a metric is a number, and not a verdict."""
    return isinstance(value, int | float) and not isinstance(value, bool)


class Quantity(NamedTuple):
    """How one metric is shown."""

    label: str
    unit: str = ""
    scale: float = 1.0
    """SI units in one of the unit shown."""
    better: str = ""
    """higher, lower; empty: neither."""
    short: str = ""
    """Heading of a narrow panel; empty: the label."""

    def shown(self, value: Any) -> float | None:
        """Return a value in the unit shown; None where it is not known."""
        return float(value) / self.scale if isinstance(value, int | float) else None

    def write(self, value: Any) -> str:
        """Return a value with its unit, as it is read in a sentence."""
        number = self.shown(value)
        return "unknown" if number is None else f"{write_number(number)} {self.unit}".rstrip()


QUANTITIES: dict[str, Quantity] = {
    "step_time_s": Quantity("step time", "s", better="lower"),
    "tokens_per_s_per_gpu": Quantity("throughput", "tokens/s/GPU", better="higher"),
    "tokens_per_s": Quantity("total throughput", "tokens/s", better="higher"),
    "mfu": Quantity("MFU", "%", PERCENT, "higher"),
    "tokens_per_j": Quantity("tokens per joule", "tokens/J", better="higher", short="efficiency"),
    JOULES_PER_TOKEN: Quantity("GPU energy per token", "J/token", better="lower", short="GPU energy"),
    "energy_per_step_j": Quantity("GPU energy per step", "kJ", KILO, "lower", "energy of a step"),
    "power_mean_w": Quantity("mean power per GPU", "W", better="lower", short="mean power"),
    "power_peak_sensor_w": Quantity("peak power of a GPU (25 ms)", "W", better="lower", short="peak power, 25 ms"),
    "power_peak_w": Quantity("peak power of a GPU (1 ms)", "W", better="lower"),
    "node_power_mean_w": Quantity("mean power per node", "kW", KILO, "lower", "power of a node"),
    "cluster_power_peak_w": Quantity("peak power of the cluster", "kW", KILO, "lower", "cluster peak"),
    "cluster_power_ramp_w_per_s": Quantity("maximum power ramp of the cluster", "kW/s", KILO, "lower"),
    "cluster_power_swing_w": Quantity("0.1-3 Hz oscillation of cluster power", "kW", KILO, "lower"),
    "temperature_peak_c": Quantity("peak temperature", "C", better="lower"),
    "temperature_mean_c": Quantity("mean temperature", "C", better="lower"),
    "temperature_spread_node_k": Quantity(
        "hottest minus coolest GPU of a node", "K", better="lower", short="spread in a node"
    ),
    "temperature_swing_k": Quantity("temperature swing within a step", "K", better="lower"),
    "margin_to_slowdown_k": Quantity("margin to slowdown", "K", better="higher"),
    CLOCK_LOSS: Quantity("clock loss", "%", PERCENT, "lower"),
    "clock_mean_hz": Quantity("mean clock", "MHz", MEGA, "higher"),
    "clock_std_fraction": Quantity("standard deviation of the clock", "%", PERCENT, "lower"),
    "memory_need_bytes": Quantity("memory needed by the worst rank", "GiB", GIB, "lower", "needed memory"),
    "memory_margin_fraction": Quantity("memory left on the worst rank", "%", PERCENT, "higher"),
    "memory_fit_probability": Quantity("probability of fitting in memory", "%", PERCENT, "higher"),
    "memory_peak_bytes": Quantity("peak memory of the worst rank", "GiB", GIB, "lower", "peak memory"),
    "memory_allocated_bytes": Quantity("memory allocated by the framework", "GiB", GIB, "lower", "allocated memory"),
    "memory_reserved_bytes": Quantity("memory reserved by the allocator", "GiB", GIB, "lower"),
    "model_flop": Quantity("model FLOPs of a step", "GFLOP", GIGA),
    "executed_flop": Quantity("executed FLOPs of a step", "GFLOP", GIGA),
    "parameters": Quantity("parameters", "billion", GIGA),
    "active_parameters": Quantity("active parameters", "billion", GIGA),
    "microbatches": Quantity("microbatches of a step"),
    "memory_rank": Quantity("rank with the least margin of memory"),
    "probability_best": Quantity("probability of being best", "%", PERCENT, "higher", "probability"),
    "money_per_trillion_tokens": Quantity("money per trillion tokens", better="lower"),
    "run_time_s": Quantity("time of the whole run", "days", DAY_S, "lower"),
    "run_money": Quantity("money of the whole run", better="lower"),
    "energy_delay_product_j_s": Quantity("energy-delay product", "kJ s", KILO, "lower"),
    "facility_power_mean_w": Quantity("mean power from the grid", "kW", KILO, "lower"),
    "rack_power_peak_w": Quantity("peak power of a rack", "kW", KILO, "lower"),
}
"""Metric: how it is shown, in the order in which pages list them."""
KEYED: dict[str, Quantity] = {
    "breakdown_s": Quantity("{key}", "s", better="lower"),
    "hidden_communication_s": Quantity("hidden {key} communication", "s"),
    "throttled_time_fraction": Quantity("time throttled by {key}", "%", PERCENT, "lower"),
    "clock_loss_fraction": Quantity("clock lost to {key}", "%", PERCENT, "lower"),
    "memory_breakdown_bytes": Quantity("memory: {key}", "GiB", GIB, "lower"),
    "link_bytes": Quantity("bytes sent over {key}", "GB", GIGA, "lower"),
    "axis_bytes": Quantity("bytes sent for {key}", "GB", GIGA, "lower"),
    "link_utilization_fraction": Quantity("utilisation of {key}", "%", PERCENT),
    "message_bytes_median": Quantity("median {key} message", "MiB", MIB),
    "messages": Quantity("{key} messages of a step"),
}
"""Metrics that hold a table; {key} is what an entry is about."""
KEYS = {
    **LABEL_WORDS,
    "nvlink": "NVLink",
    "pcie": "PCIe",
    "nic": "NICs",
    "power": "power",
    "thermal": "heat",
    "brake": "power brake",
}
"""Keys of those tables in plain words, where their name is not one."""


def quantity(name: str) -> Quantity:
    """Return how a metric is shown, `link_bytes.nic` as well as `step_time_s`; an unknown one by its suffix."""
    base, _, key = name.partition(".")
    if base in KEYED and key:
        found = KEYED[base]
        return found._replace(label=found.label.format(key=KEYS.get(key, key)))
    if name in QUANTITIES:
        return QUANTITIES[name]
    split = split_suffix(name)
    unit = SUFFIXES[split[1]][0].replace("_per_", "/") if split and not split[0].endswith("_per") else ""
    return Quantity((split[0] if split and unit else name).replace("_", " ").replace(".", " "), unit)


def with_derived(values: Mapping[str, Any]) -> dict[str, Any]:
    """Add what follows from the flat metrics of a run: clock lost to all causes, joules of a token."""
    losses = [values.get(f"clock_loss_fraction.{cause}") for cause in CAUSES]
    known = [loss for loss in losses if loss is not None]
    per_joule, ends = values.get("tokens_per_j"), values.get("tokens_per_j.interval")
    return {
        **values,
        CLOCK_LOSS: sum(known) if known else None,
        JOULES_PER_TOKEN: 1 / per_joule if per_joule else None,
        **({f"{JOULES_PER_TOKEN}.interval": (1 / ends[1], 1 / ends[0])} if ends and all(ends) else {}),
    }


def write_number(value: float) -> str:
    """Write a number with three digits that matter, and thousands apart: 2,736, 41.8, 0.0123."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def write_slower(ratio: float) -> str:
    """Say how far a throughput falls behind one that is `ratio` times as high: '12 % slower', '3.4 times slower'."""
    return f"{write_number(ratio)} times slower" if ratio >= 2 else f"{write_percent(1 - 1 / ratio)} slower"


def write_percent(fraction: float) -> str:
    """Write a fraction as a percentage, small ones with one digit more."""
    return f"{fraction / PERCENT:.{0 if abs(fraction) >= 0.1 else 1}f} %"


def write_ratio(ratio: float) -> str:
    """Write how much larger something is: '12 %', or '3.4 times' from twice on."""
    return f"{write_number(ratio)} times" if ratio >= 2 else write_percent(ratio - 1)


def write_list(words: list[str], most: int = 5) -> str:
    """Join words as a sentence lists them; beyond `most` the rest is counted."""
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
