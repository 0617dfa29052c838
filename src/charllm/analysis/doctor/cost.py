"""What a weak GPU, node, host or link costs its job: by simulation with and without it, or from what its peers wait.

A finding says how far something lies behind its peers. The condition that makes a simulated run show the same is found
on a grid of severities, and the step time of that run is compared with that of the healthy one.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from charllm.analysis.doctor.diagnose import Expectation, Finding
from charllm.analysis.doctor.observation import Observation
from charllm.analysis.doctor.peers import PORT_SPREAD, by_node, peers_of
from charllm.arrays import Floats
from charllm.errors import CharllmError
from charllm.gpu.physics import power_cap_w
from charllm.simulate.predict import predict
from charllm.simulate.telemetry import Telemetry, show_telemetry
from charllm.spec.run import Conditions, RunSpec

LONGEST_S = 3.0
"""Simulations estimated to take longer are not run."""
EFFECT_ERROR = 0.01
"""How far the effect of a finding may be off: the spread of healthy GPUs stays in it."""
BLOCKS_FRACTION = 0.2
"""Multiprocessor activity of a GPU that waits."""


class Cost(NamedTuple):
    """What the job would gain: step time lost over the step time as it is, with an interval."""

    fraction: float
    low: float
    high: float
    basis: str
    """simulated, or waits: what the peers of the culprit were seen to wait."""
    conditions: Conditions | None = None
    """The conditions under which a simulated run shows the same."""


def price(seen: Observation, finding: Finding, healthy: Expectation | None) -> Cost:
    """Return the cost of one finding."""
    found = _simulated(seen, finding, healthy) if seen.run is not None and healthy is not None else None
    return found or _from_waits(seen, finding)


class _Grid(NamedTuple):
    """Severities of a condition, and what each makes a run show."""

    conditions: tuple[Conditions, ...]
    shown: Callable[[Telemetry], float]
    """The effect that a simulated run shows."""


def step_time(run: RunSpec, conditions: Conditions) -> float | None:
    """Return the step time of a run under other conditions; None where it cannot be simulated in time."""
    found = show_run(run, conditions)
    return found.step_time_s if found else None


def show_run(run: RunSpec, conditions: Conditions) -> Telemetry | None:
    """Return what a run would show under other conditions; None where it cannot be simulated in time."""
    try:
        found = predict(replace(run, conditions=conditions), ignore_memory=True, longest_s=LONGEST_S)
    except CharllmError:
        return None
    return show_telemetry(found)


def _simulated(seen: Observation, finding: Finding, healthy: Expectation) -> Cost | None:
    run = seen.run
    assert run is not None
    grid = _grid(seen, run, finding, healthy)
    usual_s = step_time(run, run.conditions)
    if grid is None or usual_s is None:
        return None
    shown_runs = [show_run(run, conditions) for conditions in grid.conditions]
    shown = [(grid.shown(one), one.step_time_s) for one in shown_runs if one is not None]
    if len(shown) < len(shown_runs):
        return None
    effects, times_s = np.array([[0.0, usual_s], *shown]).T
    effects = np.maximum.accumulate(effects)
    if finding.effect_fraction > effects[-1] + EFFECT_ERROR:
        return None
    error = EFFECT_ERROR if finding.kind != "link" else PORT_SPREAD * (1 - finding.effect_fraction) ** 2
    wanted = finding.effect_fraction + error * np.array([0.0, -1.0, 1.0])
    lost = 1 - usual_s / np.interp(wanted, effects, times_s)
    chosen = grid.conditions[int(np.argmin(np.abs(effects[1:] - finding.effect_fraction)))]
    return Cost(float(lost[0]), max(0.0, float(lost[1])), float(lost[2]), "simulated", chosen)


def _grid(seen: Observation, run: RunSpec, finding: Finding, healthy: Expectation) -> _Grid | None:
    """Return the severities to try for a finding; None where no condition stands for its cause."""
    usual = run.conditions
    gpus, node = finding.gpus, (finding.node,)

    def slower(telemetry: Telemetry) -> float:
        return _lost_clock(seen, finding, np.log(telemetry.gpus["clock_hz"] / healthy.gpus["clock_hz"]))

    def idle(telemetry: Telemetry) -> float:
        beyond = by_node(seen, healthy.gpus["utilization_fraction"] - telemetry.gpus["utilization_fraction"])
        return float(beyond[finding.node] - np.median(np.delete(beyond, finding.node)))

    if finding.cause == "network":
        fractions = (1 - finding.effect_fraction) * np.array([1.2, 1.0, 0.85])
        each = tuple(
            replace(usual, slow_nic_nodes=node, slow_nic_fraction=float(np.clip(one, 0.01, 1))) for one in fractions
        )
        places = iter(1 - np.clip(fractions, 0.01, 1))
        return _Grid(each, lambda _telemetry: float(next(places)))
    if finding.cause == "host":
        speeds = np.geomspace(0.6, 0.02, 8)
        return _Grid(tuple(replace(usual, slow_host_nodes=node, slow_host_fraction=float(one)) for one in speeds), idle)
    if finding.cause == "silicon":
        factors = (1.03, 1.08, 1.15, 1.25, 1.4, 1.7, 2.2)
        return _Grid(tuple(replace(usual, weak_gpus=gpus, weak_power_fraction=one) for one in factors), slower)
    if finding.cause in ("thermal", "cooling"):
        factors = (2.0, 4.0, 6.0, 8.0, 10.0, 14.0, 20.0)
        return _Grid(tuple(replace(usual, hot_gpus=gpus, hot_sink_fraction=one) for one in factors), slower)
    if finding.cause in ("power limit", "clock limit"):
        top_w, low_w = power_cap_w(run.cluster.gpu, usual), run.cluster.gpu.power_cap_min_w
        caps = np.linspace(top_w, max(low_w, 1.1 * run.cluster.gpu.idle_draw_w), 8)[1:]
        return _Grid(tuple(replace(usual, capped_gpus=gpus, capped_power_w=float(one)) for one in caps), slower)
    if finding.cause == "power brake" and finding.kind == "node":
        gpu = run.cluster.gpu
        clocks = np.linspace(gpu.clock_max_hz, gpu.clock_idle_hz, 8)[1:-1]
        return _Grid(tuple(replace(usual, braked_nodes=node, brake_clock_hz=float(one)) for one in clocks), slower)
    return None


def _lost_clock(seen: Observation, finding: Finding, ratios: Floats) -> float:
    """Return how far the GPUs of a finding lie below their peers' clock, as the diagnosis measures it."""
    inside = np.isin(np.arange(len(ratios)), finding.gpus)
    same = peers_of(seen, finding.gpus[0])[0] if finding.kind == "gpu" else np.arange(len(ratios))
    others = ratios[same[~inside[same]]]
    behind = np.median(others) if len(others) else 0.0
    return float(1 - np.exp(np.min(ratios[inside]) - behind))


