"""Intervals of a prediction, from how wrong predictions have been where the truth is known.

Equation: the parameters of a step are the rates of its kernels, of exposed communication, of waiting and of the host.
A rate that is off by a fraction moves the step by that fraction of its share in it, so the derivatives are the run's
own breakdown and no further run is needed:

    s^2 = own^2 + sum over parts of (share x spread)^2

own: kernels. With e = ln(predicted / measured) of known runs, nine in ten lie between low x s and high x s, hence the
measured value between predicted x exp(-high s) and predicted x exp(-low s). That is the interval of tuned runs. Runs as
users have them took longer, by what is not in their description: their interval is the range of measured over predicted
of such runs, and where a run does not say which of both it is, its interval covers both. Other metrics: the same with
quantiles of e itself. Independent causes add in squares, each side alone.
Source: result/data/errors.json, written by evaluate/intervals.py.
Ignores: errors that the known runs do not have: another cooling, fabrics that drop packets, software of next year; that
hidden communication may come to light, and that the host may bind where it did not.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from math import exp, hypot, inf, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from charllm.spec.grades import NOT_STATED, grade_of
from charllm.spec.run import class_of
from charllm.units import format_percent

if TYPE_CHECKING:
    from charllm.result.result import RunResult

LEVEL = 0.9
RISK = 0.05
"""Probability of not fitting in memory above which a run is warned of, and not recommended."""
FILE = Path(str(resources.files("charllm.result") / "data" / "errors.json"))
READ_GPU = "h200"
"""The GPU whose watts, clocks and degrees were read after they had been predicted."""
PREHEAT_FRACTION = 0.9
"""Assumed: preheating lies anywhere between none and twice the catalog's; 90 % of that is 0.9 of it each way."""


class Spread(NamedTuple):
    """How far the truth may lie below and above a prediction, as logarithms of ratios or as kelvin; both positive."""

    below: float
    above: float
    basis: str

    def wider(self, factor: float, why: str) -> "Spread":
        """Return the spread times a factor."""
        return Spread(factor * self.below, factor * self.above, f"{self.basis}; {why}")

    def plus(self, below: float, above: float, why: str) -> "Spread":
        """Add an independent cause."""
        return Spread(hypot(self.below, below), hypot(self.above, above), f"{self.basis}; {why}")

    @property
    def inverted(self) -> "Spread":
        """Return the spread of one over the value."""
        return Spread(self.above, self.below, self.basis)


LABELS = {
    "exposed": ("tp_exposed", "pp_exposed", "dp_exposed", "ep_exposed", "cp_exposed"),
    "wait": ("bubble", "straggler_wait"),
    "overhead": ("overhead",),
}
"""Part of a step whose rate is known less well than that of kernels: its labels in the breakdown."""


def share_of(breakdown_s: Mapping[str, float | None]) -> dict[str, float]:
    """Return the share of each part in a step."""
    known_s = {label: spent_s for label, spent_s in breakdown_s.items() if spent_s is not None}
    total_s = sum(known_s.values())
    if not total_s:
        return dict.fromkeys(LABELS, 0.0)
    return {part: sum(known_s.get(label, 0.0) for label in labels) / total_s for part, labels in LABELS.items()}


@cache
def errors() -> Mapping[str, Any]:
    """Read how wrong predictions have been."""
    found: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def intervals(result: "RunResult") -> dict[str, dict[str, Any]]:
    """Return low, high, level and basis of every metric of a simulated run whose error is known."""
    metrics = result.metrics
    if result.origin != "simulated" or "cluster" not in result.spec:
        return {}
    found = {
        name: _ratio(metrics[name], _memory_spread(measure))
        for name, measure in (("memory_need_bytes", "allocated"), ("memory_peak_bytes", "device"))
        if metrics[name] is not None
    }
    if metrics["step_time_s"] is None:
        return found
    step = _step_spread(result)
    for name, spread in {"step_time_s": step, "tokens_per_s": step.inverted, "tokens_per_s_per_gpu": step.inverted,
                         "mfu": step.inverted}.items():  # fmt: skip
        found |= {name: _ratio(metrics[name], spread)} if metrics[name] is not None else {}
    if metrics["power_mean_w"] is not None:
        found |= _board_intervals(result, step)
    return {name: found[name] for name in metrics if name in found}


