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
from charllm.timeline.schedules import BACKWARD, FORWARD, order_arrays
from charllm.timeline.step_time import StepTime
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
    hosts = np.array([[one.host for one in times[0].exchanges] for times in kinds])
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
    ends = [_ends(own, stage, times) for stage in range(pp)]
    times_s, drawn = (np.array([one[place] for one in ends]) for place in (0, 1))
    # The host is waited for after the update.
    worked_s = np.full((len(times), pp * PARTS, len(TIMES)), NEVER_S)
    worked_s[..., [0, 1, 3]] = 0.0
    worked_s[:, UPDATE::PARTS, 0] = times_s[:, :, 1 + UPDATE].T
    drawn = drawn.transpose(1, 0, 2, 3).reshape(len(times), pp * PARTS, len(DRAWN))
    return times_s, lay_rows(worked_s, drawn, clocks_of(times))


def _ends(step: Step, stage: int, times: Sequence[StepTime]) -> tuple[Floats, Floats]:
    """Return for [knot] the seconds of a stage's closing passes and of the parts, and what each part draws."""
    costs, alone, closing = times[0].costs, times[0].exchanges[stage], _closing_passes(step, stage)
    drawn = np.zeros((len(times), PARTS, len(DRAWN)))
    drawn[:, [GRADIENTS, WEIGHTS], 3] = CHANNELS / costs.run.cluster.gpu.multiprocessors
    # No clock changes what an exchange draws.
    whole_j = {part: np.zeros(3) for part in (GRADIENTS, WEIGHTS)}
    for op in step_sync(step, stage):
        whole_j[WEIGHTS if op.kind in WEIGHT_EXCHANGES else GRADIENTS] += costs.cells(op)[3:]
    times_s = []
    for timed, drawn_of in zip(times, drawn, strict=True):
        ending = timed.endings[stage]
        for part, left_s, whole_s in (
            (GRADIENTS, ending.gradients_s, alone.gradients_s),
            (WEIGHTS, ending.weights_s, alone.weights_s),
        ):
            drawn_of[part, :3] = min(1.0, left_s / whole_s) * whole_j[part] if whole_s > 0 else 0.0
        drawn_of[UPDATE, :3] = sum((timed.costs.cells(op)[3:] for op in costs.kernels.updates[stage]), np.zeros(3))
        closing_s = sum(sum(timed.passes[chunk][direction].labels.values()) for direction, chunk in closing)
        times_s.append((closing_s, ending.gradients_s, ending.update_s, ending.weights_s))
    return np.array(times_s), drawn


def _closing_passes(step: Step, stage: int) -> list[tuple[int, int]]:
    """List direction and chunk of a stage's passes from its last backward one on, or its last where none is one."""
    degrees = step.run.parallelism
    order = order_arrays(degrees.schedule, degrees.pp, degrees.vpp, step.run.microbatches)[stage]
    last = np.flatnonzero(order[:, 0] == (BACKWARD if degrees.trains else FORWARD))[-1]
    return [(direction, chunk) for direction, chunk, _microbatch in order[last:].tolist()]
