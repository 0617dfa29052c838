"""What a stage does and when: nothing overlaps, nothing is missing, and ops have the prices that passes gave them."""

from itertools import pairwise

import pytest

from charllm.timeline.stage_plan import StagePlan, pass_of, pass_ops, plan_stage
from charllm.timeline.step_time import StepTime
from charllm.workload.op import is_communication
from charllm.workload.step import Step, build_step
from tests.simulate.test_rank_timeline import GRIDS, small
from tests.timeline.unlimited import time_at_highest_clock

ROUNDING_S = 1e-9


def planned(name: str) -> tuple[Step, StepTime, list[StagePlan]]:
    step = build_step(small(name))
    timed = time_at_highest_clock(step)
    return step, timed, [plan_stage(step, timed, stage) for stage in range(step.run.parallelism.pp)]


@pytest.mark.parametrize("name", GRIDS)
def test_every_second_of_a_stage_is_a_pass_a_wait_or_the_ending(name: str) -> None:
    _step, timed, plans = planned(name)
    for plan in plans:
        spans = [(one.start_s, one.end_s) for one in plan.passes]
        spans = sorted([*spans, *((part.start_s, part.end_s) for part in (*plan.waits, *plan.ending))])
        assert spans[0][0] == 0.0
        for (_, ended_s), (begun_s, _) in pairwise(spans):
            assert begun_s == pytest.approx(ended_s, abs=ROUNDING_S)
        assert spans[-1][1] == timed.step_time_s


@pytest.mark.parametrize("name", GRIDS)
def test_parts_add_up_to_the_labels_of_the_stage(name: str) -> None:
    _step, timed, plans = planned(name)
    for plan in plans:
        found = dict.fromkeys(timed.stages[plan.stage], 0.0)
        for part in (*plan.waits, *plan.ending):
            found[part.label] += part.end_s - part.start_s
        for one in plan.passes:
            labels = pass_of(timed, one.kind, one.chunk).labels
            for label, seconds in labels.items():
                found[label] += seconds
            found["overhead"] += one.end_s - one.start_s - sum(labels.values())
        expected = dict(timed.stages[plan.stage])
        # What of a wait is the schedule's and what a straggler's is told apart for the whole step only.
        for labels in (found, expected):
            labels["waits"] = labels.pop("bubble") + labels.pop("straggler_wait")
        assert found == pytest.approx(expected, abs=ROUNDING_S * len(plan.passes))


@pytest.mark.parametrize("name", GRIDS)
def test_ops_are_those_that_were_priced(name: str) -> None:
    step, timed, plans = planned(name)
    for kind, chunk in {(one.kind, one.chunk) for plan in plans for one in plan.passes}:
        blocks = pass_ops(step, timed, kind, chunk)
        assert sum(block.repeats * len(block.ops) for block in blocks) == pass_of(timed, kind, chunk).ops
        for op, seconds, late_s in (op for block in blocks for op in block.ops):
            if not is_communication(op):
                assert (seconds, late_s) == (timed.costs.price(op), 0.0), op.name