def with_intervals(result: "RunResult") -> "RunResult":
    """Return a result with the intervals of its metrics in its provenance."""
    return replace(result, provenance={**result.provenance, "uncertainty": intervals(result)})


def tell_footing(spec: Mapping[str, Any]) -> tuple[str, str]:
    """Return what a prediction rests on: measured, interpolated or extrapolated figures, and why."""
    names, known = _gpu_names(spec["cluster"]), errors()["known_gpus"]
    strange = [name for name in names if name not in known]
    if strange:
        return "extrapolated", f"fewer than eight published runs on {', '.join(strange)} check them"
    if names == [READ_GPU]:
        return "measured", "kernels, power and temperature of its GPU were measured"
    return "interpolated", f"published runs on {', '.join(names)} check step times; power is scaled from an H200"


def step_scale(shares: Mapping[str, float], spreads: Mapping[str, float]) -> float:
    """Return the width of the error of a step: shares by which each spread enters, added up in squares."""
    return sqrt(sum((shares[name] * spread) ** 2 for name, spread in spreads.items()))


def _step_spread(result: "RunResult") -> Spread:
    spec = result.spec
    return step_spread(stored_grade(spec), _gpu_names(spec["cluster"]), result.metrics["breakdown_s"] or {})


def step_spread(grade: str, gpus: Sequence[str], breakdown_s: Mapping[str, float | None]) -> Spread:
    """Return the spread of step time, by how a run is set up, on what, and where its seconds go."""
    found = errors()
    known, shares = found["step_time"], {"own": 1.0, **share_of(breakdown_s)}
    scale = step_scale(shares, known["spreads"])
    spread = _spread({name: scale * known[name] for name in ("low", "high")}, _tell_shares(shares, known))
    if grade != "tuned":
        usual = _spread(found["usual"], tell_usual())
        both = Spread(max(spread.below, usual.below), max(spread.above, usual.above), f"{spread.basis}; {usual.basis}")
        spread = usual if grade == "usual" else both
    strange = [name for name in gpus if name not in found["known_gpus"]]
    if strange:
        why = f"{found['unknown_gpu_factor']:g} times as wide: too few published runs on {', '.join(strange)}"
        return spread.wider(found["unknown_gpu_factor"], why)
    return spread


PARTS = {
    "own": "kernels",
    "exposed": "exposed communication",
    "wait": "bubbles and waiting",
    "overhead": "launches",
}
"""Spread of the step time: its cause in words."""


def usual_factors() -> tuple[float, float, float]:
    """Return low end, median and high end of measured over predicted step time of runs as users have them."""
    low, middle, high = (exp(-errors()["usual"][name]) for name in ("high", "middle", "low"))
    return low, middle, high


def tell_usual() -> str:
    """Say how much longer than predicted nine in ten runs took that were not tuned."""
    usual, (low, middle, high) = errors()["usual"], usual_factors()
    return (
        f"{usual['rows']} runs as users have them, of {usual['sources']} sources, took {low:.2g} to {high:.2g} times "
        f"as long as predicted, half of them more than {middle:.2g} times"
    )


def _tell_shares(shares: Mapping[str, float], known: Mapping[str, Any]) -> str:
    """Say which causes widen the interval of a step most."""
    causes = {PARTS[name]: shares[name] * spread for name, spread in known["spreads"].items()}
    largest = sorted(causes, key=lambda cause: -causes[cause])[:2]
    told = " and ".join(f"{cause} ({format_percent(causes[cause])})" for cause in largest if causes[cause] > 0.005)
    return f"held-out errors of {known['rows']} published runs, here mostly of {told}"


