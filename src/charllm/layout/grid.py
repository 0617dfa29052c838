"""Ranks on a grid: each group of ranks that communicate is a slice of it.

Every rank has a stage (pp) and a position inside its stage. The dense part of the model reads positions as
(tp, cp, dp), the experts read the same positions as (etp, ep, edp), both in the run's order of axes.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from charllm.arrays import Ints
from charllm.spec.parallelism import Parallelism

Ranks = Ints

DENSE_AXES = ("tp", "cp", "dp")
EXPERT_AXES = {"tp": "etp", "ep": "ep", "dp": "edp"}
"""An axis of the order: the axis the experts have in its place."""
GROUPS = ("tp", "cp", "dp", "data", "shard", "replicate", "regather", "etp", "ep", "edp", "pp")
"""tp cp dp pp: one axis each. data: dp x cp, over which gradients are reduced, split into shard x replicate
when a copy is sharded over only some of it. regather: those of a shard that share a second copy. etp ep edp: the
experts' axes."""
WORLD, ENDS = "world", "embedding"
"""Groups that cross stages, beside pp: all ranks; first and last stage, which share a tied embedding."""


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
        axes = self.parallelism.order.split("-")
        before = axes[: axes.index("pp")]
        return int(np.prod([self.degree(axis) for axis in before if axis in DENSE_AXES], dtype=np.int64))

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
            "regather": degrees.regather_size or degrees.shard_ranks,
            "ep": degrees.ep,
            "etp": degrees.etp,
            "edp": degrees.expert_data_ranks,
            WORLD: degrees.world,
            ENDS: min(2, degrees.pp),
        }[group]

    def groups(self, group: str) -> Ranks:
        """List all groups of a kind: one row of ranks each."""
        if group == WORLD:
            return np.arange(self.parallelism.world)[None, :]
        if group in ("pp", ENDS):
            stages = np.arange(self.parallelism.pp) if group == "pp" else np.unique([0, self.parallelism.pp - 1])
            return self.rank(np.arange(self.positions)[:, None], stages[None, :])
        rows = self._position_groups(group)
        stages = np.arange(self.parallelism.pp)[:, None, None]
        return self.rank(rows[None], stages).reshape(-1, rows.shape[1])

    def _position_groups(self, group: str) -> Ranks:
        """List the groups of one stage by position."""
        order = self.parallelism.order.split("-")
        if group in EXPERT_AXES.values():
            return self._slices([EXPERT_AXES[axis] for axis in order if axis in EXPERT_AXES], [group])
        dense = [axis for axis in order if axis in DENSE_AXES]
        if group in DENSE_AXES:
            return self._slices(dense, [group])
        data = self._slices(dense, [axis for axis in dense if axis != "tp"])
        if group == "regather":
            return data.reshape(-1, self.degree(group))
        shard = self.parallelism.shard_ranks
        split = data.reshape(len(data), -1, shard)
        if group == "shard":
            return split.reshape(-1, shard)
        return np.swapaxes(split, 1, 2).reshape(-1, split.shape[1]) if group == "replicate" else data

    def _slices(self, axes: list[str], along: list[str]) -> Ranks:
        """Cut the cube of positions, whose axes are listed innermost first, into rows along some of them."""
        cube = np.arange(self.positions, dtype=np.int64).reshape([self.degree(axis) for axis in reversed(axes)])
        fixed = [index for index, axis in enumerate(reversed(axes)) if axis not in along]
        moving = [index for index, axis in enumerate(reversed(axes)) if axis in along]
        size = int(np.prod([self.degree(axis) for axis in along], dtype=np.int64))
        return cube.transpose(*fixed, *moving).reshape(-1, size)


@lru_cache(maxsize=1024)
def cached_groups(parallelism: Parallelism, group: str) -> Ranks:
    """List all groups of a kind, remembered: the same degrees are asked for many times in a sweep."""
    rows = Grid(parallelism).groups(group)
    rows.setflags(write=False)
    return rows
