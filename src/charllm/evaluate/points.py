"""One measured figure beside what is predicted for it, and scores of many of them."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from charllm.evaluate.scores import describe_errors
from charllm.result.differences import QUANTITIES, TEMPERATURES
from charllm.spec.run import CLASSES, RunSpec
from charllm.units import GIGA

SIZES = (8, 64, 512)
BILLIONS = (3, 15, 80)


class Point(NamedTuple):
    """A measured figure and its prediction."""

    part: str
    """Kind of measurement, as scoreboard.PARTS names it."""
    split: str
    """What the constants were fitted without."""
    quantity: str
    id: str
    predicted: float
    measured: float
    groups: Mapping[str, str] = {}
    """What it is scored by, such as class, GPU, source, strategy."""
    work: float = 0.0
    """FLOPs or bytes that a table of rates would divide by its rate; 0: a table would hold the figure itself."""
    baseline: float | None = None
    """What a simpler method says, where one was asked."""


class RunReading(NamedTuple):
    """One run on a board or a cluster: how it is described, what is predicted of it, and what was read."""

    part: str
    board: str
    """Board, or source, within which runs are compared."""
    name: str
    request: Mapping[str, Any]
    metrics: Mapping[str, Any]
    read: Mapping[str, float]


class Score(NamedTuple):
    """Errors of one group of points: fractions, or kelvin where the quantity is a temperature."""

    part: str
    split: str
    quantity: str
    by: str
    group: str
    rows: int
    median: float
    p90: float
    mean: float
    baseline_median: float | None


def error_of(point: Point, predicted: float) -> float:
    """Return a prediction's error: a fraction of the measured figure, or kelvin."""
    return predicted - point.measured if point.quantity in TEMPERATURES else predicted / point.measured - 1


def with_baselines(points: Sequence[Point]) -> list[Point]:
    """Add what a table would say of each point: the median figure, or rate, of the others of its part and class."""
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, point in enumerate(points):
        groups[point.part, point.split, point.quantity, point.groups.get("class", "")].append(place)
    found = list(points)
    for places in groups.values():
        figures = {place: _tabled(points[place]) for place in places}
        for place in places:
            others = [figure for other, figure in figures.items() if other != place]
            if others and points[place].baseline is None:
                figure, work = statistics.median(others), points[place].work
                found[place] = points[place]._replace(baseline=work / figure if work else figure)
    return found


def _tabled(point: Point) -> float:
    return point.work / point.measured if point.work else point.measured


def score_points(points: Iterable[Point], least_rows: int = 1) -> list[Score]:
    """Return the scores of all points of a part, split and quantity together, and of each group with enough rows."""
    grouped: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    for point in points:
        key = (point.part, point.split, point.quantity)
        for by, group in {"all": "all", **point.groups}.items():
            grouped[*key, by, group].append(point)
    return [
        _score(key, found) for key, found in grouped.items() if key[3] == "all" or len(found) >= least_rows
    ]  # fmt: skip


def _score(key: tuple[str, ...], points: Sequence[Point]) -> Score:
    errors = describe_errors([error_of(point, point.predicted) for point in points])
    simpler = describe_errors([error_of(point, point.baseline) for point in points if point.baseline is not None])
    part, split, quantity, by, group = key
    return Score(part, split, quantity, by, group, len(points), errors["median_abs_error_fraction"],
                 errors["p90_abs_error_fraction"], errors["mean_error_fraction"],
                 simpler["median_abs_error_fraction"])  # fmt: skip


def size_groups(gpus: float, parameters: float) -> dict[str, str]:
    """Return the groups of a run by size."""
    return {"GPUs": _bucket(gpus, SIZES, ""), "parameters": _bucket(parameters / GIGA, BILLIONS, "B")}


def _bucket(value: float, edges: Sequence[int], unit: str) -> str:
    below = 0
    for edge in edges:
        if value <= edge:
            return f"up to {edge}{unit}" if not below else f"{below} to {edge}{unit}"
        below = edge
    return f"over {below}{unit}"


def run_quantities(
    metrics: Mapping[str, float | None], read: Mapping[str, float]
) -> Iterator[tuple[str, float, float]]:
    """Yield quantity, predicted and measured of a run's metrics that were read."""
    for name, measured in read.items():
        predicted = metrics.get(name)
        if predicted is not None and measured > 0:
            yield QUANTITIES[name], predicted, measured


def named_class(run: RunSpec) -> str:
    """Return the class of a run in words."""
    return CLASSES[run.scored_as]