def stored_class(spec: Mapping[str, Any]) -> str:
    """Return the class by which a run's step time is scored, from its spec as a table."""
    return class_of(spec["model"].get("experts"), spec["training"].get("lora_rank"))


def stored_grade(spec: Mapping[str, Any]) -> str:
    """Return how well a run is set up (tuned, usual or not stated), from its spec as a table."""
    nodes = [spec["cluster"]["node"], *(other["node"] for other in spec["cluster"].get("mixed", ()))]
    hosts = ((node.get("host_grade", NOT_STATED), node.get("host_speed_fraction", 1.0)) for node in nodes)
    return grade_of(spec["framework"].get("tuning", NOT_STATED), hosts)


def _board_intervals(result: "RunResult", step: Spread) -> dict[str, dict[str, Any]]:
    """Return the intervals of watts, joules, clocks and degrees, of those that are known."""
    metrics, spec = result.metrics, result.spec
    power, energy = _power_spreads(spec, step)
    peak_power = _h200_spread("power_peak_sensor_w", spec)
    most = {"power_mean_w": _power_cap_w(spec), "clock_mean_hz": _clock_limit_hz(spec)}
    ratios = {
        "power_mean_w": power,
        "power_peak_w": peak_power,
        "power_peak_sensor_w": peak_power,
        "energy_per_step_j": energy,
        "tokens_per_j": energy.inverted,
        "node_power_mean_w": power,
        "clock_mean_hz": _clock_spread(metrics, spec),
    }
    found = {
        name: _ratio(metrics[name], spread, most.get(name, inf))
        for name, spread in ratios.items()
        if metrics[name] is not None
    }
    known = all(metrics[name] is not None for name in HEAT_METRICS)
    return {**found, **_heat_intervals(result, power)} if known else found


HEAT_METRICS = ("temperature_mean_c", "temperature_peak_c", "margin_to_slowdown_k")
MEMORY_METRICS = ("memory_temperature_peak_c", "margin_to_memory_limit_k")
MEMORY_K = 5.0
"""Derived: 19 loops on an H200 whose stacks no constant comes from read 4.1 K less than predicted, spread 1.6 K."""


def _heat_intervals(result: "RunResult", power: Spread) -> dict[str, dict[str, Any]]:
    """Return the intervals of temperatures."""
    metrics, spec = result.metrics, result.spec
    preheat_k = max((node.get("preheat_k") or 0.0 for node in result.nodes), default=0.0)
    mean_k, peak_k = (_rise(metrics[name], spec) for name in ("temperature_mean_c", "temperature_peak_c"))
    # Rear slots are half of a node; the hottest GPU is one of them.
    mean = _heat_spread("temperature_mean_c", mean_k, power, preheat_k / 2)
    peak = _heat_spread("temperature_peak_c", peak_k, power, preheat_k)
    of_memory = peak.plus(MEMORY_K, MEMORY_K, f"plus {MEMORY_K:g} K, as memory of another H200 was missed")
    memory = {
        name: _sum(metrics[name], of_memory.inverted if name.startswith("margin") else of_memory)
        for name in MEMORY_METRICS
        if metrics.get(name) is not None
    }
    return {
        **memory,
        "temperature_mean_c": _sum(metrics["temperature_mean_c"], mean),
        "temperature_peak_c": _sum(metrics["temperature_peak_c"], peak),
        "margin_to_slowdown_k": _sum(metrics["margin_to_slowdown_k"], peak.inverted),
    }


def _power_spreads(spec: Mapping[str, Any], step: Spread) -> tuple[Spread, Spread]:
    """Return the spreads of mean power and of a step's energy.

    A step that is longer than predicted is taken to wait longer, and a GPU that waits draws less: power falls by most
    of what the step grows, energy rises by the rest.
    """
    power = _h200_spread("power_mean_w", spec)
    waiting = errors()["waiting_power_fraction"]
    why = "plus the error of the step time, counted as waiting"
    return (
        power.plus(waiting * step.above, waiting * step.below, why),
        power.plus((1 - waiting) * step.below, (1 - waiting) * step.above, why),
    )


