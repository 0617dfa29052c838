"""A timeline for one rank out of a spec alone: plain 1F1B with simple estimates.

Compute is left to the GPU that plays it. Lengths of communication and waits are estimated: bytes over bandwidth, and
stages of equal length that keep a fixed share of peak.

Ignores: everything a simulated timeline will know (contention, message sizes, uneven stages, jitter).
"""

from typing import Any, NamedTuple

from charllm.errors import SpecError
from charllm.layout.grid import Grid
from charllm.layout.links import group_links
from charllm.measure.emulation.kernels import kernel_items
from charllm.measure.kernels.shape import KernelShape, work
from charllm.spec.run import RunSpec
from charllm.timeline.play import Item, PlayTimeline, Segment
from charllm.workload.op import MATRIX_KINDS, Op, is_communication
from charllm.workload.step import Block, Step, build_step
from charllm.workload.sync import gathers_once, layer_gather, layer_reduce, optimizer_ops, step_sync
from charllm.workload.totals import AXIS_OF_GROUP

MATRIX_FRACTION, ATTENTION_FRACTION, MEMORY_FRACTION, LINK_FRACTION = 0.68, 0.5, 0.85, 0.75
"""Assumed: shares of peak that products, attention, streams and links reach, for estimating waits."""
LATENCY_S = 15e-6
CHANNELS, P2P_CHANNELS = 24, 4
"""Assumed: blocks that a collective and a point-to-point transfer occupy (NCCL's usual choice inside a node)."""


class _Pass(NamedTuple):
    """One microbatch through this rank's stage in one direction."""

    segments: tuple[Segment, ...]
    estimated_s: float


def generate_timeline(run: RunSpec, rank: int) -> PlayTimeline:
    """Return one step of one rank under 1F1B."""
    if not 0 <= rank < run.parallelism.world:
        raise SpecError("--rank", rank, f"0 to {run.parallelism.world - 1}")
    if run.parallelism.schedule not in ("1f1b", "zero-bubble"):
        raise SpecError("parallelism.schedule", run.parallelism.schedule, "1f1b; for others give --timeline FILE")
    step = build_step(run)
    stage = int(Grid(run.parallelism).stage(rank))
    forward, backward = _forward(step, stage), _backward(step, stage)
    segments = (*_begin(step, stage), *_one_f_one_b(run, stage, forward, backward), *_finish(step, stage))
    tokens = run.tokens_per_step // run.parallelism.dp
    return PlayTimeline(rank, run.as_table(), tuple(_merged(segments)), tokens)


def _one_f_one_b(run: RunSpec, stage: int, forward: _Pass, backward: _Pass) -> list[Segment]:
    """Order the passes of a stage; waits add up to (p - 1)(f + b), as the schedule's bubble must."""
    later, microbatches = run.parallelism.pp - stage - 1, run.microbatches
    ahead = min(later + 1, microbatches)
    segments = [_wait(stage * forward.estimated_s)]
    for _ in range(ahead):
        segments += forward.segments
    # With fewer microbatches than stages to come, the first one's way there is waited for too.
    segments.append(_wait((later + 1 - ahead) * forward.estimated_s + later * backward.estimated_s))
    segments += backward.segments
    for _ in range(microbatches - ahead):
        segments += (*forward.segments, *backward.segments)
    for _ in range(ahead - 1):
        segments += (_wait(forward.estimated_s), *backward.segments)
    return [*segments, _wait(stage * backward.estimated_s)]


def _forward(step: Step, stage: int) -> _Pass:
    segments = [_segment(step, block, "forward", _forward_ops(step, block)) for block in step.stage_blocks(stage)]
    return _with_boundary(step, segments, last=stage == step.run.parallelism.pp - 1)


def _backward(step: Step, stage: int) -> _Pass:
    segments = [
        _segment(step, block, "backward", _backward_ops(step, block)) for block in reversed(step.stage_blocks(stage))
    ]
    return _with_boundary(step, segments, last=stage == 0)


def _forward_ops(step: Step, block: Block) -> tuple[Op, ...]:
    return (*_gathered(step, block), *(op for module in block.modules for op in module.forward))


def _backward_ops(step: Step, block: Block) -> tuple[Op, ...]:
    backward = tuple(op for module in reversed(block.modules) for op in module.backward)
    reduced = () if gathers_once(step.run) else layer_reduce(step, block)
    return (*_gathered(step, block), *block.replay.ops, *backward, *reduced)


def _gathered(step: Step, block: Block) -> tuple[Op, ...]:
    return () if gathers_once(step.run) else layer_gather(step, block)


def _with_boundary(step: Step, segments: list[Segment], *, last: bool) -> _Pass:
    estimated = sum(segment.repeat * sum(_estimate(step, item) for item in segment.items) for segment in segments)
    if not last:
        segments = [*segments, *(_segment_of(step, "boundary", op) for op in step.boundary_ops)]
    return _Pass(tuple(segments), estimated)


def _segment(step: Step, block: Block, direction: str, ops: tuple[Op, ...]) -> Segment:
    items = tuple(item for op in ops for item in _items(step, op))
    return Segment(f"{block.name} {direction}", block.repeats, items)


def _segment_of(step: Step, label: str, op: Op) -> Segment:
    return Segment(label, 1, tuple(_items(step, op)))


def _items(step: Step, op: Op) -> list[Item]:
    return [_communication(step, op)] if is_communication(op) else kernel_items(step.run, op)


def _communication(step: Step, op: Op) -> Item:
    """A transfer of an estimated length: hidden on its own stream where the axis overlaps, in the way otherwise."""
    axis = AXIS_OF_GROUP[op.group]
    overlapped = axis in step.run.parallelism.overlap
    return Item(
        "communication",
        op.name,
        stream=axis if overlapped else "compute",
        duration_s=transfer_s(step.run, op),
        blocks=P2P_CHANNELS if op.kind == "send" else CHANNELS,
        joins=() if overlapped else (axis,),
    )


def transfer_s(run: RunSpec, op: Op) -> float:
    """Estimate a transfer: its bytes over the slowest link it crosses, shared by the rings that leave with it."""
    links = group_links(run, op.group)
    node, fabric = run.cluster.node, run.cluster.fabric
    if links.ring_links["nic"] > 0:
        shared = max(1, links.ring_flows_per_nic)
        bandwidth = fabric.nic_bandwidth_bytes_per_s / shared
    else:
        bandwidth = node.link_bandwidth_bytes_per_s or node.pcie_bandwidth_bytes_per_s
    return LATENCY_S + op.sent_bytes / (bandwidth * LINK_FRACTION)


def _estimate(step: Step, item: Item) -> float:
    """Estimate one item's length, for the waits of other stages."""
    if item.kind != "kernel":
        return item.duration_s if item.stream == "compute" else 0.0
    gpu = step.run.cluster.gpu
    flop, size_bytes = work(KernelShape(*item.shape))
    kind = item.shape[0]
    fraction = ATTENTION_FRACTION if kind.startswith("attention") else MATRIX_FRACTION
    peak = gpu.peak_flop_per_s(item.shape[2]) or gpu.peak_bf16_flop_per_s
    arithmetic = flop / (fraction * peak) if kind.startswith("attention") or kind in MATRIX_KINDS else 0.0
    return max(arithmetic, size_bytes / (MEMORY_FRACTION * gpu.memory_bandwidth_bytes_per_s))


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
