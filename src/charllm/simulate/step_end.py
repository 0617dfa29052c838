"""What ends a step: exchange of gradients and weights, update and the rest, as slices of every stage.

Exchange and rest last as long as the step was timed with; the update takes what it costs on its kind of GPU.
Source: timeline/step_time.py.
"""

from collections.abc import Sequence

import numpy as np

from charllm.arrays import Floats
from charllm.simulate.knots import NEVER_S
from charllm.simulate.slices import CHANNELS, DRAWN, TIMES, clocks_of, lay_rows
from charllm.timeline.costs import COLUMNS as COST_COLUMNS
from charllm.timeline.step_time import StepTime
from charllm.workload.step import Step
from charllm.workload.sync import step_sync


def lay_step_end(step: Step, times: Sequence[StepTime]) -> Floats:
    """Return what ends a step on each stage of one kind of GPU: [stage, part, interval between knots, column]."""
    pp = step.run.parallelism.pp
    parts = [[_tail(step, timed, stage) for stage in range(pp)] for timed in times]
    seconds, drawn = (np.array([[part for stage in one for part in stage[place]] for one in parts]) for place in (0, 1))
    times_s = np.full((*seconds.shape, len(TIMES)), NEVER_S)
    times_s[..., 0] = seconds
    # The host has waited by then: what it holds up is part of the rest.
    times_s[..., 1] = times_s[..., 3] = 0.0
    rows = lay_rows(times_s, drawn, clocks_of(times))
    return rows.reshape(pp, -1, *rows.shape[1:])


def _tail(step: Step, timed: StepTime, stage: int) -> tuple[Floats, Floats]:
    """Return what ends a step on one stage at one clock: exchange of gradients and weights, update, and the rest.

    First the seconds of each, then what it draws.
    """
    run, costs = step.run, timed.costs
    labels, in_passes = timed.stages[stage], run.microbatches * timed.microbatch_s(stage, "dp_exposed")
    whole_s = timed.step_time_s - float(max(timed.events.free_s))
    exchange_s = min(whole_s, max(0.0, labels["dp_exposed"] - in_passes))
    update_s = min(whole_s - exchange_s, labels["optimizer"])
    exchanged, updated = (
        sum((costs.cells(op) for op in ops), np.zeros(COST_COLUMNS))
        for ops in (step_sync(step, stage), costs.kernels.updates[stage])
    )
    drawn = np.zeros((3, len(DRAWN)))
    drawn[0, 3] = CHANNELS / costs.run.cluster.gpu.multiprocessors
    # What is hidden under compute has no time of its own here, nor its energy.
    if exchange_s > 0:
        drawn[0, :3] = exchanged[3:]
    if update_s > 0:
        drawn[1, :3] = updated[3:]
    return np.array([exchange_s, update_s, whole_s - exchange_s - update_s]), drawn
