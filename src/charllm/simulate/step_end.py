"""What ends a step on a stage: exchange of gradients and weights, update, and the rest.

The update is work, which follows the clock. How much of an exchange is left, and how long stragglers and hosts are
waited for, follows how long the passes took: `times_s` of both are told of the work of the stage's last pass on the
slowest of its GPUs, and between two knots lie on a line over its length.
Source: timeline/step_time.py.
Ignores: that earlier passes may have had another clock than the last one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.simulate.knots import NEVER_S
from charllm.simulate.slices import CHANNELS, DRAWN, TIMES, clocks_of, lay_rows, stack_kinds
from charllm.timeline.costs import COLUMNS as COST_COLUMNS
from charllm.timeline.schedules import order_arrays
from charllm.timeline.step_time import StepTime
from charllm.workload.step import Step
from charllm.workload.sync import step_sync

EXCHANGE, UPDATE, REST = range(3)
"""Parts of the end of a step."""
LAST_PASS, PARTS = 0, 3
"""Columns of `times_s`: the last pass; from 1 on the parts."""


class StepEnds(NamedTuple):
    """How a step ends on each kind of GPU and stage."""

    times_s: Floats
    """[kind, stage, knot, (work of the last pass, exchange, update, rest)]"""
    rows: Floats
    """[kind, stage x part, interval between knots, column]: what a part draws, and the time of the update."""

    def parts_s(self, kind: int, knots: Floats, clock_hz: float) -> Floats:
        """Return how long each part takes on a kind of GPU at a clock: [stage, part]."""
        times_s = self.times_s[kind]
        known = knots[knots > 0]
        return np.array([[np.interp(1 / clock_hz, 1 / known, times_s[stage, : len(known), 1 + part])
                          for part in range(PARTS)] for stage in range(len(times_s))])  # fmt: skip


def lay_step_ends(step: Step, kinds: Sequence[Sequence[StepTime]]) -> StepEnds:
    """Lay out the ends of a step that was timed at the knots of each kind of GPU: [kind][knot]."""
    each = [_lay_kind(step, times) for times in kinds]
    most = max(times_s.shape[1] for times_s, _rows in each)
    padded = [np.pad(times_s, ((0, 0), (0, most - times_s.shape[1]), (0, 0)), mode="edge") for times_s, _rows in each]
    return StepEnds(np.array(padded), stack_kinds([rows for _times_s, rows in each]))


def _lay_kind(step: Step, times: Sequence[StepTime]) -> tuple[Floats, Floats]:
    """Return the times [stage, knot, which] and the rows [stage x part, interval, column] of one kind of GPU."""
    pp = step.run.parallelism.pp
    ends = [[_end(step, timed, stage) for stage in range(pp)] for timed in times]
    times_s, drawn = (np.array([[end[place] for end in one] for one in ends]) for place in (0, 1))
    # The host has waited by then: what it holds up is part of the rest.
    worked_s = np.full((len(times), pp * PARTS, len(TIMES)), NEVER_S)
    worked_s[..., [0, 1, 3]] = 0.0
    worked_s[:, UPDATE::PARTS, 0] = times_s[:, :, 1 + UPDATE]
    rows = lay_rows(worked_s, drawn.reshape(len(times), pp * PARTS, len(DRAWN)), clocks_of(times))
    return times_s.transpose(1, 0, 2), rows


def _end(step: Step, timed: StepTime, stage: int) -> tuple[Floats, Floats]:
    """Return the seconds of the last pass and of the parts at one clock, and what each part draws."""
    run, costs, degrees = step.run, timed.costs, step.run.parallelism
    labels, in_passes = timed.stages[stage], run.microbatches * timed.microbatch_s(stage, "dp_exposed")
    whole_s = timed.step_time_s - float(max(timed.events.free_s))
    exchange_s = min(whole_s, max(0.0, labels["dp_exposed"] - in_passes))
    update_s = min(whole_s - exchange_s, labels["optimizer"])
    exchanged, updated = (
        sum((costs.cells(op) for op in ops), np.zeros(COST_COLUMNS))
        for ops in (step_sync(step, stage), costs.kernels.updates[stage])
    )
    drawn = np.zeros((PARTS, len(DRAWN)))
    drawn[EXCHANGE, 3] = CHANNELS / costs.run.cluster.gpu.multiprocessors
    # What is hidden under compute has no time of its own here, nor its energy.
    if exchange_s > 0:
        drawn[EXCHANGE, :3] = exchanged[3:]
    if update_s > 0:
        drawn[UPDATE, :3] = updated[3:]
    direction, chunk, _microbatch = order_arrays(degrees.schedule, degrees.pp, degrees.vpp, run.microbatches)[stage, -1]
    last_s = sum(timed.passes[chunk][direction].labels.values())
    return np.array([last_s, exchange_s, update_s, whole_s - exchange_s - update_s]), drawn
