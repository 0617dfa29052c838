"""Ranks on a grid: each group of ranks that communicate is a slice of it.

Every rank has a stage (pp) and a position inside its stage. Positions are counted twice: the dense part of the
model reads them as (dp, cp, tp), the experts as (edp, ep, etp), each with its last axis innermost.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from charllm.spec.parallelism import Parallelism

Ranks = NDArray[np.int64]

DENSE_AXES = ("dp", "cp", "tp")
EXPERT_AXES = ("edp", "ep", "etp")
GROUPS = ("tp", "cp", "dp", "data", "shard", "replicate", "etp", "ep", "edp", "pp")
"""tp cp dp pp: one axis each. data: dp x cp, over which gradients are reduced, split into shard x replicate
when a copy is sharded over only some of it. etp ep edp: the experts' axes."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The degrees of a run, and the order in which they number the ranks."""

    parallelism: Parallelism

    @property
    def positions(self) -> int:
        """Ranks in one stage."""
        degrees = self.parallelism
        return degrees.tp * degrees.cp * degrees.dp

    @property
    def inner(self) -> int:
        """Neighbouring positions before the next stage begins in the numbering."""
        degrees = self.parallelism
        before_pp = degrees.order.split("-pp")[0].split("-") if not degrees.order.startswith("pp") else []
        sizes = {"tp": degrees.tp, "cp": degrees.cp, "ep": 1, "dp": degrees.dp}
        return int(np.prod([sizes[axis] for axis in before_pp], dtype=np.int64))

    def rank(self, position: Ranks | int, stage: Ranks | int) -> Ranks:
        """Number the rank at a position of a stage."""
        inner, pp = self.inner, self.parallelism.pp
        outer, within = np.divmod(position, inner)
        return np.asarray(within + inner * (stage + pp * outer))

    def stage(self, rank: Ranks | int) -> Ranks:
        """Return the stage a rank works on."""
        return np.asarray(rank) // self.inner % self.parallelism.pp

    def position(self, rank: Ranks | int) -> Ranks:
        """Return the position of a rank inside its stage."""
        inner, pp = self.inner, self.parallelism.pp
        outer, within = np.divmod(rank, inner * pp)
        return np.asarray(within % inner + inner * outer)

    def degree(self, group: str) -> int:
        """Return how many ranks a group of this kind has."""
        degrees = self.parallelism
        return {
            "tp": degrees.tp,
            "cp": degrees.cp,
            "dp": degrees.dp,
            "pp": degrees.pp,
            "data": degrees.data_ranks,
            "shard": degrees.shard_ranks,
            "replicate": degrees.data_ranks // degrees.shard_ranks,
            "ep": degrees.ep,
            "etp": degrees.etp,
            "edp": degrees.expert_data_ranks,
        }[group]

    def groups(self, group: str) -> Ranks:
        """List all groups of a kind: one row of ranks each."""
        if group == "pp":
            return self.rank(np.arange(self.positions)[:, None], np.arange(self.parallelism.pp)[None, :])
        rows = self._position_groups(group)
        stages = np.arange(self.parallelism.pp)[:, None, None]
        return self.rank(rows[None], stages).reshape(-1, rows.shape[1])

    def _position_groups(self, group: str) -> Ranks:
        degrees = self.parallelism
        positions = np.arange(self.positions, dtype=np.int64)
        if group in EXPERT_AXES:
            cube = positions.reshape(degrees.expert_data_ranks, degrees.ep, degrees.etp)
            axis = EXPERT_AXES.index(group)
            return np.moveaxis(cube, axis, -1).reshape(-1, cube.shape[axis])
        if group in DENSE_AXES:
            cube = positions.reshape(degrees.dp, degrees.cp, degrees.tp)
            axis = DENSE_AXES.index(group)
            return np.moveaxis(cube, axis, -1).reshape(-1, cube.shape[axis])
        data = positions.reshape(degrees.data_ranks, degrees.tp).T
        if group == "data":
            return data
        shard = degrees.shard_ranks
        split = data.reshape(degrees.tp, degrees.data_ranks // shard, shard)
        return split.reshape(-1, shard) if group == "shard" else np.swapaxes(split, 1, 2).reshape(-1, split.shape[1])


@lru_cache(maxsize=1024)
def cached_groups(parallelism: Parallelism, group: str) -> Ranks:
    """List all groups of a kind, remembered: the same degrees are asked for many times in a sweep."""
    rows = Grid(parallelism).groups(group)
    rows.setflags(write=False)
    return rows
