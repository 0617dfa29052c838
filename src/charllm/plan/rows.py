"""Strategies of one share as arrays: every cell with each way to recompute and to shard, before overlap and caps."""

from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Bools, Floats, Ints
from charllm.network.constants import NETWORK
from charllm.plan.composition import Composition, compose_ways
from charllm.plan.exchanges import Rates, exchange_rates
from charllm.plan.space import Cell, Space, Variant
from charllm.spec.run import RunSpec
from charllm.spec.schedules import SCHEDULES
from charllm.timeline.step_time import hop_seconds
from charllm.workload.liveness import in_flight
from charllm.workload.memory import communication_bytes, context_bytes
from charllm.workload.step import Step, model_kinds


class Rows(NamedTuple):
    """Strategies of one share, an entry each."""

    cell: Ints
    """Place in the space."""
    recompute: Ints
    """Place among the ways to recompute of its cell."""
    zero: Ints
    shard_size: Ints
    full: Bools
    """Whether whole layers are recomputed."""
    shard_ranks: Floats
    expert_shard_ranks: Floats
    microbatches: Floats
    pp: Ints
    vpp: Ints
    drains: Floats
    """1 where the end of a step is empty on early stages, 0 where weight gradients may fill it."""
    held: Floats
    """[row, stage, column] blocks of three stages."""
    before: Floats
    """[row, stage, column] blocks that come before them."""
    hops: Floats
    """[row, stage] stages before."""
    sends: Floats
    """[row, stage] microbatches that the stage hands on, in both directions, for each that it works through."""
    flying: Floats
    """[row, stage, column] blocks whose activations are held, times microbatches in flight."""
    outside_bytes: Floats
    """Communicators' buffers and the driver's context, the least of any GPU."""

    def pick(self, rows: Ints) -> "Rows":
        """Return some of the strategies."""
        columns: list[Any] = [column[rows] for column in self]
        return Rows(*columns)


class Links(NamedTuple):
    """What the links of each strategy take."""

    hop_s: Floats
    """The fastest hop from one stage to another."""
    rates: Floats
    """[row, (gradients, weights, in passes), (dense, expert)] seconds to exchange one weight."""


def list_rows(space: Space, places: list[int]) -> Rows:
    """List the strategies of some cells of one share."""
    kinds = model_kinds(space.base)
    cells, ways, shards = [], [], []
    of_way: list[tuple[Floats, Floats, Floats]] = []
    for place in places:
        cell = space.cell(place)
        run, recomputes = cell_run(space, cell), space.recomputes(cell)
        found = compose_ways(kinds, space.layers_per_stage(cell), cell.pp, recomputes)
        own_shards = [(zero, size, *_shard_ranks(cell, zero, size)) for zero, size in space.shardings(cell)]
        shards += own_shards * len(recomputes)
        ways += [(number, len(own_shards), way.startswith("full")) for number, way in enumerate(recomputes)]
        of_way.append((found.held, found.before, _flying(run, found)))
        cells.append((place, len(recomputes) * len(own_shards), *_cell_numbers(run, cell, found)))
    held, before, flying = (np.concatenate(column) for column in zip(*of_way, strict=True))
    number, counts, full = np.array(ways, dtype=np.int64).T
    way = np.repeat(np.arange(len(number)), counts)
    zero, size, ranks, expert_ranks = np.array(shards, dtype=np.int64).T
    place_of, repeats, microbatches, pp, vpp, drains, outside, *threes = np.array(cells).T
    row = np.repeat(np.arange(len(cells)), repeats.astype(np.int64))
    hops, sends = np.stack(threes[:3], axis=1), np.stack(threes[3:], axis=1)
    own, pp, vpp = (column[row].astype(np.int64) for column in (place_of, pp, vpp))
    return Rows(
        own, number[way], zero, size, full[way] > 0, ranks.astype(np.float64), expert_ranks.astype(np.float64),
        microbatches[row], pp, vpp, drains[row], held[way], before[way], hops[row], sends[row], flying[way],
        outside[row],
    )  # fmt: skip


def _cell_numbers(run: RunSpec, cell: Cell, found: Composition) -> tuple[float, ...]:
    """Return microbatches, degrees, whether the end is empty, bytes outside, and stages before and sends of three."""
    outside = communication_bytes(run) + min(context_bytes(run, node.gpu) for node in run.cluster.kinds)
    drains = not SCHEDULES[cell.schedule].puts_off_weights
    return run.microbatches, cell.pp, cell.vpp, drains, outside, *found.stages, *_sends(cell, found)


def _shard_ranks(cell: Cell, zero: int, size: int) -> tuple[int, int]:
    """Return the ranks that share a copy of dense and of expert state, as spec/parallelism.py has them."""
    if not zero:
        return 1, 1
    edp = cell.tp * cell.cp * cell.dp // (cell.etp * cell.ep)
    return size or cell.dp * cell.cp, min(edp, size) if size else edp


def _sends(cell: Cell, found: Composition) -> list[int]:
    if cell.pp == 1:
        return [0] * len(found.stages)
    return [2 * cell.vpp - (stage in (0, cell.pp - 1)) for stage in found.stages]


def _flying(run: RunSpec, found: Composition) -> Floats:
    """Return for each way to recompute the blocks of three stages, each times its microbatches in flight."""
    flights = np.array([[one.whole for one in in_flight(run, stage)[: run.parallelism.vpp]] for stage in found.stages])
    return np.asarray(np.einsum("sv,rsvc->rsc", flights, found.own))


def cell_run(space: Space, cell: Cell, sharding: tuple[int, int] | None = None) -> RunSpec:
    """Return any run of a cell."""
    zero, size = sharding or space.shardings(cell)[0]
    return space.run(cell, Variant(space.recomputes(cell)[0], zero, size, (), None, None))


def read_links(space: Space, step: Step, rows: Rows, rates: dict[tuple[int, ...], Rates]) -> Links:
    """Return what hops and exchanges of each strategy take; `step` gives the formats of the share.

    `rates` remembers those of exchanges, which shares that differ in their microbatch have in common.
    """
    hops: dict[int, float] = {}
    found_s, found_rates = [], []
    for place, zero, size in zip(rows.cell.tolist(), rows.zero.tolist(), rows.shard_size.tolist(), strict=True):
        cell = space.cell(place)
        key = cell.tp, cell.cp, cell.dp, cell.pp, cell.ep, cell.etp, zero, size
        if key not in rates:
            rates[key] = exchange_rates(step, cell_run(space, cell, (zero, size)))
        if place not in hops:
            hops[place] = _hop_s(space, step, cell)
        found_s.append(hops[place])
        found_rates.append(rates[key])
    return Links(np.array(found_s), np.array(found_rates).reshape(-1, 3, 2))


def _hop_s(space: Space, step: Step, cell: Cell) -> float:
    if cell.pp == 1:
        return 0.0
    run = cell_run(space, cell)
    return float(hop_seconds(Step(run, step.cut, ()), NETWORK).min())
