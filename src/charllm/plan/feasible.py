"""The strategies of a space by shares of a layer: each share is priced once, where its bound leaves a chance to it."""

from collections import Counter
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Ints
from charllm.plan.bounds import least_jitter, least_need_bytes
from charllm.plan.exchanges import Rates
from charllm.plan.overlaps import Traits, number_traits, traits_of
from charllm.plan.rows import Links, Rows, cell_run, list_rows, read_links
from charllm.plan.share import ShareBlocks, ShareCosts, least_pass_s, price_share, share_blocks
from charllm.plan.space import Cell, Space, Variant
from charllm.result.memory_verdict import RISK, least_margin_fraction
from charllm.spec.run import RunSpec


class Batch(NamedTuple):
    """Strategies of one share that may fit, and what their blocks cost."""

    run: RunSpec
    """Any run of the share."""
    blocks: ShareBlocks
    costs: ShareCosts
    rows: Rows
    links: Links

    def variant(
        self, recomputes: tuple[str, ...], row: int, overlap: tuple[str, ...], caps: tuple[float | None, float | None]
    ) -> Variant:
        """Return what one strategy does beyond its cell."""
        rows = self.rows
        return Variant(
            recomputes[int(rows.recompute[row])], int(rows.zero[row]), int(rows.shard_size[row]), overlap, *caps
        )


class Share:
    """Strategies in which a rank has the same share of a layer: bounded together, listed and priced when needed."""

    def __init__(self, space: Space, places: list[int], rates: dict[tuple[int, ...], Rates], risk: float) -> None:
        self.space, self.places, self.rates, self.risk = space, places, rates, risk
        self.pruned_memory = 0
        """Strategies that cannot fit, as far as they have been listed."""

    @cached_property
    def run(self) -> RunSpec:
        """Any run of the share."""
        return cell_run(self.space, self.space.cell(self.places[0]))

    @cached_property
    def least_time_s(self) -> float:
        """No step is shorter: the stages of a pipeline take as long as their mean, at least (plan/bounds.py)."""
        degrees, training = self.run.parallelism, self.run.training
        replicas = self.space.base.cluster.gpus / (degrees.tp * degrees.cp)
        each = training.global_batch_size / (training.micro_batch_size * replicas)
        return each * least_pass_s(self.run) * least_jitter(self.run)

    @cached_property
    def strategies(self) -> int:
        """How many they are."""
        return sum(map(self._variants, map(self.space.cell, self.places)))

    def _variants(self, cell: Cell) -> int:
        ways, space = Counter(one.startswith("full") for one in self.space.recomputes(cell)), self.space
        zeros = Counter(zero for zero, _size in space.shardings(cell))
        counts = (
            ways[full] * zeros[zero] * len(space.overlaps(traits_of(cell, full, zero)))
            for full in ways
            for zero in zeros
        )
        return sum(counts) * len(space.caps)

    @cached_property
    def batch(self) -> "Batch | None":
        """List the strategies that may fit, and price their blocks; None where no strategy fits."""
        blocks, rows = share_blocks(self.run), list_rows(self.space, self.places)
        largest_bytes = max(node.gpu.memory_bytes for node in self.space.base.cluster.kinds)
        fits = 1 - least_need_bytes(blocks, rows) / largest_bytes >= least_margin_fraction(self.risk)
        self.pruned_memory = int(variants_of(self.space, rows)[~fits].sum())
        if not fits.any():
            return None
        left = rows.pick(np.flatnonzero(fits))
        links = read_links(self.space, blocks.step, left, self.rates)
        return Batch(self.run, blocks, price_share(self.run, blocks), left, links)


class Feasible(NamedTuple):
    """A space by shares."""

    space: Space
    shares: list[Share]
    risk: float
    """Most probability of not fitting."""

    @property
    def visited(self) -> int:
        """Strategies of the space."""
        return sum(share.strategies for share in self.shares)

    @property
    def pruned_memory(self) -> int:
        """Strategies that cannot fit, of the shares that were looked into."""
        return sum(share.pruned_memory for share in self.shares)


def divide_space(space: Space, risk: float = RISK) -> Feasible:
    """Divide a space into shares; strategies fit but for a probability."""
    places: dict[tuple[Any, ...], list[int]] = {}
    for place in range(space.cells.size):
        places.setdefault(space.share(place), []).append(place)
    rates: dict[tuple[int, ...], Rates] = {}
    return Feasible(space, [Share(space, listed, rates, risk) for listed in places.values()], risk)


def variants_of(space: Space, rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Count for each row the strategies that it stands for: overlaps and caps."""
    kinds, kind = overlap_kinds(space, rows)
    return np.asarray(np.array([len(one) * len(space.caps) for one in kinds], dtype=np.int64)[kind])


def overlap_kinds(space: Space, rows: Rows) -> tuple[list[tuple[tuple[str, ...], ...]], Ints]:
    """Return lists of overlaps, and for each row which of them is its own."""
    traits = traits_of(space.cells.pick(rows.cell), rows.full, rows.zero)
    _numbers, first, kind = np.unique(number_traits(traits), return_index=True, return_inverse=True)
    found = [Traits(*(trait[row].item() for trait in traits)) for row in first.tolist()]
    return [space.overlaps(one) for one in found], kind
