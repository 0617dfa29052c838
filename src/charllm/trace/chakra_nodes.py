"""A simulated step as Chakra execution traces, for simulators and tools that read them.

Two forms of the same nodes, one file per rank (chakra_writer.py): protobuf messages, each behind its length
(`et_def.proto` of mlcommons/chakra; ASTRA-sim reads them), and JSON as torch's ExecutionTraceObserver writes it, which
trace/execution.py reads back. Nodes depend on the one before them; what a framework overlaps is not said.

Ignores: tensors, and memory traffic beyond the bytes of an op.
"""

from collections.abc import Iterator
from typing import NamedTuple

from charllm.layout.grid import Grid
from charllm.timeline.schedules import BACKWARD, FORWARD
from charllm.timeline.stage_plan import DIRECTIONS, PlacedPass, plan_stage
from charllm.timeline.step_time import StepTime
from charllm.workload.messages import Message, list_calls, locate_message
from charllm.workload.op import Op, is_communication
from charllm.workload.step import Block, Step
from charllm.workload.sync import cut_buckets, gathers_once, layer_gather, layer_reduce, optimizer_ops, step_sync


class Node(NamedTuple):
    """One op of one rank, in order; a message where it communicates."""

    name: str
    seconds: float
    op: Op
    message: Message | None = None
    peer: int | None = None
    """The other rank of a send or receive between stages."""


def rank_nodes(step: Step, timed: StepTime, rank: int) -> Iterator[Node]:
    """List what one rank executes in a step: its passes in the order of the schedule, then exchange and update."""
    stage = int(Grid(step.run.parallelism).stage(rank))
    passes = plan_stage(step, timed, stage).passes
    first = {kind: next((one for one in passes if one.kind == kind), None) for kind in (FORWARD, BACKWARD)}
    for one in passes:
        gathers = not gathers_once(step.run) or _same_turn(one, first.get(one.kind))
        yield from _handed(step, timed, rank, one, "recv")
        for op in _pass_ops(step, one, gathers=gathers):
            yield from _nodes(step, timed, rank, op, DIRECTIONS[one.kind])
        yield from _handed(step, timed, rank, one, "send")
    for op in step_sync(step, stage):
        for bucket, times in cut_buckets(step, op):
            for _ in range(times):
                yield from _nodes(step, timed, rank, bucket, "step")
    for op in timed.costs.kernels.updates[stage] or optimizer_ops(step, stage):
        yield from _nodes(step, timed, rank, op, "step")


def _handed(step: Step, timed: StepTime, rank: int, one: PlacedPass, kind: str) -> Iterator[Node]:
    """List what a pass gets from the chunk before it, or gives to the one after it; back to front in backward."""
    onward = (one.kind == FORWARD) == (kind == "send")
    other = one.chunk + (1 if onward else -1)
    if one.kind not in (FORWARD, BACKWARD) or not 0 <= other < len(step.chunks):
        return
    grid = Grid(step.run.parallelism)
    peer = int(grid.rank(grid.position(rank), other % step.run.parallelism.pp))
    for op in step.boundary_ops:
        seconds = timed.costs.collective_s(op) if kind == "send" else 0.0
        message = locate_message(step, rank, op, kind)
        yield Node(f"{DIRECTIONS[one.kind]} {kind}", seconds, op, message, peer)


def _same_turn(one: PlacedPass, other: PlacedPass | None) -> bool:
    return other is not None and one.microbatch == other.microbatch


def _pass_ops(step: Step, one: PlacedPass, *, gathers: bool) -> Iterator[Op]:
    blocks = step.chunks[one.chunk].blocks
    for block in blocks if one.kind == FORWARD else tuple(reversed(blocks)):
        for _ in range(block.repeats):
            yield from _block_ops(step, block, one.kind, gathers=gathers)


def _block_ops(step: Step, block: Block, kind: int, *, gathers: bool) -> Iterator[Op]:
    if kind == FORWARD:
        yield from layer_gather(step, block) if gathers else ()
        for module in block.modules:
            yield from module.forward
    elif kind == BACKWARD:
        yield from layer_gather(step, block, "backward") if gathers and not gathers_once(step.run) else ()
        yield from block.replay.ops
        for module in reversed(block.modules):
            yield from module.backward
        yield from layer_reduce(step, block) if gathers else ()


def _nodes(step: Step, timed: StepTime, rank: int, op: Op, phase: str) -> Iterator[Node]:
    if not is_communication(op):
        yield Node(f"{phase} {op.name}", timed.costs.price(op), op)
        return
    calls = [kind for kind, times in list_calls(step, op) for _ in range(times)]
    for kind in calls:
        message = locate_message(step, rank, op, kind)
        yield Node(f"{phase} {op.name}", timed.costs.collective_s(op) / len(calls), op, message)
