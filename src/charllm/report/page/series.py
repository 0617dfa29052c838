"""Readings over time as bands: lowest, mean and highest of each bin of time, so that no peak is lost."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.report.figure import Column

MOST_BINS = 600
"""Bins of a time axis: about one for two pixels of a page."""


class Band(NamedTuple):
    """A signal by bins of time; NaN where a bin has no reading."""

    low: Floats
    mean: Floats
    high: Floats


class Bins(NamedTuple):
    """A time axis cut into equal bins, those without any reading left out."""

    middle_s: Floats
    place: Ints
    """[reading] its bin."""


def cut_bins(times_s: Floats, most: int = MOST_BINS) -> Bins:
    """Cut the time of some readings into bins: one for each moment, or `most` where there are more moments."""
    moments, place = np.unique(times_s, return_inverse=True)
    if len(moments) <= most:
        return Bins(moments, place)
    width_s = (moments[-1] - moments[0]) / most
    number = np.minimum(((times_s - moments[0]) / width_s).astype(np.int64), most - 1)
    taken, place = np.unique(number, return_inverse=True)
    return Bins(moments[0] + (taken + 0.5) * width_s, place)


def decimate(bins: Bins, values: Floats) -> Band:
    """Return lowest, mean and highest reading of every bin."""
    count, known = len(bins.middle_s), np.isfinite(values)
    place, kept = bins.place[known], values[known]
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, place, kept)
    np.maximum.at(high, place, kept)
    readings = np.bincount(place, minlength=count)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(place, kept, minlength=count) / readings
    empty = readings == 0
    return Band(np.where(empty, np.nan, low), mean, np.where(empty, np.nan, high))


def to_floats(values: Sequence[Any]) -> Floats:
    """Return numbers, NaN for missing ones."""
    # numpy reads None as NaN where it is asked for floats.
    return np.array(values, dtype=np.float64)


def to_column(label: str, values: Floats, unit: str) -> Column:
    """Return a column, None for what is NaN."""
    return Column(label, to_list(values), unit, 4)


def to_list(values: Floats) -> list[float | None]:
    """Return numbers as a list, None for what is NaN."""
    found: list[float | None] = values.tolist()
    for place in np.flatnonzero(np.isnan(values)).tolist():
        found[place] = None
    return found


def band_columns(name: str, band: Band, unit: str, divisor: float = 1.0) -> dict[str, Column]:
    """Return the three columns of a band, keyed by the signal's name."""
    return {
        f"{name}_{end}": to_column(f"{word} {name}", values / divisor, unit)
        for end, word, values in (
            ("low", "Lowest", band.low),
            ("mean", "Mean", band.mean),
            ("high", "Highest", band.high),
        )
    }
