"""Add a step up over all ranks: flop, bytes by axis and by link, message sizes.

Equation: sent bytes of an op x how often a rank runs it x ranks; shared out over links as its hops cross them
(layout/links.py).
Ignores: acknowledgements and headers of links.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from charllm.layout.grid import ENDS, WORLD, Grid
from charllm.layout.links import LINKS, group_links, hop_links
from charllm.spec.parallelism import OVERLAPS
from charllm.workload.op import Op, is_communication
from charllm.workload.step import Block, Step
from charllm.workload.sync import (
    cut_buckets,
    gather_times,
    gathers_once,
    layer_gather,
    layer_reduce,
    optimizer_ops,
    step_sync,
)

AXIS_OF_GROUP = {
    "tp": "tp",
    "cp": "cp",
    "pp": "pp",
    "ep": "ep",
    "etp": "ep",
    "dp": "dp",
    "data": "dp",
    "shard": "dp",
    "replicate": "dp",
    "regather": "dp",
    "edp": "dp",
    WORLD: "dp",
    ENDS: "pp",
}
"""The axis that a group's communication is charged to."""


class Repeated(NamedTuple):
    """An op and how often one rank of a stage runs it in a step."""

    op: Op
    times: float
    phase: str
    """forward, backward, recompute or step."""


def stage_ops(step: Step, stage: int) -> Iterator[Repeated]:
    """List every op one rank of a stage runs in a step, boundary sends apart."""
    for block in step.stage_blocks(stage):
        yield from _block_ops(step, block)
    for op in step_sync(step, stage):
        for bucket, times in cut_buckets(step, op):
            yield Repeated(bucket, float(times), "step")
    for op in optimizer_ops(step, stage):
        yield Repeated(op, 1.0, "step")


def _block_ops(step: Step, block: Block) -> Iterator[Repeated]:
    passes = float(block.repeats * step.run.microbatches)
    gathers, gathered = float(block.repeats * gather_times(step)), layer_gather(step, block)
    reduced = layer_reduce(step, block)
    for module in block.modules:
        for op in module.forward:
            yield Repeated(op, passes, "forward")
        for op in module.backward:
            yield Repeated(op, passes, "backward")
    for op in block.replay.ops:
        yield Repeated(op, passes, "recompute")
    for op in gathered:
        yield Repeated(op, gathers, "forward")
    for op in (*(() if gathers_once(step.run) else layer_gather(step, block, "backward")), *reduced):
        yield Repeated(op, gathers, "backward")


class Traffic(NamedTuple):
    """What ranks send each other in a step, all ranks, counted once at the sender."""

    axis_bytes: dict[str, float]
    link_bytes: dict[str, float]
    axis_link_bytes: dict[str, dict[str, float]]
    message_bytes_median: dict[str, float | None]
    messages: dict[str, float]


def executed_flop(step: Step) -> float:
    """Add up the matrix arithmetic of a step as executed, over all ranks."""
    return sum(
        op.flop * times * ranks
        for stage, ranks in _stages(step)
        for op, times, _phase in stage_ops(step, stage)
        if op.flop
    )


def _stages(step: Step) -> list[tuple[int, int]]:
    """Fold stages that execute the same: (one of them, ranks they have together)."""
    degrees = step.run.parallelism
    positions = degrees.tp * degrees.cp * degrees.dp
    folded: dict[tuple[int, ...], list[int]] = {}
    for stage in range(degrees.pp):
        key = (*(id(chunk.blocks) for chunk in step.stage_chunks(stage)),)
        folded.setdefault(key, []).append(stage)
    return [(stages[0], positions * len(stages)) for stages in folded.values()]


def count_traffic(step: Step) -> Traffic:
    """Add up what is sent in a step, by axis and by link, with the median message of each axis."""
    axis_link: dict[str, dict[str, float]] = {axis: dict.fromkeys(LINKS, 0.0) for axis in OVERLAPS}
    sizes: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    for stage, ranks in _stages(step):
        for op, times, _phase in stage_ops(step, stage):
            if is_communication(op):
                axis = AXIS_OF_GROUP[op.group]
                _add(axis_link[axis], _op_links(step, op), op.sent_bytes * times * ranks)
                sizes[axis][op.message_bytes] += times * ranks
    for op in step.boundary_ops:
        for links, times in _boundaries(step):
            _add(axis_link["pp"], links, op.sent_bytes * times)
            sizes["pp"][op.message_bytes] += times
    return Traffic(
        axis_bytes={axis: sum(links.values()) for axis, links in axis_link.items()},
        link_bytes={link: sum(links[link] for links in axis_link.values()) for link in LINKS},
        axis_link_bytes=axis_link,
        message_bytes_median={axis: _weighted_median(sizes[axis]) if axis in sizes else None for axis in OVERLAPS},
        messages={axis: sum(sizes[axis].values()) if axis in sizes else 0.0 for axis in OVERLAPS},
    )


def _add(totals: dict[str, float], fractions: dict[str, float], size_bytes: float) -> None:
    for link, fraction in fractions.items():
        totals[link] += fraction * size_bytes


def _op_links(step: Step, op: Op) -> dict[str, float]:
    if op.group == ENDS:
        return _ends_links(step)
    links = group_links(step.run, op.group)
    return links.pair_links if op.kind == "all_to_all" else links.ring_links


def _ends_links(step: Step) -> dict[str, float]:
    """First and last stage, which share a tied embedding."""
    return _stage_hop(step, 0, step.run.parallelism.pp - 1)


def _stage_hop(step: Step, sender: int, receiver: int) -> dict[str, float]:
    grid = Grid(step.run.parallelism)
    positions = np.arange(grid.positions)
    return hop_links(step.run, grid.rank(positions, sender), grid.rank(positions, receiver))


def _boundaries(step: Step) -> Iterator[tuple[dict[str, float], float]]:
    """List the hops between neighbouring chunks: link fractions, and sends over them in a step (both directions)."""
    degrees = step.run.parallelism
    sends = 2.0 * step.run.microbatches * degrees.tp * degrees.cp * degrees.dp
    hops: dict[tuple[int, int], int] = defaultdict(int)
    for chunk in range(degrees.pp * degrees.vpp - 1):
        hops[chunk % degrees.pp, (chunk + 1) % degrees.pp] += 1
    for (sender, receiver), times in hops.items():
        yield _stage_hop(step, sender, receiver), sends * times


def _weighted_median(counts: dict[float, float]) -> float:
    sizes = sorted(counts)
    half, seen = sum(counts.values()) / 2, 0.0
    for size in sizes:
        seen += counts[size]
        if seen >= half:
            return size
    return sizes[-1]
