"""A step as flat columns, for parquet and for anyone who wants to query it."""

from typing import Any

from charllm.workload.memory import KINDS, stage_memories
from charllm.workload.step import Step
from charllm.workload.totals import stage_ops

Columns = dict[str, list[Any]]
OP_COLUMNS = (
    "stage", "phase", "op", "kind", "group", "times", "flop", "read_bytes", "written_bytes", "message_bytes",
    "sent_bytes", "precision",
)  # fmt: skip


def tabulate_ops(step: Step) -> Columns:
    """Return every op of every stage, with how often it runs in a step."""
    rows = [
        (stage, phase, op.name, op.kind, op.group, times, op.flop, op.read_bytes, op.written_bytes, op.message_bytes,
         op.sent_bytes, op.precision)
        for stage in range(step.run.parallelism.pp)
        for op, times, phase in stage_ops(step, stage)
    ]  # fmt: skip
    return {name: list(column) for name, column in zip(OP_COLUMNS, zip(*rows, strict=True), strict=True)}


def tabulate_memory(step: Step) -> Columns:
    """Return the memory of every stage, by kind."""
    memories = stage_memories(step)
    columns: Columns = {name: [getattr(memory, name) for memory in memories] for name in ("stage", "rank")}
    kinds = [memory.by_kind() for memory in memories]
    for kind in KINDS:
        columns[f"{kind}_bytes"] = [one[kind] for one in kinds]
    for name in ("total_bytes", "need_bytes", "gpu_bytes"):
        columns[name] = [getattr(memory, name) for memory in memories]
    return columns
