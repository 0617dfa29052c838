"""Time, energy and money of a run against power or clock caps, each point through the coupled simulator.

Knees: the knee is the point of the least energy x time of a step: up to it 1 % of energy saved costs less than 1 % of
time, beyond it more. Beside it: the point of most tokens per joule (energy of the GPUs), and of the least money for a
trillion tokens (energy of the hall, and GPU-hours, which make a slower run dearer).
Equation: the metrics of each point are those of a simulated run; nothing is interpolated between points.
Source: simulate/predict.py, plan/money.py.
Ignores: steps in which a driver sets clocks (15 MHz) and limits; what a cap does to GPUs of other jobs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from charllm.errors import DoesNotFit, SpecError
from charllm.plan.metrics import USUAL, Economics, derive_metrics
from charllm.plan.objectives import OBJECTIVES
from charllm.result.metrics import Metrics
from charllm.simulate.predict import predict
from charllm.simulate.work import LONGEST_S
from charllm.spec.hardware import Cluster, Gpu
from charllm.spec.run import RunSpec
from charllm.tracking import Track, untracked
from charllm.units import MEGA

POINTS = 11
LOWEST_CLOCK_FRACTION = 0.4
"""Clock caps are tried from the highest clock down to this share of it."""
LOWEST_OVER_IDLE = 1.3
"""Power caps are tried down to the lowest that can be set, or this much above idle."""
MEAN_BELOW_CAP = 1.1
"""A cap over the mean power of a job that it begins to hold down: waits make the mean lower than the cap."""
REFINEMENTS = 2
"""How often points are added on both sides of each knee."""


class CapKind(NamedTuple):
    """What is capped."""

    name: str
    of_all: str
    """Condition that caps every GPU."""
    of_each: str
    """Condition that caps listed GPUs, each by its own value."""
    unit: str
    scale: float
    """How much the unit is in SI."""

    def runs_at(self, point: "CapPoint") -> float:
        """Return the cap from which on a job feels it, from how it runs under higher ones."""
        if self.name == "clock":
            return float(point.metrics["clock_mean_hz"])
        return min(point.caps[0], MEAN_BELOW_CAP * float(point.metrics["power_mean_w"]))


KINDS = {
    "power": CapKind("power", "power_cap_w", "capped_power_w", "W", 1.0),
    "clock": CapKind("clock", "clock_cap_hz", "capped_clock_hz", "MHz", MEGA),
}
KNEES = {
    "knee": OBJECTIVES["edp"],
    "most tokens per joule": OBJECTIVES["tokens-per-joule"],
    "least money": OBJECTIVES["cost"],
}
"""Name of a knee: the objective whose best point it is."""
MEANINGS = {
    "knee": "lowest energy x time of a step: beyond it, saving 1 % of energy costs more than 1 % of time",
    "most tokens per joule": "energy of the GPUs",
    "least money": "energy of the facility and GPU-hours",
}
"""Name of a knee: what it is the best of."""


class CapPoint(NamedTuple):
    """A run under caps, and its metrics."""

    caps: tuple[float, ...]
    """W or Hz: one for all GPUs, or one for each stage."""
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class Judge:
    """What simulates a run under caps; runs that do not fit are priced where that was asked for."""

    economics: Economics = USUAL
    ignore_memory: bool = False
    longest_s: float = LONGEST_S

    def __call__(self, run: RunSpec) -> Metrics:
        """Return the metrics of a run, with those of money."""
        found = predict(run, ignore_memory=self.ignore_memory, longest_s=self.longest_s).result
        if found.metrics["step_time_s"] is None:
            reason = next((text for text in found.warnings if text.startswith("memory")), "it does not fit in memory")
            raise DoesNotFit(f"{reason} (see --ignore-memory)")
        return derive_metrics(run, found.metrics, self.economics)


USUAL_JUDGE = Judge()


def cap_range(cluster: Cluster, kind: CapKind) -> tuple[float, float]:
    """Return the lowest and the highest cap that are tried, which every kind of GPU of a cluster can be set to."""
    lows, highs = zip(*(_gpu_range(node.gpu, kind) for node in cluster.kinds), strict=True)
    return max(lows), min(highs)


def _gpu_range(gpu: Gpu, kind: CapKind) -> tuple[float, float]:
    if kind.name == "clock":
        return max(gpu.clock_idle_hz, LOWEST_CLOCK_FRACTION * gpu.clock_max_hz), gpu.clock_max_hz
    return max(gpu.power_cap_min_w, LOWEST_OVER_IDLE * gpu.idle_draw_w), gpu.power_cap_w


def capped_run(run: RunSpec, kind: CapKind, cap: float) -> RunSpec:
    """Return a run with one cap on every GPU."""
    changed: dict[str, Any] = {kind.of_all: cap}
    return replace(run, conditions=replace(run.conditions, **changed))


def sweep_caps(
    run: RunSpec, kind: CapKind, judge: Judge = USUAL_JUDGE, at: Sequence[float] = (), track: Track = untracked
) -> list[CapPoint]:
    """Simulate a run under each cap, the highest first; without given caps over their range, denser at the knees."""
    low, high = cap_range(run.cluster, kind)

    def points(caps: Iterable[float]) -> list[CapPoint]:
        listed = list(caps)
        judged = ((cap, judge(capped_run(run, kind, cap))) for cap in listed)
        return [CapPoint((cap,), metrics) for cap, metrics in track(judged, len(listed), f"{kind.name} caps")]

    if at:
        for cap in at:
            _check_cap(cap, run.cluster, kind)
        return points(sorted(at, reverse=True))
    found = points(_rounded(np.linspace(high, low, POINTS), kind))
    for _ in range(REFINEMENTS):
        known = [point.caps[0] for point in found]
        found += points(_between(known, find_knees(found).values(), kind))
        found.sort(key=lambda point: -point.caps[0])
    return found


def _rounded(caps: Iterable[float], kind: CapKind) -> list[float]:
    """Return caps in whole watts or megahertz, each once."""
    return list(dict.fromkeys(float(round(cap / kind.scale) * kind.scale) for cap in caps))


def _between(caps: Sequence[float], places: Iterable[int], kind: CapKind) -> list[float]:
    """Return caps half-way from those at some places to their neighbours."""
    pairs = [(caps[at], caps[to]) for at in places for to in (at - 1, at + 1) if 0 <= to < len(caps)]
    return [cap for cap in _rounded((sum(pair) / 2 for pair in pairs), kind) if cap not in caps]


def _check_cap(cap: float, cluster: Cluster, kind: CapKind) -> None:
    for gpu in (node.gpu for node in cluster.kinds):
        clocks_hz, powers_w = (gpu.clock_idle_hz, gpu.clock_max_hz), (gpu.power_cap_min_w, gpu.power_cap_w)
        low, high = clocks_hz if kind.name == "clock" else powers_w
        if not low <= cap <= high:
            possible = f"{low / kind.scale:g} to {high / kind.scale:g} {kind.unit} on {gpu.name}"
            raise SpecError("--at", cap / kind.scale, possible)


def find_knees(points: Sequence[CapPoint]) -> dict[str, int]:
    """Return for each knee the place of its point; of equal ones the one with the higher cap."""
    places = range(len(points))
    return {name: min(places, key=lambda at: one.key(points[at].metrics)) for name, one in KNEES.items()}
