"""How much of a counted quantity (joules, cycles, seconds under a limit) each class of work took.

    amount of bin i = sum over classes k of seconds_ik * rate_k + error_i,   least <= rate_k <= most

with bins between two steps of a counter and seconds from a trace: constrained least squares over many bins. Intervals
are 95 %, from the errors of blocks of neighbouring bins (a sandwich estimate, so that errors may hang together); the
held-out error is that of bins in blocks which a fit has not seen. Classes that the bins cannot tell apart, because
their seconds rise and fall together, are joined to a group that has one rate: a class whose rate would be uncertain by
a quarter, or lie at the edge of what is possible, is joined with the one that it is confused with most. Too little
time or too few bins are refused, with the reason.

Ignores: that a class draws more at a higher clock or temperature (a rate is the mean over the run), and work that the
trace does not show.
"""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats

FEWEST_BINS_PER_GROUP = 5
SHORTEST_S = 0.5
"""Five steps of the counter: less time of a class than this is not told apart."""
WIDEST_FRACTION = 0.25
"""A rate that may be wrong by more than this fraction is joined with the one it is confused with."""
BLOCK_BINS, FOLDS = 8, 5
NORMAL_95 = 1.96
COLLINEAR = 1e-9
"""Columns that differ by less than this, squared, are the same."""
TINY = float(np.finfo(float).tiny)
SHORT, CONFUSED = "too short to separate", "not separated by the readings"
Groups = list[tuple[int, ...]]


class Bins(NamedTuple):
    """Windows and what was counted in each."""

    start_s: Floats
    end_s: Floats
    amount: Floats


class Share(NamedTuple):
    """What one class took."""

    seconds_s: float
    amount: float
    rate: float
    """Amount a second, of its group."""
    low: float
    high: float
    group: tuple[str, ...]
    """Classes with this rate: itself, and those that it is not told apart from."""
    reason: str = ""
    """Why it is not alone in its group."""


class Attribution(NamedTuple):
    """Shares of all classes; none where nothing can be told, with the reason."""

    shares: dict[str, Share]
    bins: int
    total: float
    residual_fraction: float | None
    """Root mean square error of a bin over the mean bin, in the fit."""
    held_out_fraction: float | None
    """Mean absolute error of bins that the fit has not seen, over the mean bin."""
    refused: str = ""


def attribute(
    bins: Bins,
    seconds: Floats,
    names: tuple[str, ...],
    least: float = 0.0,
    most: float = float("inf"),
    widest: float = WIDEST_FRACTION,
) -> Attribution:
    """Share counted amounts out among classes, given the seconds of each class (column) in each bin (row).

    No rate is taken to be below `least` or above `most`; one that may be wrong by more than the fraction `widest` is
    not told apart from others.
    """
    spent_s = seconds.sum(axis=0)
    used = [int(place) for place in np.argsort(-spent_s) if spent_s[place] > 0]
    total, count = float(bins.amount.sum()), len(bins.amount)
    if not used or count < 2 * FEWEST_BINS_PER_GROUP:
        why = f"{count} bins of the counter; at least {2 * FEWEST_BINS_PER_GROUP} are needed"
        return Attribution({}, count, total, None, None, why if used or not count else "the trace shows no work")
    problem = _Problem(bins.amount - least * seconds.sum(axis=1), seconds, most - least)
    groups = _told_apart(problem, _long_enough(spent_s, used, count), widest)
    fit = _fit(problem, groups)
    shares = {}
    for group, rate, half in zip(groups, fit.rates, fit.half_widths, strict=True):
        value = float(rate) + least
        low, high = max(value - float(half), least), min(value + float(half), most)
        for place in group:
            why = "" if len(group) == 1 else SHORT if spent_s[place] < SHORTEST_S else CONFUSED
            others = tuple(names[other] for other in group)
            shares[names[place]] = Share(
                float(spent_s[place]), float(spent_s[place]) * value, value, low, high, others, why
            )
    mean = max(total / count, TINY)
    residual = float(np.sqrt(np.mean(fit.error**2))) / mean
    return Attribution(shares, count, total, residual, _held_out(problem, groups) / mean)


class _Problem(NamedTuple):
    """Amounts above the least rate, seconds of every class, and the most that a rate may lie above the least."""

    amount: Floats
    seconds: Floats
    most: float


class _Fit(NamedTuple):
    rates: Floats
    half_widths: Floats
    confusion: Floats
    """Correlation of the errors of two rates."""
    error: Floats


