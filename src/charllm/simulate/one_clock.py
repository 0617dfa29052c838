"""The one clock at which a run settles: a fast answer without heat, and where kernels are linearised for the loop.

Equation: the highest clock up to the one asked for at which the mean board power of the busiest stage, over its passes,
stays at or below what the governor holds.
Ignores: bursts within a step, differences between GPUs, temperature (taken as WARM_C).
"""

from dataclasses import replace

import numpy as np

from charllm.gpu.board import Energy, standing_w, working_w
from charllm.gpu.governor import Limits, limits_of
from charllm.network.constants import NETWORK, NetworkConstants
from charllm.spec.hardware import Gpu
from charllm.timeline.constants import TIMELINE, TimelineConstants
from charllm.timeline.costs import BOARD_J, CORE_J, FIXED, MATRIX, MATRIX_J, OTHER, StepKernels, cost_step, read_step
from charllm.timeline.engine import Floats
from charllm.timeline.step_time import StepTime, time_step
from charllm.workload.op import is_communication
from charllm.workload.step import Step

WARM_C = 60.0
"""Assumed: temperature at which the clock is solved; leakage moves it by 0.1 % a degree."""
ROUNDS, SETTLED_FRACTION = 4, 2e-3
HALVINGS = 30


def solve_step(step: Step, network: NetworkConstants = NETWORK, timeline: TimelineConstants = TIMELINE) -> StepTime:
    """Price a step at the clock it settles at; of a mixed cluster, on the kind of node that is slowest."""
    return max(solve_kinds(step, network, timeline), key=lambda timed: timed.step_time_s)


def solve_kinds(
    step: Step, network: NetworkConstants = NETWORK, timeline: TimelineConstants = TIMELINE
) -> list[StepTime]:
    """Price a step on each kind of node, as if all were of it, at the rate of the slowest links.

    Ignores: that communication hidden under a slower GPU's compute may be exposed beside a faster one's.
    """
    cluster = step.run.cluster
    if not cluster.mixed:
        return [_solve(step, network, timeline)]
    runs = [replace(step.run, cluster=cluster.uniform(kind)) for kind in range(len(cluster.kinds))]
    return [_solve(replace(step, run=run), network, timeline) for run in runs]


def _solve(step: Step, network: NetworkConstants, timeline: TimelineConstants) -> StepTime:
    gpu, limits = step.run.cluster.gpu, limits_of(step.run.cluster.gpu, step.run.conditions)
    kernels: StepKernels = read_step(step)
    clock_hz = limits.clock_max_hz
    for _ in range(ROUNDS):
        timed = time_step(step, cost_step(step, kernels, clock_hz, network, timeline))
        settled_hz = min(_settled_hz(row, gpu, limits) for row in _stage_rows(step, timed))
        if abs(settled_hz / clock_hz - 1) < SETTLED_FRACTION:
            return timed
        clock_hz = settled_hz
    return time_step(step, cost_step(step, kernels, clock_hz, network, timeline))


def _stage_rows(step: Step, timed: StepTime) -> list[Floats]:
    """Return for each stage the costs of all its passes together."""
    rows, known = [], dict[int, Floats]()
    for stage in range(step.run.parallelism.pp):
        total = np.zeros(6)
        for one in timed.passes[stage :: step.run.parallelism.pp]:
            for part in one:
                for span in part.spans:
                    if id(span.items) not in known:
                        known[id(span.items)] = _span_row(timed, span.items)
                    total = total + span.repeats * known[id(span.items)]
        for op in timed.costs.kernels.updates[stage]:
            total = total + timed.costs.cells(op) / step.run.microbatches
        rows.append(total)
    return rows


def _span_row(timed: StepTime, items: tuple) -> Floats:  # type: ignore[type-arg]
    row = np.zeros(6)
    for item in items:
        if item.op is None:
            continue
        row += timed.costs.cells(item.op)
        if is_communication(item.op):
            row[FIXED] += item.seconds
    return row


def _settled_hz(row: Floats, gpu: Gpu, limits: Limits) -> float:
    """Return the highest clock at which work of these costs stays at what the governor holds."""
    energy = Energy(row[MATRIX_J], row[CORE_J], row[BOARD_J])

    def over_w(clock_hz: float) -> float:
        matrix_hz = min(clock_hz, limits.matrix_clock_hz)
        seconds = row[MATRIX] / matrix_hz + row[OTHER] / clock_hz + row[FIXED]
        if seconds <= 0:
            return -limits.hold_w
        drawn = standing_w(gpu.power, gpu.clock_max_hz, clock_hz, WARM_C)
        return float(drawn + working_w(gpu.power, energy, seconds, clock_hz, matrix_hz) - limits.hold_w)

    low, high = limits.clock_min_hz, limits.clock_max_hz
    if over_w(high) <= 0:
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if over_w(middle) <= 0 else (low, middle)
    return low
