"""Phases of replicas and of jobs: what staggering them takes off the swings of a cluster's power, and what it costs.

Replicas of one synchronous job meet in every gradient exchange. A replica that begins a step later ends it later, and
all others wait for it: a stagger costs as many seconds a step as it spreads the replicas over. Only a replica that
waits anyway (slower peers) has slack to begin later for nothing. Replicas that exchange weights or experts inside the
step (FSDP, expert parallelism over replicas) wait for the last one at the first of these exchanges: the stagger costs
the same and changes little.

Independent jobs do not wait for each other. With n equal jobs whose steps begin evenly one after another, all
frequencies of their summed power cancel but multiples of n over the step time.
Equation: summed power = sum over jobs j of P(t - j T / n), T the step time.
Source: Fourier series of a sum of shifted periodic signals; P is that of the simulated step.
Ignores: drift of the phases of independent jobs whose step times differ; they are de-phased by chance then.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.simulate.predict import Simulation, predict
from charllm.simulate.recorded import END
from charllm.simulate.signals import swing_metrics

STAGGERS_S = (0.25, 0.5, 1.0, 2.0, 4.0)
"""A ramp is read over one second: staggers around it tell."""
JOBS = (2, 4, 8)
LEAST_SERIES_S = 60.0
"""Length over which the power of jobs is added up, so that 0.1 Hz is resolved."""


class Stagger(NamedTuple):
    """One run with its replicas staggered, as the coupled simulator sees it."""

    stagger_s: float
    step_time_s: float
    cost_fraction: float
    """Tokens a second lost."""
    peak_w: float | None
    ramp_w_per_s: float | None
    swing_w: float | None


class Jobs(NamedTuple):
    """Equal jobs side by side: all in phase, and evenly one after another."""

    jobs: int
    together_ramp_w_per_s: float
    spread_ramp_w_per_s: float
    together_swing_w: float
    spread_swing_w: float


def stagger_replicas(before: Simulation) -> Iterator[Stagger]:
    """Yield the run as it is, then with staggers of up to a fifth of its step; nothing where it has one replica."""
    run, now = before.step.run, before.result.metrics
    if run.parallelism.dp == 1:
        return
    yield _stagger(run.conditions.replica_stagger_s, before, now["step_time_s"])
    for stagger_s in STAGGERS_S:
        if stagger_s <= now["step_time_s"] / 5:
            changed = replace(run, conditions=replace(run.conditions, replica_stagger_s=stagger_s))
            yield _stagger(stagger_s, predict(changed, ignore_memory=True), now["step_time_s"])


def _stagger(stagger_s: float, found: Simulation, before_s: float) -> Stagger:
    metrics = found.result.metrics
    names = ("cluster_power_peak_w", "cluster_power_ramp_w_per_s", "cluster_power_swing_w")
    step_s = metrics["step_time_s"]
    return Stagger(stagger_s, step_s, 1 - before_s / step_s, *(metrics[name] for name in names))


def free_slack_s(found: Simulation) -> float:
    """Return how much later the replica that waits longest could begin a step without being waited for."""
    simulated = found.simulated
    assert simulated is not None
    ends_s = simulated.simulated_step.passes[:, :, END].max(axis=0)
    return float(ends_s.max() - ends_s.min())


def spread_jobs(found: Simulation) -> list[Jobs]:
    """Add up the power of several equal jobs, each on a cluster like this one; nothing where a step is too short."""
    simulated = found.simulated
    assert simulated is not None
    simulated_step = simulated.simulated_step
    boxes = int(simulated_step.step_time_s / simulated_step.box_s)
    power_w = simulated_step.cluster_w[-boxes:]
    if boxes < 2 or len(power_w) < boxes:
        return []
    return [_jobs(power_w, simulated_step.box_s, count) for count in JOBS]


def _jobs(power_w: Floats, box_s: float, count: int) -> Jobs:
    boxes = len(power_w)
    offsets = [round(one * boxes / count) for one in range(count)]
    spread_w = sum((np.roll(power_w, offset) for offset in offsets), np.zeros(boxes))
    times = int(np.ceil(LEAST_SERIES_S / (boxes * box_s)))
    each = [swing_metrics(np.tile(one, times), box_s) for one in (count * power_w, spread_w)]
    ramps, swings = ([float(one[name] or 0.0) for one in each] for name in
                     ("cluster_power_ramp_w_per_s", "cluster_power_swing_w"))  # fmt: skip
    return Jobs(count, *ramps, *swings)
