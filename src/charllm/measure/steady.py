"""When a run has settled, and how sure a mean over repeated values is."""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Bools, Floats

STEADY_K_PER_S = 0.05
"""A GPU whose temperature drifts slower than this counts as settled: 1 K in 20 s, the step of its sensor."""
WINDOW_S = 10.0
MOST_WINDOWS = 1_000_000
SMALL_S = 1e-6
"""Seconds since 1970 are no finer."""
READINGS_PER_S = 10.0
"""Independent readings of temperature in a second: the board shows new ones every 100 ms, however often it is asked."""
SURE_ERRORS = 2.0
"""A window drifts only when its slope is above the limit by more than this many standard errors of the slope."""


class Interval(NamedTuple):
    """A mean and its 95 % confidence interval."""

    mean: float
    low: float
    high: float
    values: int

    @property
    def bounds(self) -> list[float | None]:
        """Both ends; None where they are not known."""
        return [end if np.isfinite(end) else None for end in (self.low, self.high)]


def student_95(freedom: int) -> float | None:
    """Return Student's t for 95 %; None where scipy is missing, which a measured job can do without."""
    try:
        from scipy import stats
    except ImportError:
        return None
    return float(stats.t.ppf(0.975, freedom)) if freedom > 0 else None


def interval(values: Floats) -> Interval:
    """Return the mean of independent values and its 95 % interval (Student's t); unbounded where it is not known."""
    count = len(values)
    mean = float(np.mean(values))
    factor = student_95(count - 1)
    if count < 2 or factor is None:
        return Interval(mean, float("-inf"), float("inf"), count)
    half = factor * float(np.std(values, ddof=1)) / count**0.5
    return Interval(mean, mean - half, mean + half, count)


def settled_from(times_s: Floats, temperature_c: Floats) -> float | None:
    """Return the first time from which temperature stays steady to the end; None when it never does.

    Steady: no straight line through a later window of 10 s is steeper than STEADY_K_PER_S by more than its noise may
    make it (SURE_ERRORS).
    """
    if len(times_s) < 3 or times_s[-1] - times_s[0] < WINDOW_S:
        return None
    last_s = max(times_s[-1] - WINDOW_S, times_s[0])
    starts = np.arange(times_s[0], last_s + SMALL_S, max(1.0, (last_s - times_s[0]) / MOST_WINDOWS))
    moving = np.flatnonzero(_drift(times_s, temperature_c, starts))
    if len(moving) == 0:
        return float(starts[0])
    return None if moving[-1] == len(starts) - 1 else float(starts[moving[-1] + 1])


def _drift(times_s: Floats, temperature_c: Floats, starts_s: Floats) -> Bools:
    """Tell of the windows from each start whether temperature surely moves in them, by the sums of straight lines."""
    first = np.searchsorted(times_s, starts_s, side="left")
    end = np.searchsorted(times_s, starts_s + WINDOW_S, side="right")
    count = np.maximum(end - first, 3)
    times, values = times_s - times_s.mean(), temperature_c - temperature_c.mean()
    t, v, tt, tv, vv = (
        np.concatenate([[0.0], np.cumsum(each)])[[end, first]]
        for each in (times, values, times**2, times * values, values**2)
    )
    t, v, tt, tv, vv = (sums[0] - sums[1] for sums in (t, v, tt, tv, vv))
    square, cross = np.maximum(tt - t**2 / count, 1e-12), tv - t * v / count
    slope = cross / square
    left = np.maximum(vv - v**2 / count - slope * cross, 0.0)
    noise_k = np.sqrt(left / np.maximum(count - 2, 1))
    independent = np.minimum(count, READINGS_PER_S * WINDOW_S)
    error = noise_k / (np.sqrt(square / count) * np.sqrt(independent))
    return np.asarray((end - first >= 3) & (np.abs(slope) > STEADY_K_PER_S + SURE_ERRORS * error))


def noise_floor_fraction(values: Floats) -> float | None:
    """Return the A/A difference: the means of every other value against the rest, over their mean.

    Two halves of one run that was not changed differ by noise alone; smaller effects cannot be told from it.
    """
    if len(values) < 4:
        return None
    first, second = float(np.mean(values[::2])), float(np.mean(values[1::2]))
    return 2 * abs(first - second) / abs(first + second) if first + second else None