def _h200_spread(metric: str, spec: Mapping[str, Any]) -> Spread:
    """Return the spread of a metric as H200 boards read it, wider on another GPU."""
    bounds, other = errors()["h200"][metric], errors()["other_gpu"]
    spread = _spread(bounds, f"errors of {bounds['rows']} runs on H200 boards, predicted before they were measured")
    if set(_gpu_names(spec["cluster"])) == {READ_GPU}:
        return spread
    fraction = other["power_fraction"] * (other["clock_over_power"] if metric == "clock_mean_hz" else 1.0)
    return spread.plus(fraction, fraction, f"plus {format_percent(fraction, 0)}: {other['basis']}")


def _clock_spread(metrics: Mapping[str, Any], spec: Mapping[str, Any]) -> Spread:
    """Return the spread of the clock; one that nothing throttles is the one that was asked for."""
    shares = metrics["throttled_time_fraction"]
    if shares is not None and not any(shares.values()):
        return Spread(0.0, 0.0, "not throttled: the requested clock")
    return _h200_spread("clock_mean_hz", spec)


def _heat_spread(metric: str, rise_k: float, power: Spread, preheat_k: float) -> Spread:
    """Return the spread of a temperature in kelvin."""
    bounds = errors()["h200"][metric]
    spread = _spread(bounds, f"errors of {bounds['rows']} runs on H200 boards, whose inlet was not measured")
    spread = spread.plus(rise_k * power.below, rise_k * power.above, "plus the interval of the power")
    each_k = PREHEAT_FRACTION * preheat_k
    return spread.plus(each_k, each_k, f"plus {preheat_k:.1f} K of assumed preheating") if preheat_k else spread


def _memory_spread(measure: str) -> Spread:
    bounds = errors()["memory"][measure]
    return _spread(bounds, f"held-out error of the {measure} memory of {bounds['rows']} runs")


def _spread(bounds: Mapping[str, Any], basis: str) -> Spread:
    """Turn quantiles of errors around: where predictions were too high, the truth lies below."""
    return Spread(max(0.0, bounds["high"]), max(0.0, -bounds["low"]), basis)


def _ratio(value: float, spread: Spread, most: float = inf) -> dict[str, Any]:
    low, high = value * exp(-spread.below), value * exp(spread.above)
    return {"low": low, "high": max(value, min(most, high)), "level": LEVEL, "basis": spread.basis}


def _sum(value: float, spread: Spread) -> dict[str, Any]:
    return {"low": value - spread.below, "high": value + spread.above, "level": LEVEL, "basis": spread.basis}


def _gpu_names(cluster: Mapping[str, Any]) -> list[str]:
    nodes = [cluster["node"], *(other["node"] for other in cluster.get("mixed", ()))]
    return list(dict.fromkeys(node["gpu"]["name"] for node in nodes))


def _rise(temperature_c: float, spec: Mapping[str, Any]) -> float:
    inlet_c = spec["cluster"]["cooling"]["inlet_c"]
    warmest_c: float = max(inlet_c) if isinstance(inlet_c, list | tuple) else inlet_c
    return temperature_c - warmest_c


def _power_cap_w(spec: Mapping[str, Any]) -> float:
    cap_w = spec["conditions"].get("power_cap_w")
    return float(cap_w if cap_w is not None else spec["cluster"]["node"]["gpu"]["power_cap_w"])


def _clock_limit_hz(spec: Mapping[str, Any]) -> float:
    cap_hz = spec["conditions"].get("clock_cap_hz")
    return float(cap_hz if cap_hz is not None else spec["cluster"]["node"]["gpu"]["clock_max_hz"])
