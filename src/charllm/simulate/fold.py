"""Which GPUs have to be simulated: replicas whose ranks sit in equal slots do the same, and are simulated once.

A replica is one position of every data-parallel rank in all stages. Two are equal when each of their ranks has the same
slot of a node with the same inlet and flow, and the same stages work in the slots that warm it: those upstream, and
those of its package, or all of a node whose fans follow them, under the same caps. With silicon spread, mixed nodes,
staggered replicas, or a GPU, link or host that differs from the others by more than its cap, none are.
"""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.layout.grid import GROUPS, Grid, cached_groups
from charllm.layout.nodes import flow_fractions, inlets_c
from charllm.layout.placement import place_ranks
from charllm.spec.hardware import Node
from charllm.spec.run import RunSpec

ABSENT = -1
"""Place of a position that is not simulated."""


class Fold(NamedTuple):
    """The positions that are simulated, and whom each stands for."""

    positions: Ints
    """Simulated positions of a stage."""
    weights: Floats
    """How many positions each stands for."""
    begin_s: Floats
    """How long after the first replica that of each simulated position begins a step: evenly one after another."""
    representative: Ints
    """[position] which of the simulated ones stands for it."""
    members: Ints
    """[group, place] simulated positions, group after group, for each of GROUPS."""
    offsets: Ints
    """[group, row] where each group begins in `members`."""


def fold_run(run: RunSpec) -> Fold:
    """Choose one replica of each kind."""
    grid = Grid(run.parallelism)
    data = _data_index(grid)
    chosen, of_replica = _kinds_of_replica(run, grid, data)
    kept = np.flatnonzero(np.isin(data, chosen))
    counts = np.bincount(of_replica, minlength=len(chosen)).astype(np.float64)
    place_of = np.full(grid.positions, ABSENT, dtype=np.int64)
    place_of[kept] = np.arange(len(kept))
    members = _members(data)
    own_place = np.empty(grid.positions, dtype=np.int64)
    own_place[members] = np.arange(members.shape[1])
    representative = place_of[members[chosen[of_replica[data]], own_place]]
    begin_s = run.conditions.replica_stagger_s * data[kept] / max(1, run.parallelism.dp - 1)
    weights = counts[of_replica[data[kept]]]
    return Fold(kept, weights, begin_s, representative, *_kept_groups(run, grid, place_of))


def _data_index(grid: Grid) -> Ints:
    """Return the data-parallel index of each position."""
    rows = cached_groups(grid.parallelism, "dp")
    index = np.empty(grid.positions, dtype=np.int64)
    index[grid.position(rows[: len(rows) // grid.parallelism.pp])] = np.arange(rows.shape[1])
    return index


def _members(data: Ints) -> Ints:
    """Return the positions of each replica, [replica, place]."""
    return np.argsort(data, kind="stable").reshape(int(data.max()) + 1, -1)


def _kinds_of_replica(run: RunSpec, grid: Grid, data: Ints) -> tuple[Ints, Ints]:
    """Return a replica of each kind, and which kind each replica is."""
    replicas = int(data.max()) + 1
    asked = run.conditions
    differ = asked.silicon_spread_fraction > 0 or asked.differs_beyond_caps or asked.replica_stagger_s > 0
    if differ or run.cluster.mixed or replicas == 1:
        return np.arange(replicas), np.arange(replicas)
    surroundings = _surroundings(run, grid)
    by_replica = surroundings[:, _members(data)].transpose(1, 0, 2).reshape(replicas, -1)
    _, chosen, kind = np.unique(by_replica, axis=0, return_index=True, return_inverse=True)
    return chosen, np.asarray(kind).ravel()


def _surroundings(run: RunSpec, grid: Grid) -> Ints:
    """Return a number for [stage, position] that tells slots, and who works upstream of them, apart."""
    node, degrees = run.cluster.node, run.parallelism
    stages, positions = np.arange(degrees.pp)[:, None], np.arange(grid.positions)[None, :]
    gpus = place_ranks(run)[grid.rank(positions, stages)]
    caps = _cap_numbers(run)
    works_on = np.empty(run.cluster.gpus, dtype=np.int64)
    works_on[gpus] = stages + degrees.pp * caps[gpus]
    airs = np.stack([inlets_c(run.cluster), flow_fractions(run.cluster)])
    _, inlet = np.unique(airs, axis=1, return_inverse=True)
    code = gpus % node.gpus + node.gpus * (inlet.ravel()[gpus // node.gpus] + run.cluster.nodes * caps[gpus])
    nobody = works_on.max() + 1
    shared_fans = run.cluster.cooling.fans != "fixed"
    warming = [_warming_slots(node, slot, shared_fans=shared_fans) for slot in range(node.gpus)]
    for depth in range(max(map(len, warming))):
        of_slot = np.array([(*slots, *([-1] * node.gpus))[depth] for slots in warming])
        beside = of_slot[gpus % node.gpus]
        seen = np.where(beside >= 0, works_on[gpus // node.gpus * node.gpus + np.maximum(beside, 0)], nobody)
        # Renumbered each time, so that codes of many neighbours stay small.
        code = np.unique(code * (1 + nobody) + seen, return_inverse=True)[1].reshape(code.shape)
    return code


def _cap_numbers(run: RunSpec) -> Ints:
    """Return a number for each GPU of the cluster that tells caps apart."""
    numbers, caps = np.zeros(run.cluster.gpus, dtype=np.int64), run.caps
    places = {cap: place for place, cap in enumerate(dict.fromkeys(caps.values()), start=1)}
    numbers[list(caps)] = [places[cap] for cap in caps.values()]
    return numbers


def _warming_slots(node: Node, slot: int, *, shared_fans: bool) -> tuple[int, ...]:
    """List the slots whose heat reaches this one, by air or through a shared sink, or turns its fans up."""
    if shared_fans:
        return tuple(other for other in range(node.gpus) if other != slot)
    first = slot - slot % node.gpu.package_gpus
    mates = (mate for mate in range(first, first + node.gpu.package_gpus) if mate != slot)
    return (*node.upstream_slots(slot), *mates)


def _kept_groups(run: RunSpec, grid: Grid, place_of: Ints) -> tuple[Ints, Ints]:
    """List the groups of a stage by simulated positions only; the others do as those that stand for them."""
    count = int(np.count_nonzero(place_of >= 0))
    members = np.zeros((len(GROUPS), count), dtype=np.int64)
    offsets = np.zeros((len(GROUPS), count + 1), dtype=np.int64)
    for place, group in enumerate(GROUPS):
        if group == "pp":
            continue
        rows = cached_groups(run.parallelism, group)
        places = place_of[grid.position(rows[: len(rows) // run.parallelism.pp])]
        sizes = np.count_nonzero(places >= 0, axis=1)
        ends = np.cumsum(sizes[sizes > 0])
        members[place, : ends[-1]] = places[places >= 0]
        offsets[place, 1 : len(ends) + 1] = ends
        offsets[place, len(ends) + 1 :] = ends[-1]
    return members, offsets
