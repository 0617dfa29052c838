"""Levels of power that GPUs keep to, and the share of time at each; their number comes from the data.

A level is a peak of the density of readings on a logarithmic scale, parted from the next by a valley. Readings of all
GPUs are taken together; two levels that no single GPU has both of are one level of GPUs that differ.
Ignores: levels held for less than 2 % of the time, and those closer to each other than 8 %.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats

WIDTH = 0.03
"""Standard deviation of the smoothing, in the logarithm of power: readings of one level differ by so much."""
VALLEY = 0.6
"""Two peaks are two levels where the density between them falls below this share of the lower one."""
LEAST_SHARE = 0.02
LEAST_POWER_W = 1.0
POINTS = 1024
SAME_GPU_SHARE = 0.1
IDLE_FRACTION, LOW_FRACTION = 0.35, 0.75
"""Of the highest level: below the first a level is idle or waiting, below the second a low one."""
IDLE_USE_FRACTION = 0.05


class PowerState(NamedTuple):
    """One level of power."""

    name: str
    """idle, waiting, low or compute."""
    power_w: float
    """Median of its readings."""
    share: float
    """Of all readings."""
    low_w: float
    high_w: float
    """Bounds of the level."""


def find_states(powers_w: Sequence[Floats], used_fraction: Sequence[Floats] | None = None) -> list[PowerState]:
    """Return the levels of the GPUs' readings, lowest first; with the use of each GPU, idle is told from waiting."""
    kept = [np.log(power[power > LEAST_POWER_W]) for power in powers_w]
    pooled = np.concatenate(kept) if kept else np.empty(0)
    if len(pooled) < 10:
        return []
    edges = _merge_alike(kept, _edges(pooled))
    highest = float(np.exp(np.median(pooled[pooled >= edges[-2]])))
    states = []
    for low, high in pairwise(edges):
        inside = (pooled >= low) & (pooled < high)
        level = float(np.exp(np.median(pooled[inside])))
        name = _name(level, highest, _use(powers_w, used_fraction, np.exp(low), np.exp(high)))
        states.append(PowerState(name, level, float(inside.mean()), float(np.exp(pooled[inside].min())),
                                 float(np.exp(pooled[inside].max()))))  # fmt: skip
    return states


def _edges(pooled: Floats) -> list[float]:
    """Return the borders of the levels, on the logarithmic scale."""
    low, high = float(pooled.min()) - 4 * WIDTH, float(pooled.max()) + 4 * WIDTH
    counts, borders = np.histogram(pooled, POINTS, (low, high))
    width = WIDTH / (borders[1] - borders[0])
    reach = int(4 * width) + 1
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    density = np.convolve(counts, kernel / kernel.sum(), "same")
    centres = (borders[1:] + borders[:-1]) / 2
    rising = (density[1:-1] > density[:-2]) & (density[1:-1] >= density[2:])
    peaks = [int(place) + 1 for place in np.flatnonzero(rising)]
    peaks = _without_shallow(peaks, density)
    cuts = [int(first + np.argmin(density[first:second])) for first, second in pairwise(peaks)]
    edges = [low, *(float(centres[cut]) for cut in cuts), high]
    return _without_rare(edges, pooled)


def _without_shallow(peaks: list[int], density: Floats) -> list[int]:
    """Drop the lower of two peaks until a valley parts all of them."""
    kept = list(peaks)
    while len(kept) > 1:
        depths = [
            density[first : second + 1].min() / min(density[first], density[second]) for first, second in pairwise(kept)
        ]
        worst = int(np.argmax(depths))
        if depths[worst] < VALLEY:
            break
        kept.pop(worst if density[kept[worst]] < density[kept[worst + 1]] else worst + 1)
    return kept


def _without_rare(edges: list[float], pooled: Floats) -> list[float]:
    """Give a level that holds too few readings to the neighbour that is nearer."""
    kept = list(edges)
    while len(kept) > 2:
        counts, _ = np.histogram(pooled, kept)
        rare = int(np.argmin(counts))
        if counts[rare] >= LEAST_SHARE * len(pooled):
            break
        if rare == 0:
            kept.pop(1)
        elif rare == len(counts) - 1:
            kept.pop(-2)
        else:
            middles = [np.median(pooled[(pooled >= a) & (pooled < b)]) if n else np.inf
                       for a, b, n in zip(kept[:-1], kept[1:], counts, strict=True)]  # fmt: skip
            nearer_low = middles[rare] - middles[rare - 1] < middles[rare + 1] - middles[rare]
            kept.pop(rare if nearer_low else rare + 1)
    return kept


def _merge_alike(kept: Sequence[Floats], edges: list[float]) -> list[float]:
    """Join neighbouring levels that no GPU has both of: the GPUs differ there, not the work."""
    edges = list(edges)
    place = 1
    while place < len(edges) - 1:
        below = np.array([np.mean((one >= edges[place - 1]) & (one < edges[place])) for one in kept if len(one)])
        above = np.array([np.mean((one >= edges[place]) & (one < edges[place + 1])) for one in kept if len(one)])
        together = np.maximum(below + above, 1e-9)
        both = np.minimum(below, above) / together
        if len(kept) > 1 and (both < SAME_GPU_SHARE).mean() >= 0.8:
            edges.pop(place)
        else:
            place += 1
    return edges


def _use(powers_w: Sequence[Floats], used: Sequence[Floats] | None, low_w: float, high_w: float) -> float | None:
    """Return how much the GPUs were used at a level; None where that was not recorded."""
    if used is None:
        return None
    found = [use[(power >= low_w) & (power < high_w)] for power, use in zip(powers_w, used, strict=True)]
    values = np.concatenate(found)
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None


def _name(level_w: float, highest_w: float, use: float | None) -> str:
    if level_w > LOW_FRACTION * highest_w:
        return "compute"
    if level_w > IDLE_FRACTION * highest_w:
        return "low"
    return "waiting" if use is not None and use > IDLE_USE_FRACTION else "idle"
