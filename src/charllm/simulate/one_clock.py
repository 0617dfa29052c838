"""The one clock at which a run settles: a fast answer without heat, and where kernels are linearised for the loop.

Equation: the highest clock up to the one asked for at which the mean board power of the busiest stage, over its passes,
stays at or below what the governor holds.
Source: gpu/physics.py; gpu/steady.py has the same condition for single kernels.
Ignores: bursts within a step, differences between GPUs, temperature (taken as WARM_C).
"""

from dataclasses import replace

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.physics import Board, Energy, board_of, operating_point, working_w
from charllm.spec.run import RunSpec
from charllm.timeline.constants import TIMELINE, TimelineConstants
from charllm.timeline.costs import (
    BOARD_J,
    COLUMNS,
    CORE_J,
    FIXED,
    MATRIX,
    MATRIX_J,
    OTHER,
    StepKernels,
    cost_step,
    read_step,
)
from charllm.timeline.passes import ChunkPasses
from charllm.timeline.step_time import StepTime, time_step
from charllm.workload.op import is_communication
from charllm.workload.step import Step

WARM_C = 60.0
"""Assumed: temperature at which the clock is solved; leakage moves it by 0.1 % a degree."""
ROUNDS, SETTLED_FRACTION = 4, 2e-3
HALVINGS = 30


def solve_step(step: Step, timeline: TimelineConstants = TIMELINE) -> StepTime:
    """Price a step at the clock it settles at; of a mixed cluster, on the kind of node that is slowest."""
    return max(solve_kinds(step, timeline), key=lambda timed: timed.step_time_s)


def solve_kinds(step: Step, timeline: TimelineConstants = TIMELINE) -> list[StepTime]:
    """Price a step on each kind of node, as if all were of it, at the rate of the slowest links.

    Ignores: that communication hidden under a slower GPU's compute may be exposed beside a faster one's.
    """
    return [_solve(replace(step, run=run), timeline) for run in uniform_runs(step.run)]


def uniform_runs(run: RunSpec) -> list[RunSpec]:
    """Return a run on each of its kinds of node, as if all were of it, at the rate of the slowest links."""
    cluster = run.cluster
    if not cluster.mixed:
        return [run]
    return [replace(run, cluster=cluster.uniform(kind)) for kind in range(len(cluster.kinds))]


def _solve(step: Step, timeline: TimelineConstants) -> StepTime:
    board = board_of(step.run.cluster.gpu, step.run.conditions)
    kernels: StepKernels = read_step(step)
    clock_hz = board.asked_clock_hz
    priced = cost_step(step, kernels, clock_hz, timeline=timeline)
    for _ in range(ROUNDS):
        timed = time_step(step, priced)
        settled_hz = float(_settled_hz(_distinct(_stage_rows(step, timed)), board).min())
        if abs(settled_hz / clock_hz - 1) < SETTLED_FRACTION:
            return timed
        clock_hz = settled_hz
        # No clock changes what a collective takes.
        priced = cost_step(step, kernels, clock_hz, timeline=timeline)._replace(collectives=priced.collectives)
    return time_step(step, priced)


def _distinct(rows: list[Floats]) -> Floats:
    """Return each row once: most stages of a pipeline are alike."""
    return np.stack(list({row.tobytes(): row for row in rows}.values()))


def _stage_rows(step: Step, timed: StepTime) -> list[Floats]:
    """Return for each stage the costs of one microbatch, with its share of the update."""
    rows = pass_rows(step, timed)
    for row, ops in zip(rows, timed.costs.kernels.updates, strict=True):
        for op in ops:
            row += timed.costs.cells(op) / step.run.microbatches
    return rows


def pass_rows(step: Step, timed: StepTime) -> list[Floats]:
    """Return for each stage the costs of all its passes of one microbatch together."""
    known: dict[int, Floats] = {}
    stages: dict[tuple[int, ...], Floats] = {}
    rows = []
    for stage in range(step.run.parallelism.pp):
        own = timed.passes[stage :: step.run.parallelism.pp]
        key = tuple(map(id, own))
        if key not in stages:
            stages[key] = _passes_row(timed, own, known)
        rows.append(stages[key].copy())
    return rows


def _passes_row(timed: StepTime, own: list[ChunkPasses], known: dict[int, Floats]) -> Floats:
    """Add up the passes of a stage; `known` remembers the costs of spans."""
    total = np.zeros(COLUMNS)
    for one in own:
        for part in one:
            for span in part.spans:
                if id(span.items) not in known:
                    known[id(span.items)] = _span_row(timed, span.items)
                total = total + span.repeats * known[id(span.items)]
    return total


def _span_row(timed: StepTime, items: tuple) -> Floats:  # type: ignore[type-arg]
    row = np.zeros(COLUMNS)
    for item in items:
        if item.op is None:
            continue
        row += timed.costs.cells(item.op)
        if is_communication(item.op):
            row[FIXED] += item.seconds
    return row


def _settled_hz(rows: Floats, board: Board) -> Floats:
    """Return for each row of costs the highest clock at which such work stays at what the governor holds."""
    energy = Energy(rows[:, MATRIX_J], rows[:, CORE_J], rows[:, BOARD_J])

    def over_w(clock_hz: Floats) -> Floats:
        matrix_hz = np.minimum(clock_hz, board.matrix_clock_hz)
        seconds = rows[:, MATRIX] / matrix_hz + rows[:, OTHER] / clock_hz + rows[:, FIXED]
        busy = seconds > 0
        at = operating_point(board, clock_hz, matrix_hz)
        drawn_w = working_w(board, at, WARM_C, energy, np.where(busy, seconds, 1.0))
        return np.where(busy, drawn_w, 0.0) - board.hold_w

    low, high = (np.full(len(rows), hertz) for hertz in (board.clock_min_hz, board.asked_clock_hz))
    free = over_w(high) <= 0
    for _ in range(HALVINGS if not free.all() else 0):
        middle = (low + high) / 2
        fits = over_w(middle) <= 0
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.where(free, board.asked_clock_hz, low)
