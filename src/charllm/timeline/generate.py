"""One rank's step as something that can be played: passes in the order of the schedule, waits as the events say.

Compute is left to the GPU that plays it. Communication has the length that the cost model gives it, on its own stream
where it hides under compute; waits between passes are those of the simulated step.

Ignores: that the played kernels may take longer or shorter than the simulated ones, which would move the waits.
"""

from typing import Any

from charllm.cost.calibration import CALIBRATION
from charllm.cost.collectives import price_collective, price_send
from charllm.errors import SpecError
from charllm.layout.grid import Grid
from charllm.layout.hops import stage_hops
from charllm.spec.run import RunSpec
from charllm.timeline.kernels import kernel_items
from charllm.timeline.play import Item, PlayTimeline, Segment
from charllm.timeline.schedules import BACKWARD, FORWARD, WEIGHT, order_arrays
from charllm.timeline.step_time import StepTime, time_step
from charllm.workload.op import Op, is_communication
from charllm.workload.step import Block, Chunk, Step, build_step
from charllm.workload.sync import gathers_once, layer_gather, layer_reduce, optimizer_ops, step_sync
from charllm.workload.totals import AXIS_OF_GROUP

CHANNELS, P2P_CHANNELS = 24, 4
"""Assumed: blocks that a collective and a point-to-point transfer occupy (NCCL's usual choice inside a node)."""


def generate_timeline(run: RunSpec, rank: int) -> PlayTimeline:
    """Return one simulated step of one rank."""
    if not 0 <= rank < run.parallelism.world:
        raise SpecError("--rank", rank, f"0 to {run.parallelism.world - 1}")
    step = build_step(run)
    stage = int(Grid(run.parallelism).stage(rank))
    segments = (*_begin(step, stage), *_passes(step, stage, time_step(step)), *_finish(step, stage))
    tokens = run.tokens_per_step // run.parallelism.dp
    return PlayTimeline(rank, run.as_table(), tuple(_merged(segments)), tokens)


def _passes(step: Step, stage: int, timed: StepTime) -> list[Segment]:
    """List the passes of a stage with the waits between them, and the wait for the last stage at the end."""
    run, events = step.run, timed.events
    degrees = run.parallelism
    order = order_arrays(degrees.schedule, degrees.pp, degrees.vpp, run.microbatches)[stage]
    played = {chunk: _chunk_passes(step, stage, chunk) for chunk in sorted({int(item[1]) for item in order})}
    segments: list[Segment] = []
    free_s = 0.0
    for place, (kind, chunk, _microbatch) in enumerate(order.tolist()):
        segments.append(_wait(float(events.start_s[stage, place]) - free_s))
        segments += played[chunk][kind]
        last = place == len(order) - 1
        # Blocking sends are played as items, so that the stage is free when the next pass could begin.
        free_s = float(events.free_s[stage] if last else events.end_s[stage, place] + _sent_s(step, stage, kind, chunk))
    return [*segments, _wait(float(max(events.free_s)) - free_s)]


def _chunk_passes(step: Step, stage: int, chunk: int) -> dict[int, list[Segment]]:
    """Return the segments of each pass of one chunk, its send to the neighbour included."""
    held: Chunk = step.chunks[chunk]
    split = step.run.parallelism.schedule == "zero-bubble"
    found: dict[int, list[Segment]] = {FORWARD: [], BACKWARD: [], WEIGHT: []}
    for block in held.blocks:
        found[FORWARD].append(_segment(step, block, "forward", _forward_ops(step, block)))
    for block in reversed(held.blocks):
        ops = _backward_ops(step, block)
        weight = tuple(op for op in ops if split and op.name.endswith("wgrad"))
        rest = tuple(op for op in ops if not (split and op.name.endswith("wgrad")))
        found[BACKWARD].append(_segment(step, block, "backward", rest))
        found[WEIGHT].append(_segment(step, block, "weight", weight))
    for kind in (FORWARD, BACKWARD):
        length_s = _hop_s(step, stage, kind, chunk)
        if length_s:
            found[kind].append(Segment("boundary", 1, (_send(step, length_s),)))
    return found


