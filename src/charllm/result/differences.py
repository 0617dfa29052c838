"""What a change of a run does, with the error of that difference: the one function that reads it is `difference`.

    changed = changed_settings(first.spec, second.spec)
    found = difference("step_time_s", first_s, second_s, changed)   # None: no error is known of this metric
    found.effect, found.low, found.high, found.is_clear, found.basis, found.words

Equation: an effect is e = ln(second / first), of temperatures second - first. The measured effect lies within
e +- reach x sqrt(floor^2 + (slope x e)^2) in nine of ten pairs. floor and slope belong to a kind of change and a
quantity; errors that both runs share have cancelled in them. An effect is clear where this interval leaves out zero.
Source: result/data/difference_errors.json, written by evaluate/difference_errors.py from measured pairs.
Ignores: that pairs with watts, clocks and degrees were read on H200 and V100 boards alone.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from math import expm1, hypot, log
from pathlib import Path
from typing import Any, NamedTuple

from charllm.result.metrics import METRICS
from charllm.spec.request import dotted_fields
from charllm.units import format_change

LEVEL = 0.9
FILE = Path(str(resources.files("charllm.result") / "data" / "difference_errors.json"))
ANY = "any change"
"""Kind of changes that no measured pairs exist of: the errors of all kinds together."""
UNMEASURABLE = "no measurable difference"
CLOCK_CAP = "conditions.clock_cap_hz"
FREED = "clock limit against none"
FOLLOWS = ("cluster.name", "model.name", "model.seq_length", "parallelism.layers_per_stage", "framework.name")
"""Settings that follow from others, or are names alone."""


class Change(NamedTuple):
    """A kind of change: settings of which one at least differs, and those that may differ with them."""

    settings: tuple[str, ...]
    along: tuple[str, ...] = ()


_DEGREES = tuple(f"parallelism.{name}" for name in ("tp", "pp", "cp", "ep", "etp", "vpp", "zero", "shard_size"))
_ALONG_DEGREES = ("parallelism.dp", "parallelism.sp", "parallelism.schedule")
_MBS, _GBS = "training.micro_batch_size", "training.global_batch_size"
_RECOMPUTE = ("training.recompute", "training.recompute_layers")
CHANGES = {
    "microbatch": Change((_MBS,)),
    "recomputation": Change(_RECOMPUTE),
    "microbatch and recomputation": Change((_MBS,), _RECOMPUTE),
    "overlap": Change(("parallelism.overlap",)),
    "strategy": Change(_DEGREES, _ALONG_DEGREES),
    "strategy and microbatch": Change(_DEGREES, (*_ALONG_DEGREES, _MBS)),
    "GPUs": Change(("cluster.nodes",), ("parallelism.dp", "parallelism.shard_size", _GBS)),
    "precision": Change(("training.precision",)),
    "sequence": Change(("training.seq_length",), (_GBS, _MBS)),
    "batch": Change((_GBS,)),
    "clock limit": Change((CLOCK_CAP, "conditions.capped_clock_hz"), ("conditions.capped_gpus",)),
    "power limit": Change(("conditions.power_cap_w", "conditions.capped_power_w"), ("conditions.capped_gpus",)),
}
"""Kind of change, the narrowest first; a change is of the first that holds all its settings."""
MEAN_POWER, PEAK_TEMPERATURE = METRICS["power_mean_w"].short, METRICS["temperature_peak_c"].label
TEMPERATURES = ("temperature", PEAK_TEMPERATURE)
"""Quantities whose effects are differences in kelvin; those of all others are logarithms of ratios."""
QUANTITIES = {
    **dict.fromkeys(("step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu"), "step time"),
    **dict.fromkeys(("energy_per_step_j", "tokens_per_j"), "energy"),
    **dict.fromkeys(("power_mean_w", "node_power_mean_w"), MEAN_POWER),
    **dict.fromkeys(("power_peak_w", "power_peak_sensor_w"), "peak power"),
    "clock_mean_hz": "clock",
    "temperature_mean_c": "temperature",
    **dict.fromkeys(("temperature_peak_c", "margin_to_slowdown_k"), PEAK_TEMPERATURE),
}
"""Metric: the quantity whose errors its differences have."""


class Difference(NamedTuple):
    """What a change does to a metric: a fraction of the first value, or kelvin."""

    metric: str
    change: str
    """A key of CHANGES, FREED, or ANY where no pairs of that kind were measured."""
    effect: float
    low: float
    high: float
    """Between these the measured effect lies in nine of ten pairs."""
    noise: float
    """Standard deviation of the same effect measured twice, in the unit of the effect."""
    pairs: int
    basis: str
    """What the interval rests on, in words."""

    @property
    def is_clear(self) -> bool:
        """Whether the effect is larger than its error: its interval leaves out zero."""
        return self.low > 0 or self.high < 0

    @property
    def words(self) -> str:
        """The effect and its interval, or that there is no measurable difference."""
        change = f"{self.write(self.effect)} ({self.write(self.low)} to {self.write(self.high)})"
        return change if self.is_clear else f"{UNMEASURABLE}: {change}"

    def write(self, effect: float) -> str:
        """Write an effect, or an end of its interval."""
        return f"{effect:+.1f} K" if self.is_kelvin else format_change(effect)

    @property
    def is_kelvin(self) -> bool:
        """Whether the effect is in kelvin."""
        return QUANTITIES[self.metric] in TEMPERATURES


def difference(metric: str, first: float, second: float, changed: Mapping[str, tuple[Any, Any]]) -> Difference | None:
    """Return what a change of settings (name: first and second value) does to a metric, with its interval.

    None where no errors of differences of this metric are known, or no ratio can be formed.
    """
    quantity = QUANTITIES.get(metric)
    if quantity is None or (quantity not in TEMPERATURES and not (first > 0 and second > 0)):
        return None
    error = find_error(quantity, kind_of_change(changed) or ANY)
    is_kelvin = quantity in TEMPERATURES
    effect = second - first if is_kelvin else log(second / first)
    around = half_width(error, effect)
    ends = (effect, effect - around, effect + around, error["noise"])
    size, low, high, noise = ends if is_kelvin else map(expm1, ends)
    return Difference(metric, error["change"], size, low, high, noise, error["pairs"], basis_of(error))


@cache
def read_errors() -> Mapping[str, Any]:
    """Read the errors of differences: `errors` by kind of change and quantity, `held_out` by source."""
    found: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def find_error(quantity: str, change: str) -> Mapping[str, Any]:
    """Return the errors of differences of a quantity: of a kind of change, or of all where it has no pairs."""
    rows: list[Mapping[str, Any]] = read_errors()["errors"]
    known = {row["change"]: row for row in rows if row["quantity"] == quantity}
    return known.get(change) or known[ANY]


def half_width(error: Mapping[str, Any], effect: float) -> float:
    """Return half the width of the interval of an effect."""
    return float(error["reach"] * hypot(error["floor"], error["slope"] * effect))


def basis_of(error: Mapping[str, Any]) -> str:
    """Say in words what the interval of a difference rests on."""
    count = f"{error['pairs']} measured pairs of {error['runs']} runs ({', '.join(error['data'])})"
    if error["change"] == ANY:
        return f"errors of all kinds of change together, as no pairs of this kind were measured: {count}"
    return f"errors of a change of {error['change']}: {count}"


def differences_basis() -> str:
    """Say what intervals of differences in time rest on, whatever the change."""
    error = find_error(QUANTITIES["step_time_s"], ANY)
    return (
        f"errors of {error['pairs']} measured pairs of runs that differ in one kind of setting, held out by source, "
        "those of each kind apart"
    )


def changed_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which two specs (as tables) differ, with both values."""
    one, other = dotted_fields(first), dotted_fields(second)
    names = {**one, **other}
    return {name: (one.get(name), other.get(name)) for name in names
            if name not in FOLLOWS and one.get(name) != other.get(name)}  # fmt: skip


def kind_of_change(changed: Mapping[str, tuple[Any, Any]]) -> str | None:
    """Return the kind of a change, "" where nothing changed, None where it is of no kind."""
    names = changed.keys() - FOLLOWS
    if not names:
        return ""
    for kind, change in CHANGES.items():
        if names & {*change.settings} and names <= {*change.settings, *change.along}:
            return FREED if None in changed.get(CLOCK_CAP, ()) else kind
    return None
