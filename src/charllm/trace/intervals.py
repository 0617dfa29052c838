"""Sets of time: merged intervals and the elementary segments between their ends."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charllm.arrays import Bools, Floats


class Intervals(NamedTuple):
    """Times covered: intervals in order that do not touch."""

    start_s: Floats
    end_s: Floats

    @property
    def total_s(self) -> float:
        """Seconds covered."""
        return float(np.sum(self.end_s - self.start_s))

    def covers(self, time_s: Floats) -> Bools:
        """Mark the times inside."""
        place = np.searchsorted(self.start_s, time_s, side="right") - 1
        inside = place >= 0
        inside[inside] = time_s[inside] < self.end_s[place[inside]]
        return np.asarray(inside)

    def clip(self, from_s: float, to_s: float) -> "Intervals":
        """Return what lies inside a window."""
        start_s, end_s = np.maximum(self.start_s, from_s), np.minimum(self.end_s, to_s)
        kept = end_s > start_s
        return Intervals(start_s[kept], end_s[kept])


def merge(start_s: Floats, end_s: Floats) -> Intervals:
    """Return the union of intervals, given in any order."""
    if not len(start_s):
        return Intervals(np.empty(0), np.empty(0))
    order = np.argsort(start_s, kind="stable")
    starts, reached = start_s[order], np.maximum.accumulate(end_s[order])
    opens = np.concatenate([[True], starts[1:] > reached[:-1]])
    closes = np.concatenate([opens[1:], [True]])
    kept = reached[closes] > starts[opens]
    return Intervals(starts[opens][kept], reached[closes][kept])


class Segments(NamedTuple):
    """A window cut at every end of some sets of time: each segment lies wholly inside or outside of each set."""

    start_s: Floats
    end_s: Floats
    inside: Bools
    """[set, segment]"""

    @property
    def length_s(self) -> Floats:
        """Seconds of each segment."""
        return self.end_s - self.start_s


def cut(sets: Sequence[Intervals], from_s: float, to_s: float) -> Segments:
    """Cut a window at the ends of sets of time."""
    clipped = [one.clip(from_s, to_s) for one in sets]
    bounds = np.unique(np.concatenate([[from_s, to_s], *(part for one in clipped for part in one)]))
    start_s, end_s = bounds[:-1], bounds[1:]
    inside = np.array([one.covers(start_s) for one in clipped], dtype=bool).reshape(len(sets), len(start_s))
    return Segments(start_s, end_s, inside)