def _hop_s(step: Step, stage: int, kind: int, chunk: int) -> float:
    """Return how long a pass's output takes to the neighbouring stage; 0 where there is none."""
    pp, last = step.run.parallelism.pp, len(step.chunks) - 1
    if pp == 1 or not step.boundary_ops or chunk == (last if kind == FORWARD else 0):
        return 0.0
    hop = stage if kind == FORWARD else (stage - 1) % pp
    size_bytes = sum(op.sent_bytes for op in step.boundary_ops)
    return price_send(size_bytes, stage_hops(step.run)[hop], step.run, CALIBRATION)


def _sent_s(step: Step, stage: int, kind: int, chunk: int) -> float:
    """Return how long a pass's send keeps the stage: nothing where sends overlap."""
    if kind == WEIGHT or "pp" in step.run.parallelism.overlap:
        return 0.0
    return _hop_s(step, stage, kind, chunk)


def _send(step: Step, length_s: float) -> Item:
    stream = "pp" if "pp" in step.run.parallelism.overlap else "compute"
    return Item("communication", "send", stream=stream, duration_s=length_s, blocks=P2P_CHANNELS)


def _forward_ops(step: Step, block: Block) -> tuple[Op, ...]:
    return (*_gathered(step, block), *(op for module in block.modules for op in module.forward))


def _backward_ops(step: Step, block: Block) -> tuple[Op, ...]:
    backward = tuple(op for module in reversed(block.modules) for op in module.backward)
    reduced = () if gathers_once(step.run) else layer_reduce(step, block)
    return (*_gathered(step, block), *block.replay.ops, *backward, *reduced)


def _gathered(step: Step, block: Block) -> tuple[Op, ...]:
    return () if gathers_once(step.run) else layer_gather(step, block)


def _segment(step: Step, block: Block, direction: str, ops: tuple[Op, ...]) -> Segment:
    items = tuple(item for op in ops for item in _items(step, op))
    return Segment(f"{block.name} {direction}", block.repeats, items)


def _items(step: Step, op: Op) -> list[Item]:
    return [_communication(step, op)] if is_communication(op) else kernel_items(step.run, op)


def _communication(step: Step, op: Op) -> Item:
    """A transfer as long as it is priced: on its own stream where its axis overlaps, in the way otherwise."""
    axis = AXIS_OF_GROUP[op.group]
    # Sharded weights are gathered ahead, under the layer before.
    overlapped = axis in step.run.parallelism.overlap or (axis == "dp" and step.run.parallelism.zero == 3)
    return Item(
        "communication",
        op.name,
        stream=axis if overlapped else "compute",
        duration_s=transfer_s(step.run, op),
        blocks=CHANNELS,
        joins=() if overlapped else (axis,),
    )


def transfer_s(run: RunSpec, op: Op) -> float:
    """Return the length of a collective; a tied embedding's exchange is one hop between the ends."""
    kind = "send" if op.group == "pp" else op.kind
    return price_collective(op._replace(kind=kind), run, CALIBRATION)


def _begin(step: Step, stage: int) -> list[Segment]:
    """What begins a step: weights, where they are sharded and stay gathered."""
    if not gathers_once(step.run):
        return []
    blocks = step.stage_blocks(stage)
    return [_segment(step, block, "gather", layer_gather(step, block)) for block in blocks]


def _finish(step: Step, stage: int) -> list[Segment]:
    """What ends a step: gradients, weights, update."""
    reduced = [
        _segment(step, block, "reduce", layer_reduce(step, block))
        for block in reversed(step.stage_blocks(stage))
        if gathers_once(step.run)
    ]
    ops = (*step_sync(step, stage), *optimizer_ops(step, stage))
    items = tuple(item for op in ops for item in _items(step, op))
    return [*reduced, Segment("finish", 1, items)]


def _wait(length_s: float) -> Segment:
    return Segment("bubble", 1, (Item("wait", "bubble", duration_s=length_s, joins=("tp", "pp", "dp", "ep", "cp")),))


def _merged(segments: Any) -> list[Segment]:
    """Drop empty segments and waits, and fold equal neighbours."""
    merged: list[Segment] = []
    for segment in segments:
        if not segment.items or (segment.label == "bubble" and segment.items[0].duration_s <= 0):
            continue
        if merged and merged[-1].items is segment.items:
            merged[-1] = merged[-1]._replace(repeat=merged[-1].repeat + segment.repeat)
        else:
            merged.append(segment)
    return merged
