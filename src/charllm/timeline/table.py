"""The timeline of a step as flat columns, for pandas, parquet and plots."""

from collections.abc import Iterator
from typing import Any

from charllm.timeline.stage_plan import DIRECTIONS, StagePlan, plan_stage
from charllm.timeline.step_time import StepTime
from charllm.workload.memory import first_rank
from charllm.workload.step import Step

COLUMNS = ("stage", "rank", "activity", "chunk", "microbatch", "start_s", "end_s")


def tabulate_timeline(step: Step, timed: StepTime) -> dict[str, list[Any]]:
    """Return what the first rank of each stage does in a step, by start.

    An activity is a pass (forward, backward, weight) of a microbatch, or a label of the breakdown: bubble, pp_exposed,
    straggler_wait, dp_exposed, optimizer, overhead.
    """
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for stage in range(step.run.parallelism.pp):
        rank = first_rank(step.run, stage)
        for row in sorted(_activities(plan_stage(step, timed, stage)), key=lambda row: (row[3], row[4])):
            for column, value in zip(columns.values(), (stage, rank, *row), strict=True):
                column.append(value)
    return columns


def tabulate_breakdown(timed: StepTime) -> dict[str, list[Any]]:
    """Return where the seconds of each stage go, one row a stage and label; those of a stage add up to the step."""
    rows = [(stage, label, seconds) for stage, labels in enumerate(timed.stages) for label, seconds in labels.items()]
    return {name: [row[place] for row in rows] for place, name in enumerate(("stage", "label", "seconds"))}


def _activities(plan: StagePlan) -> Iterator[tuple[str, int | None, int | None, float, float]]:
    for one in plan.passes:
        yield DIRECTIONS[one.kind], one.chunk, one.microbatch, one.start_s, one.end_s
    for part in (*plan.waits, *plan.ending):
        yield part.label, None, None, part.start_s, part.end_s
