"""A step as flat columns, for parquet and for anyone who wants to query it."""

from collections.abc import Sequence
from typing import Any

from charllm.spec.model import Model
from charllm.spec.run import RunSpec
from charllm.workload.liveness import in_flight
from charllm.workload.memory import StageMemory
from charllm.workload.memory_kinds import KINDS
from charllm.workload.parameters import parameter_table
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


def tabulate_memory(run: RunSpec, memories: Sequence[StageMemory]) -> Columns:
    """Return the memory of every stage, by kind, with its microbatches in flight: those of several chunks summed up."""
    flights = [dict.fromkeys(sum(one) for one in in_flight(run, memory.stage)) for memory in memories]
    columns: Columns = {
        "stage": [memory.stage for memory in memories],
        "rank": [memory.rank for memory in memories],
        "in_flight": ["+".join(map(str, counts)) for counts in flights],
    }
    kinds = [memory.by_kind() for memory in memories]
    for kind in KINDS:
        columns[f"{kind}_bytes"] = [one[kind] for one in kinds]
    for name in ("allocated_bytes", "reserved_bytes", "total_bytes", "need_bytes", "gpu_bytes"):
        columns[name] = [getattr(memory, name) for memory in memories]
    return columns


def tabulate_parameters(model: Model) -> Columns:
    """Return the weights of a model by kind: of each copy, in all, and those that one token meets."""
    rows = parameter_table(model)
    return {name: [getattr(row, name) for row in rows] for name in ("name", "each", "copies", "total", "active")}
