"""Time that was not read: gaps between readings, and how far a mean may be off for them."""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats

SHORTEST_GAP_S, GAP_BEATS = 0.25, 1.9
"""Readings have a gap between them where they are further apart than each of these: seconds, usual intervals. One
reading that is missing from an even series is a gap."""
LONG_GAP_S, LONG_GAP_FRACTION, MOST_UNREAD_FRACTION = 1.0, 0.1, 0.5
"""A mean is not known where a gap is longer than the first two (seconds, of the window) and all than the third."""
NOTED_FRACTION = 0.02
"""A warning tells of gaps that leave out more of the time."""
UNREAD_PERCENTILES = (2.5, 97.5)
"""Of the readings of a window: the mean of the time that was not read is taken to lie between these (assumed)."""


class Gaps(NamedTuple):
    """The time of a window that was not read."""

    number: int
    unread_s: float
    longest_s: float


NO_GAPS = Gaps(0, 0.0, 0.0)


class Mean(NamedTuple):
    """A mean over time, and between what the time that was not read leaves it."""

    value: float
    low: float
    high: float


def usual_interval_s(times_s: Floats) -> float:
    """Return the usual time from one reading to the next."""
    return float(np.median(np.diff(times_s))) if len(times_s) > 1 else 0.0


def find_gaps(times_s: Floats, start_s: float, end_s: float) -> Gaps:
    """Return the time of a window that its readings leave out, beyond a usual interval for each gap."""
    inside = times_s[(times_s >= start_s) & (times_s <= end_s)]
    unread_s = _unread_s(inside, start_s, end_s, usual_interval_s(times_s))
    return Gaps(int(np.count_nonzero(unread_s)), float(np.sum(unread_s)), float(np.max(unread_s)))


def _unread_s(times_s: Floats, start_s: float, end_s: float, usual_s: float) -> Floats:
    """Return how much of the time before each reading, and after the last, was not read."""
    apart_s = np.diff(times_s, prepend=start_s, append=end_s)
    # Of a single reading it is not known how long it holds.
    shortest_s = SHORTEST_GAP_S if usual_s else LONG_GAP_S
    return np.where(apart_s > max(shortest_s, GAP_BEATS * usual_s), apart_s - usual_s, 0.0)


def time_mean(times_s: Floats, values: Floats, start_s: float, end_s: float, usual_s: float) -> Mean | None:
    """Return the mean over the time that was read, each reading holding until the next, but not over a gap.

    None where too much was not read.
    """
    duration_s = end_s - start_s
    if not len(values) or duration_s <= 0:
        return None
    unread_s = _unread_s(times_s, start_s, end_s, usual_s)
    fraction = float(np.sum(unread_s)) / duration_s
    longest_s = max(LONG_GAP_S, LONG_GAP_FRACTION * duration_s)
    weights = np.diff(np.concatenate([[start_s], times_s[1:], [end_s]])) - unread_s[1:]
    # What lies before the first reading counts as its own.
    weights[0] -= unread_s[0]
    if (fraction > MOST_UNREAD_FRACTION and np.max(unread_s) > longest_s) or np.sum(weights) <= 0:
        return None
    mean = float(np.sum(weights * values) / np.sum(weights))
    low, high = bound_unread(mean, values, fraction)
    return Mean(mean, low, high)


def widen(value: float, interval: list[float | None] | None, bounds: tuple[float, float]) -> list[float | None]:
    """Return the interval of a mean with what was not read in it: independent errors add up in quadrature."""
    ends = [value, value] if interval is None else [end for end in interval if end is not None]
    if len(ends) < 2:
        return [None, None]
    halves = [float(np.hypot(end - value, bound - value)) for end, bound in zip(ends, bounds, strict=True)]
    return [value - halves[0], value + halves[1]]


def bound_unread(mean: float, values: Floats, unread_fraction: float) -> tuple[float, float]:
    """Return between what a mean lies when a part of its time was not read.

    Equation: (1 - u) m + u q, with the mean m of what was read, the unread fraction u and q a low and a high percentile
    of the readings. Ignores: states of the board that no reading has seen.
    """
    if unread_fraction <= 0:
        return mean, mean
    low, high = np.percentile(values, UNREAD_PERCENTILES)
    seen = (1 - unread_fraction) * mean
    return float(seen + unread_fraction * min(low, mean)), float(seen + unread_fraction * max(high, mean))
