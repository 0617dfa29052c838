"""The space of a plan: every combination of degrees that is a run, as arrays, and the variants of each combination.

A cell is a combination of degrees, schedule and microbatch. Its variants (recomputation and depth, ZeRO and shard size,
overlap, caps) are valid by construction: what has no effect on a cell is no variant of it.
"""

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property
from itertools import product
from math import prod
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from charllm.arrays import Bools, Ints
from charllm.catalog.defaults import split_layers
from charllm.errors import SpecError, Words
from charllm.plan.axes import DEPTHS, Axes, divisors
from charllm.plan.overlaps import Traits, list_overlaps
from charllm.spec.programs import LAYER_RULES, depth_fault, program_of, sharding_fault, zero_fault
from charllm.spec.run import RunSpec, check_run
from charllm.spec.validity import possible

MOST_CELLS = 20_000_000
"""Combinations of degrees that are looked at, at most."""


class Cells(NamedTuple):
    """Combinations of degrees that are runs: an array for each setting."""

    tp: Ints
    cp: Ints
    dp: Ints
    pp: Ints
    vpp: Ints
    ep: Ints
    etp: Ints
    sp: Bools
    schedule: NDArray[np.str_]
    micro_batch_size: Ints

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.tp)

    def pick(self, rows: Bools | Ints) -> "Cells":
        """Return some of the cells."""
        columns: list[Any] = [column[rows] for column in self]
        return Cells(*columns)


class Cell(NamedTuple):
    """One combination of degrees."""

    tp: int
    cp: int
    dp: int
    pp: int
    vpp: int
    ep: int
    etp: int
    sp: bool
    schedule: str
    micro_batch_size: int

    @property
    def share(self) -> tuple[int, int, int, int, bool, int]:
        """What decides one rank's share of a layer."""
        return self.tp, self.cp, self.ep, self.etp, self.sp, self.micro_batch_size

    def degrees(self) -> dict[str, Any]:
        """Return the settings of parallelism."""
        return {name: value for name, value in self._asdict().items() if name != "micro_batch_size"}


class Variant(NamedTuple):
    """What a cell leaves open."""

    recompute: str
    """none, selective, full or full:LAYERS."""
    zero: int
    shard_size: int
    overlap: tuple[str, ...]
    power_cap_w: float | None
    clock_cap_hz: float | None


