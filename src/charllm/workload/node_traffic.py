"""Bytes that nodes, and GPUs, send each other in a step, and those that a node waits for where a receiver is slow."""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.layout.grid import Grid, cached_groups
from charllm.layout.placement import place_ranks
from charllm.workload.op import is_communication
from charllm.workload.step import Step
from charllm.workload.totals import stage_ops


class NodeTraffic(NamedTuple):
    """What nodes send each other in a step, in bytes, [sender, receiver]; what stays inside a node is left out."""

    sent: Floats
    waited_for: Floats
    """What a receiver has to take before the sender is free: in an exchange all that its members send to it."""


def node_traffic(step: Step) -> NodeTraffic:
    """Return the bytes of a step from node to node.

    A ring leaves each node for the next one in order of numbers. An exchange reaches all pairs of its members alike,
    and ends for all of them when the last receiver has everything.
    Ignores: trees, whose nodes send to two others.
    """
    cluster = step.run.cluster
    alone, together = _traffic(step, place_ranks(step.run) // cluster.node.gpus, cluster.nodes)
    received = np.where(together > 0, together.sum(axis=0), 0.0)
    return NodeTraffic(alone + together, alone + received)


class GpuTraffic(NamedTuple):
    """What each GPU sends in a step, in bytes."""

    inside: Floats
    """To GPUs of its node, or of its scale-up domain."""
    outside: Floats
    """To other nodes: over PCIe to an adapter."""


def gpu_traffic(step: Step) -> GpuTraffic:
    """Return what each GPU of the cluster sends, by where it goes; rings run in order of numbers."""
    cluster = step.run.cluster
    sent = sum(_traffic(step, place_ranks(step.run), cluster.gpus))
    domains = np.arange(cluster.gpus) // (cluster.node.gpus * cluster.domain_nodes)
    near = domains[:, None] == domains[None, :]
    return GpuTraffic(np.where(near, sent, 0.0).sum(axis=1), np.where(near, 0.0, sent).sum(axis=1))


def _traffic(step: Step, placed: Ints, count: int) -> tuple[Floats, Floats]:
    """Return what places send each other, [sender, receiver]: alone, and in exchanges with all others of a group."""
    degrees = step.run.parallelism
    alone, together = np.zeros((2, count, count))
    sizes: dict[tuple[int, str, bool], float] = defaultdict(float)
    for stage in range(degrees.pp):
        for op, times, _phase in stage_ops(step, stage):
            if is_communication(op) and op.group != "pp":
                sizes[stage, op.group, op.kind == "all_to_all"] += op.sent_bytes * times
    for (stage, group, pairs), size_bytes in sizes.items():
        rows = cached_groups(degrees, group)
        mine = rows[stage * len(rows) // degrees.pp : (stage + 1) * len(rows) // degrees.pp]
        _add_group(together if pairs else alone, np.sort(placed[mine], axis=1), size_bytes, pairs=pairs)
    _add_boundaries(alone, step, placed)
    for traffic in (alone, together):
        np.fill_diagonal(traffic, 0.0)
    return alone, together


def _add_group(traffic: Floats, members: Ints, size_bytes: float, *, pairs: bool) -> None:
    """Add what the groups of one kind send: `members` are the nodes of each group's ranks, in order."""
    degree = members.shape[1]
    hops = range(1, degree) if pairs else range(1, min(2, degree))
    for hop in hops:
        np.add.at(traffic, (members, np.roll(members, -hop, axis=1)), size_bytes / len(hops))


def _add_boundaries(traffic: Floats, step: Step, placed: Ints) -> None:
    """Add what stages hand on to their neighbours, forward and back."""
    grid, degrees = Grid(step.run.parallelism), step.run.parallelism
    size_bytes = sum(op.sent_bytes for op in step.boundary_ops) * step.run.microbatches
    positions = np.arange(grid.positions)
    for chunk in range(degrees.pp * degrees.vpp - 1):
        ends = [placed[grid.rank(positions, place % degrees.pp)] for place in (chunk, chunk + 1)]
        np.add.at(traffic, (ends[0], ends[1]), size_bytes)
        np.add.at(traffic, (ends[1], ends[0]), size_bytes)
