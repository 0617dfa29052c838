"""What repeats in the power of a run: its steps, and dips between stretches of work.

A step shows as a line in the spectrum of total power (Welch's mean of windowed periodograms), above what noise of
that colour reaches once in a thousand recordings. A dip is a time below the level of work. Power read as a mean over
a second hides what is much shorter, and readings further apart than half a step may show it at another period.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from charllm.arrays import Bools, Floats

MOST_POINTS = 200_000
SURE_SIGMA = 6.0
"""Of a normal variable; a line must also swing by LEAST_SWING of the power, or the grid of readings could make it."""
LEAST_SWING_FRACTION = 0.005
LEAST_PERIODS = 4
LONGEST_WINDOW, SHORTEST_WINDOW = 4096, 32
NEIGHBOURS_FRACTION = 0.25
"""Frequencies this near, in relation, tell the level of the noise."""
DIP_SIGMA, DIP_FRACTION = 6.0, 0.10
"""A dip falls below the level of work by more than its spread times the first, and than this share of it."""
REGULAR_FRACTION = 0.25
SMALL_FRACTION = 0.2
"""A dip that misses less energy than this share of the large ones is none of them."""
LEAST_GAP_S = 4.0


class Curve(NamedTuple):
    """Power over time on an even grid; NaN where nothing was read."""

    start_s: float
    period_s: float
    power_w: Floats

    @property
    def times_s(self) -> Floats:
        """Time of each point."""
        return np.asarray(self.start_s + self.period_s * np.arange(len(self.power_w)), dtype=np.float64)


class StepPeriod(NamedTuple):
    """How often the same comes again."""

    period_s: float
    source: str
    """marks, or power."""
    confidence: float
    """0 to 1; of marks 1."""
    swing_w: float | None
    """Height of the line: twice its amplitude, all GPUs' mean."""


class Dips(NamedTuple):
    """Times below the level of work, between stretches of it."""

    number: int
    period_s: float | None
    """Median time from the start of one to the next; None where there is one only."""
    work_s: float | None
    """Median length of the work between them: a checkpoint every so many steps keeps it, however long it takes."""
    duration_s: float
    power_w: float
    """Mean power of a GPU in them."""
    regular: bool
    starts_s: tuple[float, ...]


def even(times_s: list[Floats], powers_w: list[Floats]) -> Curve | None:
    """Return the mean power of the GPUs on an even grid, as dense as they were read; gaps stay gaps."""
    read = [(times, power) for times, power in zip(times_s, powers_w, strict=True) if len(times) > 1]
    if not read:
        return None
    period_s = max(float(np.median(np.concatenate([np.diff(times) for times, _ in read]))), 1e-3)
    start_s, end_s = max(float(times[0]) for times, _ in read), min(float(times[-1]) for times, _ in read)
    if end_s <= start_s:
        return None
    period_s = max(period_s, (end_s - start_s) / MOST_POINTS)
    grid = np.arange(start_s, end_s, period_s)
    total = np.zeros(len(grid))
    for times, power in read:
        total += np.where(_is_gap(grid, times, period_s), np.nan, np.interp(grid, times, power))
    return Curve(start_s, period_s, total / len(read))


def _is_gap(grid: Floats, times: Floats, period_s: float) -> Bools:
    after = np.clip(np.searchsorted(times, grid), 1, len(times) - 1)
    return np.asarray(times[after] - times[after - 1] > max(5 * period_s, 1.0))


def find_dips(curve: Curve, level_w: float, spread_w: float, lowest_w: float) -> Dips | None:
    """Return the dips between the first and the last moment of work; None where there is none."""
    power = curve.power_w
    threshold = max(level_w - max(DIP_SIGMA * spread_w, DIP_FRACTION * level_w), (level_w + lowest_w) / 2 * 0.5)
    working = np.flatnonzero(power > threshold)
    if len(working) < 4:
        return None
    inside = power[working[0] : working[-1] + 1]
    below = np.nan_to_num(inside, nan=np.inf) <= threshold
    edges = np.flatnonzero(np.diff(np.concatenate([[False], below, [False]]).astype(int)))
    starts, ends = _joined(edges[::2], edges[1::2], curve.period_s)
    kept = ends - starts >= 2 if curve.period_s < 0.5 else ends - starts >= 1
    starts, ends = starts[kept], ends[kept]
    if len(starts) == 0:
        return None
    missed = np.array([np.nansum(level_w - inside[start:end]) for start, end in zip(starts, ends, strict=True)])
    kept = missed >= SMALL_FRACTION * np.percentile(missed, 75)
    starts, ends = starts[kept], ends[kept]
    if len(starts) == 0:
        return None
    gaps_s, works_s = np.diff(starts) * curve.period_s, (starts[1:] - ends[:-1]) * curve.period_s
    first_s = curve.start_s + float(working[0]) * curve.period_s
    in_dips = np.concatenate([inside[start:end] for start, end in zip(starts, ends, strict=True)])
    return Dips(
        len(starts), _median(gaps_s), _median(works_s), float(np.median(ends - starts) * curve.period_s),
        float(np.nanmean(in_dips)), _are_alike(gaps_s) or _are_alike(works_s),
        tuple(first_s + float(start) * curve.period_s for start in starts),
    )  # fmt: skip


