"""What ends a step on a stage: exchange of gradients, update, the wait for its host, exchange of weights.

The update is work, which follows the clock. How much of an exchange is left follows how long the passes took that hid
it: `times_s` of exchanges are told of the work since the stage's last backward pass began, on the slowest of its GPUs,
and between two knots lie on a line over its length. The host's lead is state of the loop.
Source: timeline/step_time.py.
Ignores: that weights are gathered under the first pass of a step, which may have had another clock than the last one;
joules of what compute hides.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.simulate.knots import NEVER_S
from charllm.simulate.slices import CHANNELS, DRAWN, TIMES, clocks_of, lay_rows, stack_kinds
from charllm.timeline.arrival import straggling_fraction
from charllm.timeline.costs import COLUMNS as COST_COLUMNS
from charllm.timeline.schedules import BACKWARD, FORWARD, order_arrays
from charllm.timeline.step_time import Exchange, StepTime, host_of_update, list_exchanges
from charllm.workload.step import Step
from charllm.workload.sync import WEIGHT_EXCHANGES, step_sync

GRADIENTS, UPDATE, WEIGHTS = range(3)
"""Parts of the end of a step that a GPU works through; it waits for its host after the update."""
CLOSING, PARTS = 0, 3
"""Columns of `times_s`: the work since the last backward pass began; from 1 on the parts."""


class StepEnds(NamedTuple):
    """How a step ends on each kind of GPU and stage."""

    times_s: Floats
    """[kind, stage, knot, (work since the last backward pass began, gradients, update, weights)]"""
    rows: Floats
    """[kind, stage x part, interval between knots, column]: what a part draws, and the time of the update."""
    launch_s: Floats
    """[kind, stage] how long the host launches the update."""
    offloaded_s: Floats
    """[kind, stage] how long the host updates what lies in its memory."""
    reads_norm: bool
    """Whether the host launches the update only when it has read the norm of all gradients."""
    straggling_fraction: float
    """What the slowest GPU is behind, over the step."""

    def update_s(self, kind: int, knots: Floats, clock_hz: float) -> Floats:
        """Return how long the update takes on a kind of GPU at a clock: [stage]."""
        known = knots[knots > 0]
        each = self.times_s[kind, :, : len(known), 1 + UPDATE]
        return np.array([np.interp(1 / clock_hz, 1 / known, times_s) for times_s in each])


def lay_step_ends(step: Step, kinds: Sequence[Sequence[StepTime]]) -> StepEnds:
    """Lay out the ends of a step that was timed at the knots of each kind of GPU: [kind][knot]."""
    known = {id(times): _lay_kind(step, times) for times in {id(one): one for one in kinds}.values()}
    each = [known[id(times)] for times in kinds]
    most = max(times_s.shape[1] for times_s, _rows in each)
    padded = [np.pad(times_s, ((0, 0), (0, most - times_s.shape[1]), (0, 0)), mode="edge") for times_s, _rows in each]
    hosts = np.array(
        [
            [host_of_update(replace(step, run=times[0].costs.run), stage) for stage in range(step.run.parallelism.pp)]
            for times in kinds
        ]
    )
    return StepEnds(
        np.array(padded),
        stack_kinds([rows for _times_s, rows in each]),
        np.ascontiguousarray(hosts[:, :, 0]),
        np.ascontiguousarray(hosts[:, :, 1]),
        step.run.training.clip_gradients,
        straggling_fraction(step.run, kinds[0][0].costs.timeline),
    )


def _lay_kind(step: Step, times: Sequence[StepTime]) -> tuple[Floats, Floats]:
    """Return the times [stage, knot, which] and the rows [stage x part, interval, column] of one kind of GPU."""
    pp = step.run.parallelism.pp
    own = replace(step, run=times[0].costs.run)
    ends = [[_end(own, timed, *one) for one in enumerate(list_exchanges(own, times[0].costs))] for timed in times]
    times_s, drawn = (np.array([[end[place] for end in one] for one in ends]) for place in (0, 1))
    # The host is waited for after the update.
    worked_s = np.full((len(times), pp * PARTS, len(TIMES)), NEVER_S)
    worked_s[..., [0, 1, 3]] = 0.0
    worked_s[:, UPDATE::PARTS, 0] = times_s[:, :, 1 + UPDATE]
    rows = lay_rows(worked_s, drawn.reshape(len(times), pp * PARTS, len(DRAWN)), clocks_of(times))
    return times_s.transpose(1, 0, 2), rows


def _end(step: Step, timed: StepTime, stage: int, alone: Exchange) -> tuple[Floats, Floats]:
    """Return the seconds of the closing passes and of the parts at one clock, and what each part draws."""
    costs, ending = timed.costs, timed.endings[stage]
    drawn = np.zeros((PARTS, len(DRAWN)))
    drawn[[GRADIENTS, WEIGHTS], 3] = CHANNELS / costs.run.cluster.gpu.multiprocessors
    exchanges = step_sync(step, stage)
    for part, left_s, whole_s, ops in (
        (GRADIENTS, ending.gradients_s, alone.gradients_s, [op for op in exchanges if op.kind not in WEIGHT_EXCHANGES]),
        (UPDATE, ending.update_s, ending.update_s, costs.kernels.updates[stage]),
        (WEIGHTS, ending.weights_s, alone.weights_s, [op for op in exchanges if op.kind in WEIGHT_EXCHANGES]),
    ):
        share = min(1.0, left_s / whole_s) if whole_s > 0 else 0.0
        drawn[part, :3] = share * sum((costs.cells(op) for op in ops), np.zeros(COST_COLUMNS))[3:]
    parts_s = (ending.gradients_s, ending.update_s, ending.weights_s)
    return np.array([_closing_s(step, timed, stage), *parts_s]), drawn


def _closing_s(step: Step, timed: StepTime, stage: int) -> float:
    """Return the work of a stage from its last backward pass on, or of its last pass where none goes backward."""
    degrees = step.run.parallelism
    order = order_arrays(degrees.schedule, degrees.pp, degrees.vpp, step.run.microbatches)[stage]
    last = np.flatnonzero(order[:, 0] == (BACKWARD if degrees.trains else FORWARD))[-1]
    return sum(sum(timed.passes[chunk][direction].labels.values()) for direction, chunk, _microbatch in order[last:])