def _from_waits(seen: Observation, finding: Finding) -> Cost:
    """Bound the cost by what others were seen to wait, where the run cannot be simulated."""
    if finding.kind == "link":
        waits = seen.node_mean("nic_wait_fraction")
        most = float(np.nanmax(waits)) if waits is not None else finding.effect_fraction
        return Cost(most, most / 2, most, "waits")
    if finding.kind == "host":
        return Cost(finding.effect_fraction, finding.effect_fraction / 2, finding.effect_fraction, "waits")
    active = seen.mean("sm_active_fraction")
    lost = finding.effect_fraction
    if active is None:
        return Cost(lost / 2, 0.0, lost, "waits")
    inside = np.isin(np.arange(len(active)), finding.gpus)
    same = peers_of(seen, finding.gpus[0])[0] if finding.kind == "gpu" else np.arange(len(active))
    others = active[same[~inside[same]]]
    more = float(np.max(active[inside]) - np.nanmedian(others)) if len(others) else 0.0
    if not np.isfinite(more):
        return Cost(lost / 2, 0.0, lost, "waits")
    found = float(np.clip(more / (1 - BLOCKS_FRACTION), 0.0, lost))
    return Cost(found, max(0.0, found - EFFECT_ERROR), min(lost, found + EFFECT_ERROR), "waits")