def _median(values: Floats) -> float | None:
    return float(np.median(values)) if len(values) else None


def _are_alike(values: Floats) -> bool:
    """Tell whether most of at least two values are near their median."""
    return len(values) >= 2 and bool(np.mean(np.abs(values / np.median(values) - 1) <= REGULAR_FRACTION) >= 0.6)


def _joined(
    starts: NDArray[np.intp], ends: NDArray[np.intp], period_s: float
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Join dips with less than a second of work between them."""
    if len(starts) < 2:
        return starts, ends
    apart = (starts[1:] - ends[:-1]) * period_s >= 1.0
    return starts[np.concatenate([[True], apart])], ends[np.concatenate([apart, [True]])]


def are_between_work(dips: Dips | None) -> bool:
    """Tell whether dips are rare enough to be something beside the steps: a checkpoint, an evaluation."""
    if dips is None:
        return False
    return dips.number < 3 or (dips.period_s or LEAST_GAP_S) >= LEAST_GAP_S


def find_period(stretches: list[Floats], period_s: float) -> StepPeriod | None:
    """Return the period of the strongest line in stretches of power; None where noise could make it."""
    whole = [one for one in stretches if len(one) >= SHORTEST_WINDOW]
    total = sum(map(len, whole))
    if total < 2 * SHORTEST_WINDOW:
        return None
    best: tuple[float, StepPeriod] | None = None
    longest = max(map(len, whole))
    for divided in (4, 8, 16):
        length = int(min(LONGEST_WINDOW, longest, max(SHORTEST_WINDOW, total // divided)))
        found = _strongest_line(whole, length, period_s)
        if found is not None and (best is None or found[0] > best[0]):
            best = found
    return best[1] if best else None


def _strongest_line(stretches: list[Floats], length: int, period_s: float) -> tuple[float, StepPeriod] | None:
    window = np.hanning(length)
    spectra = []
    for one in stretches:
        for start in range(0, len(one) - length + 1, max(1, length // 2)):
            piece = one[start : start + length]
            line = np.polyfit(np.arange(length), piece, 1)
            spectra.append(np.abs(np.fft.rfft((piece - np.polyval(line, np.arange(length))) * window)) ** 2)
    if len(spectra) < 3:
        return None
    mean = np.mean(spectra, axis=0)
    frequencies = np.fft.rfftfreq(length, period_s)
    first = LEAST_PERIODS
    if len(mean) - first < 8 or not mean[first:].any():
        return None
    noise = _noise(mean)
    # Half-overlapping windows are worth about 0.7 independent ones each.
    independent = max(1.0, 0.7 * len(spectra))
    ratio = mean / noise
    sigma = (np.cbrt(ratio * (1 - 1 / (9 * independent)) ** 3) - (1 - 1 / (9 * independent))) * np.sqrt(9 * independent)
    sigma[:first] = -np.inf
    place = int(np.argmax(sigma))
    if sigma[place] < SURE_SIGMA or ratio[place] < 3.0:
        return None
    place = _fundamental(place, sigma, first)
    peak = _between_bins(mean, place)
    amplitude = 2 * np.sqrt(mean[place]) / window.sum()
    if 2 * amplitude < LEAST_SWING_FRACTION * np.mean([one.mean() for one in stretches]):
        return None
    score = float(sigma[place])
    confidence = float(1 - np.exp(-((max(score, SURE_SIGMA) / SURE_SIGMA) ** 2)))
    return score, StepPeriod(float(1 / (peak * frequencies[1])), "power", confidence, float(2 * amplitude))


def _noise(spectrum: Floats) -> Floats:
    """Return the level of the noise at each frequency: the median of those near, which a line does not move."""
    noise = np.empty_like(spectrum)
    for place in range(len(spectrum)):
        reach = max(6, int(NEIGHBOURS_FRACTION * place))
        noise[place] = np.median(spectrum[max(1, place - reach) : place + reach + 1])
    return np.asarray(np.maximum(noise, 1e-12 * spectrum.max()))


def _fundamental(place: int, sigma: Floats, first: int) -> int:
    """Return the lowest frequency that a line may be a multiple of, where there is a line too."""
    for divisor in (4, 3, 2):
        low = round(place / divisor)
        if low < first:
            continue
        near = slice(max(first, low - 1), low + 2)
        if sigma[near].max() >= SURE_SIGMA:
            return near.start + int(np.argmax(sigma[near]))
    return place


def _between_bins(spectrum: Floats, place: int) -> float:
    """Return where a peak lies between frequencies, from a parabola through its logarithm."""
    if not 0 < place < len(spectrum) - 1:
        return float(place)
    left, middle, right = np.log(np.maximum(spectrum[place - 1 : place + 2], 1e-300))
    curvature = left - 2 * middle + right
    return place + (float(0.5 * (left - right) / curvature) if curvature < 0 else 0.0)
