"""Differences between runs: what one change of a run did, beside what is predicted for it.

Two runs of one board, or of one table of one source, whose settings differ in one kind of change are a pair. An effect
is ln(second / first), of temperatures second minus first. Errors that both runs share cancel in it.
Noise is how far the same effect differs on two boards, or a run from its repeat: 1.48 times the median, the standard
deviation of a normal variable; of whole degrees their root mean square. An effect is clear beyond CLEAR times that.
Ignores: that runs are in several pairs, so that pairs are not independent.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import exp, inf, log, sqrt
from typing import Any, NamedTuple

from charllm.catalog.resolve import resolve_run
from charllm.evaluate.caps import cap_readings
from charllm.evaluate.clock_locked import clock_locked_runs
from charllm.evaluate.h200.points import NOT_FITTED, TRAINED, first_rank_runs, loop_runs, rank_runs, training_runs
from charllm.evaluate.memory import read_rows
from charllm.evaluate.points import Point, RunReading, run_quantities
from charllm.evaluate.predictions import load_predictions
from charllm.evaluate.time import resolve_row
from charllm.result.differences import CLOCK_CAP, FOLLOWS, TEMPERATURES, changed_settings, kind_of_change
from charllm.spec.request import dotted_fields
from charllm.spec.run import RunSpec
from charllm.workload.model_flop import model_flop

CLEAR = 2.0
PERCENTILE, DEVIATION_OVER_MEDIAN = 0.9, 1.4826
LEAST_REPEATS = 5
"""Fewer repeated effects tell no noise; that of all data together is taken."""
RECOMPUTED = 4 / 3
"""FLOPs of a step that computes forward again over those of one that does not."""
TIME, POWER, ENERGY = "step time", "mean power", "energy"
WHOLE = ("peak temperature",)
"""Read in whole degrees: more than half of repeats differ by none, so that their root mean square is the noise."""
WHOLE_DEVIATION = (2 / 12) ** 0.5
"""Standard deviation of a difference of two numbers that are rounded to whole ones: the least noise of such."""


class Reading(NamedTuple):
    """One run: where it was read, how it is set, and what was predicted and read of it."""

    data: str
    board: str
    name: str
    settings: Mapping[str, Any]
    flop: float
    """Of a step on each GPU, with what is computed again."""
    quantities: Mapping[str, tuple[float, float]]
    """Predicted and read."""


class Pair(NamedTuple):
    """One effect of one change."""

    data: str
    board: str
    change: str
    quantity: str
    first: str
    second: str
    predicted: float
    measured: float
    simpler: float
    """What a rule says: time follows FLOPs over a clock limit, the clock its limit, nothing else moves."""
    alike: tuple[str, ...]
    """What makes it the same effect on another board."""

    @property
    def error(self) -> float:
        """How far the predicted effect is off."""
        return self.predicted - self.measured


class Score(NamedTuple):
    """How well the effects of one change are predicted."""

    data: str
    change: str
    quantity: str
    pairs: int
    clear: int
    signs_right: int
    median_effect: float | None
    """Of the clear ones."""
    median_error: float
    p90_error: float
    error_over_effect: float | None
    """Median over the clear ones."""
    simpler_error: float
    noise: float


TABLES: dict[str, Callable[[], Iterable[RunReading]]] = {
    "training": lambda: training_runs(TRAINED),
    "loops": loop_runs,
    "ranks": rank_runs,
    "ranks, predicted first": first_rank_runs,
    "clock-locked": clock_locked_runs,
}
"""Runs that are predicted anew, and ranks as they were predicted before a board played them."""


def read_all(tables: Iterable[str] = TABLES) -> list[Reading]:
    """Return all runs: those of tables, predicted now, and published ones."""
    anew = (_with_energy(one) for name in tables for one in TABLES[name]())
    return [*anew, *_capped_readings(), *published_readings()]


def _with_energy(one: RunReading) -> Reading:
    found = {name: (said, read) for name, said, read in run_quantities(one.metrics, one.read)}
    if {TIME, POWER} <= found.keys():
        (said_s, read_s), (said_w, read_w) = found[TIME], found[POWER]
        found[ENERGY] = (said_s * said_w, read_s * read_w)
    return _reading(one.part, one.board, one.name, resolve_run(dict(one.request)), found)


def _capped_readings() -> Iterator[Reading]:
    for source, cap_w, quantity, said, read in cap_readings():
        yield Reading(
            "power caps", source, f"{cap_w} W", {"conditions.power_cap_w": cap_w}, 1.0, {quantity: (said, read)}
        )


def published_readings() -> Iterator[Reading]:
    """Yield published step times, each with the prediction that its model family was left out of, as committed."""
    known = {row.id: row for row in load_predictions()}
    for row in read_rows():
        if row["id"] in known:
            said = known[row["id"]]
            times = {TIME: (said.predicted_s, said.measured_s)}
            data = "published" if said.host == "tuned" else "published, untuned hosts"
            yield _reading(data, f"{said.source} {row['source']}", row["id"], resolve_row(row), times)


def _reading(data: str, board: str, name: str, run: RunSpec, found: Mapping[str, tuple[float, float]]) -> Reading:
    settings = {key: value for key, value in dotted_fields(run.as_table()).items() if key not in FOLLOWS}
    again = RECOMPUTED if run.training.recompute == "full" else 1.0
    return Reading(data, board, name, settings, again * model_flop(run) / run.parallelism.world, found)


def list_pairs(readings: Iterable[Reading]) -> list[Pair]:
    """Return the effects of all pairs of runs of one board that differ in one kind of change; repeats are `""`."""
    boards: dict[tuple[Any, ...], list[Reading]] = defaultdict(list)
    for one in readings:
        architecture = (one.settings.get(f"model.{name}") for name in ("layers", "hidden", "ffn"))
        boards[one.data, one.board, *architecture].append(one)
    found: list[Pair] = []
    for members in boards.values():
        for one, other in combinations(members, 2):
            change = kind_of_change(changed_settings(one.settings, other.settings))
            if change is not None:
                found += _effects(change, *_in_order(one, other))
    return found


def _in_order(one: Reading, other: Reading) -> list[Reading]:
    """Return two runs with the smaller value of what differs first."""
    differ = sorted(changed_settings(one.settings, other.settings))
    return sorted((one, other), key=lambda run: [(value is None, str(value).zfill(24)) for value in
                                                 map(run.settings.get, differ)])  # fmt: skip


def _effects(change: str, first: Reading, second: Reading) -> Iterator[Pair]:
    alike = tuple(sorted(repr(sorted(one.settings.items(), key=str)) for one in (first, second)))
    for quantity in first.quantities.keys() & second.quantities.keys():
        (said, read), (other_said, other_read) = first.quantities[quantity], second.quantities[quantity]
        yield Pair(first.data, first.board, change, quantity, first.name, second.name,
                   effect(quantity, said, other_said), effect(quantity, read, other_read),
                   _simple_effect(quantity, first, second), alike)  # fmt: skip


def effect(quantity: str, first: float, second: float) -> float:
    """Return what a change did to a quantity."""
    return second - first if quantity in TEMPERATURES else log(second / first)


def _simple_effect(quantity: str, first: Reading, second: Reading) -> float:
    before_hz, after_hz = (one.settings.get(CLOCK_CAP) for one in (first, second))
    slower = log(before_hz / after_hz) if before_hz and after_hz else 0.0
    if quantity in (TIME, ENERGY):
        return log(second.flop / first.flop) + (slower if quantity == TIME else 0.0)
    return -slower if quantity == "clock" else 0.0


def noise_levels(pairs: Iterable[Pair]) -> dict[tuple[str, str], float]:
    """Return the standard deviation of effects by data and quantity, from effects that were read twice."""
    repeated: dict[tuple[str, str], list[float]] = defaultdict(list)
    twice: dict[tuple[Any, ...], list[Pair]] = defaultdict(list)
    for pair in pairs:
        if pair.change:
            twice[pair.data, pair.quantity, pair.alike].append(pair)
        else:
            repeated[pair.data, pair.quantity].append(abs(pair.measured))
    for (data, quantity, _alike), members in twice.items():
        for one, other in combinations(members, 2):
            if one.board != other.board:
                # Sorted names are in one order on both boards.
                repeated[data, quantity].append(abs(one.measured - other.measured))
    together: dict[str, list[float]] = defaultdict(list)
    for (_data, quantity), sizes in repeated.items():
        together[quantity] += sizes
    keys = {(pair.data, pair.quantity) for pair in pairs}
    known = {key: repeated[key] if len(repeated[key]) >= LEAST_REPEATS else together[key[1]] for key in keys}
    return {key: _deviation(sizes, whole=key[1] in WHOLE) for key, sizes in known.items()}


def _deviation(sizes: Sequence[float], *, whole: bool) -> float:
    if not sizes:
        return inf
    if whole:
        return max(WHOLE_DEVIATION, sqrt(statistics.fmean(size**2 for size in sizes)))
    return DEVIATION_OVER_MEDIAN * statistics.median(sizes)


def percentile(sizes: Iterable[float]) -> float:
    """Return the 90th percentile of some sizes."""
    ordered = sorted(sizes)
    return ordered[min(len(ordered) - 1, int(PERCENTILE * len(ordered)))]


def score_differences(pairs: Sequence[Pair]) -> list[Score]:
    """Return the scores of each kind of change, and of all of them together, by data and quantity."""
    noise = noise_levels(pairs)
    groups: dict[tuple[str, str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        if pair.change:
            groups[pair.data, "all", pair.quantity].append(pair)
            groups[pair.data, pair.change, pair.quantity].append(pair)
    return [_score(*key, members, noise[key[0], key[2]]) for key, members in groups.items()]


def _score(data: str, change: str, quantity: str, pairs: Sequence[Pair], noise: float) -> Score:
    clear = [pair for pair in pairs if abs(pair.measured) > CLEAR * noise]
    errors = [abs(pair.error) for pair in pairs]
    return Score(
        data, change, quantity, len(pairs), len(clear), sum(pair.predicted * pair.measured > 0 for pair in clear),
        statistics.median(abs(pair.measured) for pair in clear) if clear else None,
        statistics.median(errors), percentile(errors),
        statistics.median(abs(pair.error / pair.measured) for pair in clear) if clear else None,
        statistics.median(abs(pair.simpler - pair.measured) for pair in pairs), noise,
    )  # fmt: skip


def difference_points() -> list[Point]:
    """Return every effect as a ratio, or in kelvin, for the scoreboard."""
    pairs = list_pairs(read_all())
    return [
        Point("differences", "family left out" if pair.data.startswith("published") else NOT_FITTED, pair.quantity,
              f"{pair.first} to {pair.second}", _figure(pair, pair.predicted), _figure(pair, pair.measured),
              {"change": pair.change, "data": pair.data}, baseline=_figure(pair, pair.simpler))
        for pair in pairs if pair.change
    ]  # fmt: skip


def _figure(pair: Pair, size: float) -> float:
    return size if pair.quantity in TEMPERATURES else exp(size)
