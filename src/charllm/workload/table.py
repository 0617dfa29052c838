"""A step as flat columns, for parquet and for anyone who wants to query it."""

from typing import Any

from charllm.workload.memory import KINDS, stage_memories
from charllm.workload.step import Step
from charllm.workload.totals import stage_ops

Columns = dict[str, list[Any]]


def tabulate_step(step: Step) -> dict[str, Columns]:
    """Return every op of every stage, and the memory of every stage."""
    return {"ops": tabulate_ops(step), "memory": tabulate_memory(step)}


def tabulate_ops(step: Step) -> Columns:
    """Return every op of every stage, with how often it runs in a step."""
    columns: Columns = {
        name: []
        for name in (
            "stage",
            "phase",
            "op",
            "kind",
            "group",
            "times",
            "flop",
            "read_bytes",
            "written_bytes",
            "message_bytes",
            "sent_bytes",
            "precision",
        )
    }
    for stage in range(step.run.parallelism.pp):
        for op, times, phase in stage_ops(step, stage):
            row = (
                stage,
                phase,
                op.name,
                op.kind,
                op.group,
                times,
                op.flop,
                op.read_bytes,
                op.written_bytes,
                op.message_bytes,
                op.sent_bytes,
                op.precision,
            )
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
    return columns


def tabulate_memory(step: Step) -> Columns:
    """Return the memory of every stage, by kind."""
    memories = stage_memories(step)
    columns: Columns = {"stage": [memory.stage for memory in memories]}
    for kind in KINDS:
        columns[f"{kind}_bytes"] = [memory.by_kind()[kind] for memory in memories]
    columns["total_bytes"] = [memory.total_bytes for memory in memories]
    return columns