def _long_enough(spent_s: Floats, used: list[int], bins: int) -> Groups:
    """Put classes that are too short, or too many for the bins, into one group."""
    most = bins // FEWEST_BINS_PER_GROUP
    alone = [place for place in used if spent_s[place] >= SHORTEST_S][: max(most - 1, 1)] or used[:1]
    rest = tuple(place for place in used if place not in alone)
    groups: Groups = [(place,) for place in alone]
    if rest and sum(spent_s[place] for place in rest) < SHORTEST_S:
        return [(*groups[0], *rest), *groups[1:]]
    return [*groups, rest] if rest else groups


def _told_apart(problem: _Problem, groups: Groups, widest: float) -> Groups:
    """Join the group that is known worst to the one it is confused with, until every rate is known well enough."""
    mean = max(float(problem.amount.sum() / problem.seconds.sum()), TINY)
    while len(groups) > 1:
        fit = _fit(problem, groups)
        # A rate is judged by its own size, or by half of the mean where it is small; one at its bound is not known.
        doubt = fit.half_widths / np.maximum(fit.rates, mean / 2)
        doubt[(fit.rates <= 0) | (fit.rates > problem.most)] = np.inf
        worst = int(np.argmax(doubt))
        if doubt[worst] <= widest:
            break
        others = np.where(np.arange(len(groups)) == worst, np.inf, fit.confusion[worst])
        first, second = sorted((worst, int(np.argmin(others))))
        joined = (*groups[first], *groups[second])
        groups = [joined if at == first else group for at, group in enumerate(groups) if at != second]
    return groups


def _columns(seconds: Floats, groups: Groups) -> Floats:
    return np.stack([seconds[:, list(group)].sum(axis=1) for group in groups], axis=1)


def _fit(problem: _Problem, groups: Groups) -> _Fit:
    columns = _columns(problem.seconds, groups)
    rates = non_negative(columns.T @ columns, columns.T @ problem.amount)
    error = problem.amount - columns @ rates
    square = columns.T @ columns
    inverse = np.linalg.inv(square + np.eye(len(groups)) * COLLINEAR * np.trace(square) / len(groups))
    blocks = np.array_split(np.arange(len(error)), max(len(error) // BLOCK_BINS, 2))
    slopes = np.stack([columns[block].T @ error[block] for block in blocks])
    covariance = inverse @ (slopes.T @ slopes) @ inverse * len(blocks) / max(len(blocks) - len(groups), 1)
    # What columns that are multiples of each other share is in no block's errors: they are unknown all the same.
    plain = float(error @ error) / max(len(error) - len(groups), 1) * np.diag(inverse)
    spread = np.sqrt(np.maximum(np.diag(inverse), TINY))
    half_widths = NORMAL_95 * np.sqrt(np.maximum(np.diag(covariance), plain))
    return _Fit(rates, half_widths, inverse / np.outer(spread, spread), error)


def _held_out(problem: _Problem, groups: Groups) -> float:
    """Return the mean absolute error of bins that a fit to the other blocks has not seen."""
    columns = _columns(problem.seconds, groups)
    fold = np.arange(len(problem.amount)) // BLOCK_BINS % FOLDS
    errors = []
    for number in np.unique(fold):
        seen, left = columns[fold != number], columns[fold == number]
        rates = non_negative(seen.T @ seen, seen.T @ problem.amount[fold != number])
        errors.append(np.abs(left @ rates - problem.amount[fold == number]))
    return float(np.mean(np.concatenate(errors)))


def non_negative(square: Floats, product: Floats) -> Floats:
    """Minimise |A x - b| over x >= 0, given A'A and A'b (Lawson and Hanson's active set, 1974, chapter 23)."""
    size = len(product)
    ridge = np.eye(size) * np.trace(square) / max(size, 1) * 1e-12
    square = square + ridge
    x, free = np.zeros(size), np.zeros(size, bool)
    tolerance = 1e-10 * max(float(np.abs(product).max(initial=0.0)), 1e-300)
    for _ in range(3 * size + 10):
        slope = product - square @ x
        if free.all() or slope[~free].max() <= tolerance:
            break
        free[np.flatnonzero(~free)[np.argmax(slope[~free])]] = True
        x = _settle(square, product, x, free)
    return x


def _settle(square: Floats, product: Floats, x: Floats, free: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Floats:
    """Go to the least squares solution of the free unknowns, freezing those that would turn negative on the way."""
    while True:
        trial = np.zeros(len(x))
        trial[free] = np.linalg.solve(square[np.ix_(free, free)], product[free])
        negative = free & (trial <= 0)
        if not negative.any():
            return trial
        step = np.min(x[negative] / np.maximum(x[negative] - trial[negative], np.finfo(float).tiny))
        x = x + step * (trial - x)
        free &= x > 1e-14 * max(float(np.abs(x).max()), 1e-300)
        x = np.where(free, x, 0.0)
