"""Statistics of predictions against measurements: sizes of errors, order of pairs, and a baseline to beat."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

PAIR_DIFFERENCE = 0.1
"""Pairs whose measured times differ by less are not asked to be ordered."""


class TimeScore(NamedTuple):
    """One row with a measured time: what was predicted, and what it is compared within."""

    id: str
    source: str
    gpu: str
    precision: str
    kind: str
    """dense, moe or lora."""
    family: str
    """Rows of one source, model and GPU."""
    measured_s: float
    predicted_s: float
    flop_per_gpu: float
    """Model FLOPs of a step on one GPU."""
    host: str = "tuned"
    """tuned; untuned: as users run it, or on a host that is not tuned; or not stated."""
    interval_s: tuple[float, float] | None = None
    """Where nine in ten measured times should lie."""

    @property
    def error_fraction(self) -> float:
        """Prediction over measurement, minus one."""
        return self.predicted_s / self.measured_s - 1


class Skipped(NamedTuple):
    """A row that was not scored, and why."""

    id: str
    reason: str


def describe_errors(errors: Sequence[float]) -> dict[str, Any]:
    """Return how many, and median, 90th percentile and mean of errors given as fractions."""
    if not errors:
        return {
            "scored": 0,
            "median_abs_error_fraction": None,
            "p90_abs_error_fraction": None,
            "mean_error_fraction": None,
        }
    sizes = sorted(abs(error) for error in errors)
    return {
        "scored": len(sizes),
        "median_abs_error_fraction": statistics.median(sizes),
        "p90_abs_error_fraction": sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))],
        "mean_error_fraction": statistics.fmean(errors),
    }


def describe_by(scores: Iterable[TimeScore], key: Callable[[TimeScore], str]) -> dict[str, dict[str, Any]]:
    """Return the statistics of each group of scores."""
    groups: dict[str, list[TimeScore]] = defaultdict(list)
    for score in scores:
        groups[key(score)].append(score)
    return {name: describe_scores(groups[name]) for name in sorted(groups)}


def describe_scores(scores: Sequence[TimeScore]) -> dict[str, Any]:
    """Return the statistics of scores, and the share of those with an interval that lie in it."""
    inside = [
        low <= score.measured_s <= high for score in scores if score.interval_s for low, high in [score.interval_s]
    ]
    errors = describe_errors([score.error_fraction for score in scores])
    return {**errors, "covered_fraction": statistics.fmean(inside) if inside else None}


def order_pairs(scores: Iterable[TimeScore]) -> tuple[float | None, int]:
    """Return which share of pairs within a family is ordered as measured, and how many pairs there are."""
    families: dict[str, list[TimeScore]] = defaultdict(list)
    for score in scores:
        families[score.family].append(score)
    right = pairs = 0
    for members in families.values():
        for one, other in combinations(members, 2):
            fast, slow = sorted((one, other), key=lambda score: score.measured_s)
            if slow.measured_s / fast.measured_s - 1 > PAIR_DIFFERENCE:
                pairs += 1
                right += fast.predicted_s < slow.predicted_s
    return (right / pairs if pairs else None), pairs


def baseline_errors(scores: Sequence[TimeScore]) -> list[float]:
    """Return the errors of `looked_up_s`, of the rows that it can predict."""
    return [found / score.measured_s - 1 for score, found in zip(scores, looked_up_s(scores), strict=True) if found]


def looked_up_s(scores: Sequence[TimeScore]) -> list[float | None]:
    """Predict each row by the median FLOP/s of other families on its GPU and precision, as a table would.

    Where no other family has that GPU and precision, by all other families of the GPU; else it is not predicted.
    """
    rates: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    for score in scores:
        rate = score.flop_per_gpu / score.measured_s
        rates[score.gpu, score.precision].append((score.family, rate))
        rates[score.gpu, ""].append((score.family, rate))
    found: list[float | None] = []
    for score in scores:
        keys = ((score.gpu, score.precision), (score.gpu, ""))
        others = ([rate for family, rate in rates[key] if family != score.family] for key in keys)
        known = next((rates_ for rates_ in others if rates_), None)
        found.append(score.flop_per_gpu / statistics.median(known) if known else None)
    return found
