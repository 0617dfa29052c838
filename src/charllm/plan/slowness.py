"""How slow each GPU of a run is when it need not wait, read off coupled simulations: its stage's part and its own.

Equation: seconds of a GPU's passes over their price at one reference clock = role of its stage x own slowness. The role
is read where all GPUs are alike: the same run in slots that are all cooled alike, with typical dies and equal limits.
A GPU that waits for others draws less in its waits, and the governor, which holds the mean, lets it clock higher in its
passes. With a duty d (its busy seconds over those of the busiest GPU) and w watts while it waits, a limit of c watts
lets its passes draw what a limit c' = c + (c - w) (1 - d) / d would without waits. Seconds go as c^-b, with b read off
the alike run at another limit, so that without waits it would take (c' / c)^b times as long.
Source: coupled simulations of the run itself; gpu/physics.py for what a limit holds.
Ignores: that the governor does not average over waits of seconds, that b differs between GPUs and with temperature.
Therefore decisions are tried with b as it was read and with none, which takes every GPU to be as fast without waits as
with them, and the slowest reading of several simulated placements counts (`slowest`).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.gpu.physics import board_of, standing_w
from charllm.layout.grid import Grid
from charllm.layout.nodes import flow_fractions, inlets_c
from charllm.layout.placement import place_ranks
from charllm.plan.cap_shift import present_caps_w, with_cap
from charllm.simulate.one_clock import WARM_C
from charllm.simulate.predict import Simulation, predict
from charllm.simulate.recorded import END, START, WAIT
from charllm.spec.run import Conditions, RunSpec
from charllm.timeline.costs import cost_step
from charllm.timeline.passes import chunk_passes

OTHER_LIMIT_FRACTION = 0.9
"""The other limit at which a run is simulated, over its own."""


class Reference(NamedTuple):
    """What slowness is told against."""

    clock_hz: float
    """At which passes are priced."""
    exponent: float
    """How fast seconds fall with the power limit, on logarithmic axes."""
    role: Floats
    """[stage] slowness of its work on a GPU like all others."""


def find_references(before: Simulation) -> tuple[Reference, Reference]:
    """Simulate a run on GPUs that are all alike, at its power limit and at another one.

    Returns the optimistic reference, in which waits do not matter, and that in which they do.
    """
    assert before.timed is not None
    run = alike(before.step.run)
    limit_w, gpu = float(present_caps_w(run)[0]), run.cluster.gpu
    lower_w = OTHER_LIMIT_FRACTION * limit_w
    other_w = lower_w if lower_w > max(gpu.power_cap_min_w, 1.05 * gpu.idle_draw_w) else limit_w / OTHER_LIMIT_FRACTION
    plain = Reference(before.timed.costs.clock_hz, 0.0, np.ones(run.parallelism.pp))
    usual = predict(run, ignore_memory=True)
    other = predict(with_cap(run, min(other_w, gpu.power_cap_w)), ignore_memory=True)
    ratio = float(np.mean(own_slowness(other, plain)) / np.mean(own_slowness(usual, plain)))
    exponent = max(0.0, np.log(ratio) / np.log(limit_w / other_w)) if other_w <= gpu.power_cap_w else 0.0
    return _with_roles(plain, usual), _with_roles(plain._replace(exponent=exponent), usual)


def _with_roles(plain: Reference, alike_run: Simulation) -> Reference:
    slowness, stage = own_slowness(alike_run, plain), _stage_of_gpu(alike_run.step.run)
    return plain._replace(role=np.array([slowness[stage == one].mean() for one in range(len(plain.role))]))


def alike(run: RunSpec) -> RunSpec:
    """Return a run without anything that tells one GPU from another."""
    node = replace(
        run.cluster.node, upstream=(), preheat_k_per_w=0.0, rear_sink_fraction=1.0, package_skew_fraction=0.0
    )
    inlet_c, flow = (float(np.mean(each)) for each in (inlets_c(run.cluster), flow_fractions(run.cluster)))
    cooling = replace(run.cluster.cooling.at_flow(flow), inlet_c=inlet_c)
    asked = run.conditions
    conditions = Conditions(
        power_cap_w=asked.power_cap_w, clock_cap_hz=asked.clock_cap_hz, placement=asked.placement,
        gpu_of_rank=asked.gpu_of_rank,
    )  # fmt: skip
    return replace(run, cluster=replace(run.cluster, node=node, cooling=cooling, mixed=()), conditions=conditions)


def own_slowness(found: Simulation, reference: Reference) -> Floats:
    """Return how slow each GPU of the cluster is over what its stage makes of any GPU."""
    run = found.step.run
    busy_s, priced_s = _busy_and_priced_s(found, reference.clock_hz)
    duty = busy_s / busy_s.max()
    waits_w = run.cluster.gpu.package_gpus * _waiting_w(run)
    more = 1 + np.maximum(0.0, 1 - waits_w / present_caps_w(run)) * (1 - duty) / duty
    stage = _stage_of_gpu(run)
    return np.asarray(busy_s / priced_s[stage] * more**reference.exponent / reference.role[stage])


def simulated_slowness(reference: Reference, run: RunSpec) -> Floats:
    """Simulate a run; returns how slow each GPU is."""
    return own_slowness(predict(run, ignore_memory=True), reference)


def slowest(readings: Iterable[Floats]) -> Floats:
    """Combine several readings of every GPU."""
    return np.asarray(np.max(list(readings), axis=0))


def _waiting_w(run: RunSpec) -> float:
    return float(standing_w(board_of(run.cluster.gpu), 1.0, WARM_C))


def _stage_of_gpu(run: RunSpec) -> Ints:
    """Return the stage that each GPU works on."""
    stages = np.empty(run.cluster.gpus, dtype=np.int64)
    stages[place_ranks(run)] = Grid(run.parallelism).stage(np.arange(run.parallelism.world))
    return stages


def _busy_and_priced_s(found: Simulation, clock_hz: float) -> tuple[Floats, Floats]:
    """Return the seconds of each GPU's passes, waits within them left out, and the price of each stage's at a clock."""
    simulated = found.simulated
    assert simulated is not None
    machine, passes, costs = simulated.machine, simulated.simulated_step.passes, simulated.timed.costs
    own_step = replace(simulated.step, run=costs.run)
    priced = chunk_passes(own_step, cost_step(own_step, costs.kernels, clock_hz, costs.network, costs.timeline))
    pp, kept = machine.run.parallelism.pp, passes.shape[1]
    working_s = passes[:, :, END] - passes[:, :, START] - passes[:, :, WAIT]
    busy_s = np.array([working_s[machine.turns[:, 0] == stage].sum(axis=0) for stage in range(pp)])
    # Where not all positions are recorded, the others are as slow as those that are.
    every = busy_s[:, np.arange(len(machine.fold.weights)) % kept]
    priced_s = [sum(part.seconds for one in priced[stage::pp] for part in one) for stage in range(pp)]
    return every.ravel()[machine.representatives], simulated.step.run.microbatches * np.array(priced_s)