class Space:
    """The strategies of one job: a base run whose strategy is replaced, the axes, and the cells that are runs."""

    def __init__(self, base: RunSpec, axes: Axes, stated: Collection[str] = ()) -> None:
        self.base, self.axes, self.stated = base, axes, frozenset(stated)
        self.split = _pinned_split(base)
        cells, self.combinations = _build_cells(base, axes, self.split)
        self.cells = cells.pick(self._shared_by_program(cells))
        self._overlaps: dict[Traits, tuple[tuple[str, ...], ...]] = {}

    def ruling(self, axis: str) -> str | None:
        """Return the program whose rules hold for an axis; None where the user states its values, as what-ifs."""
        return None if axis in self.stated else self.program

    def _shared_by_program(self, cells: Cells) -> Bools:
        """Tell which cells share layers among ranks in a way that the program has."""
        rules, sparse = LAYER_RULES.get(self.program, {}), self.base.model.experts > 0
        held = [rule.holds(cells, sparse) for axis, rule in rules.items() if axis not in self.stated]
        found = np.full(cells.size, fill_value=True)
        for rule in held:
            found &= rule
        return found

    @cached_property
    def program(self) -> str | None:
        """The program that the software profile stands for."""
        return program_of(self.base)

    @cached_property
    def caps(self) -> tuple[tuple[float | None, float | None], ...]:
        """Power cap and clock cap of each variant, none first; both at once only where one of them is pinned."""
        powers, clocks = self.axes.power_cap, self.axes.clock_cap
        pairs = product(powers, clocks)
        return tuple(pair for pair in pairs if None in pair or len(powers) == 1 or len(clocks) == 1)

    def cell(self, place: int) -> Cell:
        """Return one cell."""
        return Cell(*(column[place].item() for column in self.cells))

    def share(self, place: int) -> tuple[Any, ...]:
        """Return what decides one rank's share of a layer and its links; in unusual orders of ranks, all degrees do."""
        cell = self.cell(place)
        usual = self.base.parallelism.order.startswith("tp-cp-ep") and not self.base.conditions.gpu_of_rank
        return cell.share if usual else (*cell.share, cell.dp, cell.pp)

    def shardings(self, cell: Cell) -> tuple[tuple[int, int], ...]:
        """List ZeRO stage and shard size: over all ranks (0), or over those of a scale-up domain."""
        ranks = cell.dp * cell.cp
        proper = [size for size in divisors(ranks) if 1 < size < ranks]
        near = [
            size for size in proper if size * cell.tp <= self.base.cluster.node.gpus * self.base.cluster.domain_nodes
        ]
        asked = self.axes.shard_size
        sizes = (0, *near[-1:]) if asked is None else tuple(size for size in asked if size in (0, *proper))
        stages = self.axes.zero if ranks > 1 else self.axes.zero[:1]
        if ranks == 1:
            stages = (0,) if 0 in self.axes.zero else stages
            return tuple((zero, 0) for zero in stages)
        pairs = ((zero, size) for zero in stages for size in (sizes if zero else sizes[:1]) if zero or not size)
        return tuple(pair for pair in pairs if self._shards(cell, *pair))

    def _shards(self, cell: Cell, zero: int, size: int) -> bool:
        """Tell whether the program shards so."""
        node_gpus = self.base.cluster.node.gpus
        fault = zero_fault(self.ruling("zero"), zero, cell)
        return fault is None and sharding_fault(self.ruling("shard_size"), zero, size, cell, node_gpus) is None

    def recomputes(self, cell: Cell) -> tuple[str, ...]:
        """List the ways to recompute; `full:some` becomes depths below the layers of a chunk."""
        layers = max(self.layers_per_stage(cell))
        found: list[str] = []
        for asked in self.axes.recompute:
            if asked == "full:some":
                step = max(1, -(-layers // DEPTHS))
                depths = range(step, layers, step)
                program = self.ruling("recompute")
                found += [f"full:{depth}" for depth in depths if depth_fault(program, depth, layers) is None]
            elif not asked.startswith("full:") or int(asked[5:]) < layers or len(self.axes.recompute) == 1:
                found.append(asked)
        return tuple(dict.fromkeys(found))

    def overlaps(self, traits: Traits) -> tuple[tuple[str, ...], ...]:
        """List the sets of axes whose communication strategies with some traits hide."""
        if traits not in self._overlaps:
            self._overlaps[traits] = list_overlaps(traits, self.axes.overlap, self.ruling("overlap"))
        return self._overlaps[traits]

    def layers_per_stage(self, cell: Cell) -> tuple[int, ...]:
        """Return the layers of each chunk."""
        return self.split or split_layers(self.base.model.layers, cell.pp * cell.vpp)

    def run(self, cell: Cell, variant: Variant) -> RunSpec:
        """Return the run of a strategy."""
        base = self.base
        kind, _colon, depth = variant.recompute.partition(":")
        kept = base.training.recompute_modules if kind == "selective" else ()
        training = replace(
            base.training, micro_batch_size=cell.micro_batch_size, recompute=kind,
            recompute_layers=int(depth) if depth else None, recompute_modules=kept,
        )  # fmt: skip
        degrees = replace(
            base.parallelism, **cell.degrees(), zero=variant.zero, shard_size=variant.shard_size,
            overlap=variant.overlap, layers_per_stage=self.layers_per_stage(cell),
        )  # fmt: skip
        conditions = base.conditions
        if (variant.power_cap_w, variant.clock_cap_hz) != (conditions.power_cap_w, conditions.clock_cap_hz):
            conditions = replace(conditions, power_cap_w=variant.power_cap_w, clock_cap_hz=variant.clock_cap_hz)
        run = replace(base, training=training, parallelism=degrees, conditions=conditions, defaults_taken=())
        check_run(run)
        return run


def _pinned_split(base: RunSpec) -> tuple[int, ...]:
    """Return the layers of each stage that a request states; the base has one stage where it states none."""
    split = base.parallelism.layers_per_stage
    return split if len(split) > 1 else ()


def _build_cells(base: RunSpec, axes: Axes, split: tuple[int, ...]) -> tuple[Cells, int]:
    """Return the cells that are runs, and how many combinations there are."""
    pairs = [("interleaved", vpp) for vpp in axes.vpp if vpp > 1 and "interleaved" in axes.schedule]
    pairs += [(schedule, 1) for schedule in axes.schedule if schedule != "interleaved" and 1 in axes.vpp]
    etps = len(axes.etp or (1, 2))
    count = prod(map(len, (axes.tp, axes.cp, axes.pp, axes.ep, axes.sp, axes.mbs, pairs))) * etps
    outer = _outer(base, axes)
    if len(outer) * len(pairs) > MOST_CELLS:
        raise SpecError("--axis", Words(f"{count:,} combinations of degrees"), f"at most {MOST_CELLS:,}; pin some axes")
    rows = np.repeat(np.array(outer, dtype=np.int64).reshape(-1, 8), len(pairs), axis=0)
    tp, cp, dp, pp, ep, etp, sp, micro = rows.T
    schedule = np.tile(np.array([name for name, _vpp in pairs], dtype=np.str_), len(outer))
    vpp = np.tile(np.array([chunks for _name, chunks in pairs], dtype=np.int64), len(outer))
    cells = Cells(tp, cp, dp, pp, vpp, ep, etp, sp.astype(np.bool_), schedule, micro)
    return cells.pick(_runs(base, cells, split)), count


def _outer(base: RunSpec, axes: Axes) -> list[tuple[int, ...]]:
    """List the degrees that fill the cluster and divide the batch, before schedules."""
    gpus, batch = base.cluster.gpus, base.training.global_batch_size
    found: list[tuple[int, ...]] = []
    for tp, cp, pp in product(axes.tp, axes.cp, axes.pp):
        dp, rest = divmod(gpus, tp * cp * pp)
        if rest or (axes.dp is not None and dp not in axes.dp):
            continue
        for ep, etp, sp, micro in product(axes.ep, axes.etp or dict.fromkeys((1, tp)), axes.sp, axes.mbs):
            if batch % (dp * micro) == 0:
                found.append((tp, cp, dp, pp, ep, etp, int(sp), micro))
    return found


def _runs(base: RunSpec, cells: Cells, split: tuple[int, ...]) -> Bools:
    """Tell which cells are runs, by the rules of the spec; a schedule of a pipeline needs one."""
    degrees = SimpleNamespace(**cells._asdict(), cp_kind=base.parallelism.cp_kind)
    training = SimpleNamespace(
        seq_length=base.training.seq_length, global_batch_size=base.training.global_batch_size,
        micro_batch_size=cells.micro_batch_size,
    )  # fmt: skip
    chunks, layers = cells.pp * cells.vpp, base.model.layers
    even = (layers % chunks == 0) | ((layers + 2) % chunks == 0) | (cells.vpp == 1)
    splits = chunks == len(split) if split else even & (chunks <= layers)
    found = possible(base.model, degrees, training, base.cluster.gpus) & splits
    return np.asarray(found & ((cells.pp > 1) | (cells.schedule == "1f1b")))
