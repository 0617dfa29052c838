"""What a placement moves, and where to: units of ranks that share a node's links, onto slot groups of as many GPUs.

A unit is the ranks of one stage that exchange tensors, sequences or experts inside a node: they stay together. A slot
group is as many slots of one node. A node's slots are ordered by speed and cut in that order: a unit is paced by its
slowest GPU, and of all ways to cut a node into slot groups this one has the fastest slowest GPUs (the k-th fastest
group of any other cut is no faster than the k-th of this one).
"""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.layout.grid import Grid, Ranks, cached_groups
from charllm.layout.placement import place_ranks
from charllm.spec.run import RunSpec

TOGETHER = ("tp", "cp", "etp", "ep")
"""Groups whose members stay on one node where they are on one."""


class Units(NamedTuple):
    """The ranks of each unit: [stage, line, place]. A line is the units that hand microbatches on to each other."""

    ranks: Ranks
    node: Ranks
    """[stage, line] where each is placed in the run as it is."""

    @property
    def size(self) -> int:
        """Ranks of a unit."""
        return int(self.ranks.shape[2])


class SlotGroup(NamedTuple):
    """GPUs of one node that one unit takes."""

    node: int
    gpus: tuple[int, ...]


def find_units(run: RunSpec) -> Units | None:
    """Cut the ranks of a run into units; None where they are not of one size that divides a node."""
    grid, placed, per_node = Grid(run.parallelism), place_ranks(run), run.cluster.node.gpus
    label = np.arange(run.parallelism.world)
    for group in TOGETHER:
        for members in cached_groups(run.parallelism, group):
            for node in np.unique(placed[members] // per_node):
                own = np.unique(label[members[placed[members] // per_node == node]])
                label[np.isin(label, own)] = own[0]
    labels, counts = np.unique(label, return_counts=True)
    if len(set(counts.tolist())) > 1 or per_node % counts[0]:
        return None
    ranks = np.array([np.flatnonzero(label == one) for one in labels])
    order = np.lexsort((grid.position(ranks[:, 0]), grid.stage(ranks[:, 0])))
    ranks = ranks[order].reshape(run.parallelism.pp, -1, int(counts[0]))
    nodes = placed[ranks] // per_node
    return Units(ranks, nodes[:, :, 0]) if np.all(nodes == nodes[:, :, :1]) else None


def cut_slot_groups(run: RunSpec, size: int, slowness: Floats) -> list[SlotGroup]:
    """Cut every node into groups of slots, from fastest to slowest; packages stay whole where they fit."""
    per_node, package = run.cluster.node.gpus, run.cluster.gpu.package_gpus
    whole = package if size % package == 0 else 1
    slot_groups = []
    for node in range(run.cluster.nodes):
        gpus = node * per_node + np.arange(per_node)
        of_package = slowness[gpus].reshape(-1, whole).max(axis=1)
        order = np.argsort(of_package, kind="stable")
        row = gpus.reshape(-1, whole)[order].reshape(-1, size)
        slot_groups += [SlotGroup(node, tuple(sorted(one))) for one in row.tolist()]
    return slot_groups


def place_units(run: RunSpec, units: Units, group_of_unit: list[SlotGroup]) -> tuple[int, ...]:
    """Return the GPU of each rank when the units, stage after stage, take these slot groups."""
    placed = place_ranks(run).copy()
    for ranks, group in zip(units.ranks.reshape(-1, units.size), group_of_unit, strict=True):
        placed[ranks] = group.gpus
    return tuple(placed.tolist())
