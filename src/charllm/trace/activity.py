"""What keeps a device busy, event by event, and the class of each (trace/classify.py names them)."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from charllm.arrays import Bools, Floats, Ints
from charllm.trace.classes import COMMUNICATION, UNKNOWN
from charllm.trace.events import Codes
from charllm.trace.intervals import Intervals, merge


class Work(NamedTuple):
    """A class of work."""

    name: str
    """What tables call it: gemm, memcpy, `tp all_reduce`."""
    family: int
    """COMPUTE, COMMUNICATION or MEMORY (trace/classes.py)."""
    kind: str = ""
    """Kind of a collective."""
    axis: str | None = None
    """Axis of parallelism that a collective serves, where it is known."""


def communication(kind: str, axis: str | None) -> Work:
    """Return the class of a collective."""
    return Work(f"{axis} {kind}" if axis else kind, COMMUNICATION, kind, axis)


class Activity(NamedTuple):
    """Events that keep a device busy, in order of start."""

    works: list[Work]
    row: Ints
    """Rows of the trace's events."""
    start_s: Floats
    end_s: Floats
    work: Codes
    """Numbers in `works`."""
    call: Ints
    """Row of the runtime call that launched it; NONE where the trace does not tell."""
    collective: Codes
    """Numbers in the trace's collectives."""

    @property
    def seconds(self) -> Floats:
        """How long each took."""
        return self.end_s - self.start_s

    @property
    def unknown(self) -> Bools:
        """Mark the events whose class is not known."""
        return self.where(lambda work: work.name == UNKNOWN)

    def of_family(self, family: int) -> Bools:
        """Mark the events of a family."""
        return self.where(lambda work: work.family == family)

    def where(self, wanted: Callable[[Work], bool]) -> Bools:
        """Mark the events whose class is wanted."""
        return np.array([wanted(work) for work in self.works] or [False])[self.work]

    def take(self, kept: Bools) -> "Activity":
        """Return some of the events."""
        return Activity._make([self.works, *(column[kept] for column in self[1:])])

    def inside(self, from_s: float, to_s: float) -> "Activity":
        """Return the events that reach into a window, whole."""
        # Events are in order of start: none that began earlier than the longest lasts reaches into the window.
        longest_s = float(self.seconds.max(initial=0.0))
        near = slice(*np.searchsorted(self.start_s, (from_s - longest_s, to_s)).tolist())
        here = Activity._make([self.works, *(column[near] for column in self[1:])])
        return here.take(here.end_s > from_s)

    def times(self, kept: Bools) -> Intervals:
        """Return the union of the times of some of the events."""
        return merge(self.start_s[kept], self.end_s[kept])
