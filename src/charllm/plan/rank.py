"""The best strategies on the fast path, best first: bounds decide which of them need a price at all.

Shares of a layer are taken in the order of a bound of all their strategies; one that comes up is opened into those of
its strategies that may fit. They are taken in the order of their own bound, too. One that comes up is checked for
memory, its bound is raised by its own schedule (plan/schedule_bound.py), and it goes back; when it comes up again, it
is priced. The search ends when the next bound is above the price of the last strategy that is wanted: none that was
left can be better.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.plan.bounds import least_times
from charllm.plan.feasible import Batch, Feasible, overlap_kinds
from charllm.plan.overlaps import traits_of
from charllm.plan.rows import Rows
from charllm.plan.schedule_bound import Schedules
from charllm.plan.scores import Score
from charllm.plan.share import hidden_sets
from charllm.plan.space import Space
from charllm.result.memory_verdict import judge_memory
from charllm.simulate.fast import MOST_PASSES, fast_metrics
from charllm.simulate.work import TooLong, passes_of
from charllm.spec.run import RunSpec
from charllm.spec.schedules import SCHEDULES
from charllm.tracking import Track, untracked
from charllm.workload.step import ModelBlocks, build_step, model_blocks

Caps = tuple[float | None, float | None]
MOST_PRICED, MOST_CHECKED = 5_000, 40_000
"""Strategies that are priced, and looked at one by one, at most; a search that ends here says so."""

EXACT_PRICED, NEAR_FRACTION = 200, 0.01
"""After so many prices it suffices that no strategy that is left can be better by more than this."""


class Ranked(NamedTuple):
    """A strategy with its price."""

    score: float
    run: RunSpec
    metrics: Mapping[str, Any]


class Ranking(NamedTuple):
    """The best strategies, and how the others were decided."""

    best: list[Ranked]
    priced: int
    misfits: int
    """Strategies that passed the bound of memory and do not fit with the probability that is asked for."""
    proven: bool = True
    """Whether no strategy that was not priced can be better than the last of `best`."""


class _Items(NamedTuple):
    """Strategies of one share with their bounds, an entry each."""

    score: Floats
    energy_j: Floats
    row: Ints
    overlap: Ints
    """Place among the overlaps of its row."""
    caps: Ints
    order: Ints
    """Places, lowest score first."""
    schedules: list[Schedules]
    """Of each pair of caps: what plays schedules of its strategies."""


Item = tuple[int, int]
"""Place of a share, and place of a strategy in it."""
TO_PRICE, TO_RAISE, TO_OPEN = range(3)
"""What is next to do with what comes up; of equal bounds the latest first."""


def rank(
    feasible: Feasible, score: Score, caps: list[Caps], top: int,
    accept: Callable[[Mapping[str, Any]], bool] = lambda _metrics: True, track: Track = untracked,
) -> Ranking:  # fmt: skip
    """Return the best strategies under some caps; `accept` sees their memory before they are priced."""
    found, kept = _Search(feasible, score, caps, accept), list[tuple[float, Item, Ranked]]()
    shares = track(range(len(feasible.shares)), len(feasible.shares), "rank")
    heap = [(found.bound_share(place), TO_OPEN, (place, 0)) for place in shares]
    heapq.heapify(heap)
    checked, proven = 0, score.exact
    while heap:
        bound, action, item = heapq.heappop(heap)
        if len(kept) == top and bound >= found.last_wanted(-kept[0][0]):
            break
        if found.priced >= MOST_PRICED or checked >= MOST_CHECKED:
            proven = False
            break
        if action == TO_OPEN:
            found.open_share(item[0])
            _push_next(heap, found, item[0], 0)
        elif action == TO_RAISE:
            checked += 1
            _push_next(heap, found, item[0], item[1] + 1)
            item = item[0], int(found.items[item[0]].order[item[1]])
            raised = found.raise_bound(item)
            if raised is not None:
                heapq.heappush(heap, (raised, TO_PRICE, item))
        elif (priced := found.price(item)) is not None:
            heapq.heappush(kept, (-priced.score, (-item[0], -item[1]), priced))
            if len(kept) > top:
                heapq.heappop(kept)
    best = [one for *_rest, one in sorted(kept, reverse=True)]
    return Ranking(best, found.priced, found.misfits, proven)


def _push_next(heap: list[tuple[float, int, Item]], found: "_Search", share: int, turn: int) -> None:
    """Put the next strategy of a share, in the order of their bounds, in line."""
    items = found.items[share]
    if turn < len(items.order):
        heapq.heappush(heap, (float(items.score[items.order[turn]]), TO_RAISE, (share, turn)))


def _bound_items(space: Space, batch: Batch, score: Score, caps: list[Caps]) -> _Items:
    """Bound every strategy of a share that may fit, under each of some caps."""
    sets = _hidden_sets(batch.run)
    row, number, chosen = _overlaps(space, batch.rows, sets)
    parts, schedules = [], []
    for cap, (power_w, clock_hz) in enumerate(caps):
        conditions = replace(batch.run.conditions, power_cap_w=power_w, clock_cap_hz=clock_hz)
        capped = replace(batch.run, conditions=conditions)
        least = least_times(capped, batch.costs, batch.blocks, batch.rows, batch.links, sets)
        schedules.append(Schedules(batch.blocks, batch.costs, least))
        scores = score.bound(least.step_time_s, least.energy_j)[chosen, row]
        parts.append((scores, least.energy_j[chosen, row], row, number, np.full(len(row), cap)))
    columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
    columns += [np.argsort(columns[0], kind="stable"), schedules]
    return _Items(*columns)


def _hidden_sets(run: RunSpec) -> list[frozenset[str]]:
    """List the sets of hidden axes that bounds tell apart."""
    others = [frozenset(some) for some in ((), ("pp",), ("dp",), ("pp", "dp"))]
    return [hidden | other for hidden in hidden_sets(run) for other in others]


def _overlaps(space: Space, rows: Rows, sets: list[frozenset[str]]) -> tuple[Ints, Ints, Ints]:
    """Return for each row and each of its overlaps: the row, the overlap's place, and its set's place."""
    kinds, kind = overlap_kinds(space, rows)
    names, schedule = np.unique(space.cells.schedule, return_inverse=True)
    places = [[[sets.index(hidden_in(one, sets, str(name))) for one in listed] for listed in kinds] for name in names]
    counts = np.array([len(one) for one in kinds])
    own = counts[kind]
    row = np.repeat(np.arange(len(kind)), own)
    number = np.arange(len(row)) - np.repeat(np.cumsum(own) - own, own)
    table = np.zeros((len(names), len(kinds), counts.max()), dtype=np.int64)
    for name, index in np.ndindex(len(names), len(kinds)):
        table[name, index, : counts[index]] = places[name][index]
    return row, number, table[schedule[rows.cell][row], kind[row], number]


def hidden_in(overlap: tuple[str, ...], sets: list[frozenset[str]], schedule: str) -> frozenset[str]:
    """Return the axes that a strategy hides under a schedule, of those in `sets`."""
    return frozenset(overlap).union(SCHEDULES[schedule].always_hides) & frozenset(overlap).union(*sets)


NO_SECONDS, NO_PLACES = np.zeros(0), np.zeros(0, dtype=np.int64)
NOTHING = _Items(NO_SECONDS, NO_SECONDS, NO_PLACES, NO_PLACES, NO_PLACES, NO_PLACES, [])


class _Search:
    """Opens shares, checks and prices single strategies, and counts them."""

    def __init__(
        self, feasible: Feasible, score: Score, caps: list[Caps], accept: Callable[[Mapping[str, Any]], bool]
    ) -> None:
        self.feasible, self.score, self.caps, self.accept = feasible, score, caps, accept
        self.priced = self.misfits = 0
        self.items: dict[int, _Items] = {}
        self.memory: dict[Item, dict[str, Any] | None] = {}
        self.blocks: dict[tuple[int, str, bool], ModelBlocks] = {}

    def last_wanted(self, worst: float) -> float:
        """Return the bound from which on none is looked at, given the worst score that is kept."""
        return worst if self.priced < EXACT_PRICED else worst - NEAR_FRACTION * abs(worst)

    def bound_share(self, place: int) -> float:
        """Return a bound of all strategies of a share: kernels take time, and energy is at least none."""
        if not self.score.by_time:
            self.open_share(place)
            return float(self.items[place].score.min(initial=np.inf))
        return float(self.score.bound(np.array(self.feasible.shares[place].least_time_s), np.array(0.0)))

    def open_share(self, place: int) -> None:
        """Bound each strategy of a share."""
        if place not in self.items:
            batch = self.feasible.shares[place].batch
            self.items[place] = _bound_items(self.feasible.space, batch, self.score, self.caps) if batch else NOTHING

    def raise_bound(self, item: Item) -> float | None:
        """Return a closer bound of a strategy's score; None where the strategy does not fit."""
        items, place = self.items[item[0]], item[1]
        row = int(items.row[place])
        key = item[0], row
        if self.memory.get(key, {}) is None:
            self.misfits += 1
            return None
        run, recompute = self._run(item)
        if key not in self.memory:
            verdict = judge_memory(build_step(run, self._blocks(key[0], run)))
            memory = verdict.as_metrics()
            self.memory[key] = memory if verdict.fits_within(self.feasible.risk) and self.accept(memory) else None
            if self.memory[key] is None:
                self.misfits += 1
                return None
        bound = float(items.score[place])
        if not self.score.exact or passes_of(run) > MOST_PASSES:
            return bound
        batch, schedules = self._batch(item), items.schedules[int(items.caps[place])]
        time_s = schedules.least_time_s(run, recompute, batch.rows, batch.links, row)
        return max(bound, float(self.score.bound(np.array(time_s), items.energy_j[place])))

    def price(self, item: Item) -> Ranked | None:
        """Price a strategy that fits; None where that would take too long."""
        key = item[0], int(self.items[item[0]].row[item[1]])
        run, _recompute = self._run(item)
        self.priced += 1
        try:
            metrics = fast_metrics(build_step(run, self._blocks(key[0], run)))
        except TooLong:
            return None
        metrics |= {"microbatches": run.microbatches, **(self.memory[key] or {})}
        return Ranked(self.score.of(run, metrics), run, metrics)

    def _batch(self, item: Item) -> Batch:
        batch = self.feasible.shares[item[0]].batch
        assert batch is not None
        return batch

    def _run(self, item: Item) -> tuple[RunSpec, str]:
        """Return the run of a strategy, and how it recomputes."""
        items, place, space, batch = self.items[item[0]], item[1], self.feasible.space, self._batch(item)
        row = int(items.row[place])
        cell = space.cell(int(batch.rows.cell[row]))
        traits = traits_of(cell, bool(batch.rows.full[row]), int(batch.rows.zero[row]))
        overlap = space.overlaps(traits)[int(items.overlap[place])]
        variant = batch.variant(space.recomputes(cell), row, overlap, self.caps[int(items.caps[place])])
        return space.run(cell, variant), variant.recompute

    def _blocks(self, share: int, run: RunSpec) -> ModelBlocks:
        """Return the blocks of a share, described once for each kind of recomputation."""
        key = share, run.training.recompute, run.parallelism.pp == 1
        if key not in self.blocks:
            self.blocks[key] = model_blocks(run)
        return self.blocks[key]
