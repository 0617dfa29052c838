"""One time line for many machines: a node's clocks against the head's, by many short exchanges.

The head stamps a question while it is on its way; half of the round trip is how far the answer may be off, so the
shortest of many round trips is kept. Compared at the start and at the end of a run, the two also show the drift.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.result.store import write_text
from charllm.units import NANO

CLOCK_FILE = "clock.json"
ROUND_TRIPS = 50
DRIFT_LARGEST_FRACTION = 1e-4
"""Oscillators of computers stay within this: what a clock may go wrong each second after its only comparison."""

Stamp = tuple[int, int]
"""Monotonic and wall clock in nanoseconds."""


class Comparison(NamedTuple):
    """The head's clocks minus a node's at one moment."""

    at_s: float
    """On the node's monotonic clock."""
    monotonic_s: float
    wall_s: float
    uncertainty_s: float
    round_trips: int


@dataclass(frozen=True, slots=True)
class Clock:
    """How a node's clocks lie against the head's during a run."""

    start: Comparison | None = None
    end: Comparison | None = None

    @property
    def drift_fraction(self) -> float:
        """Seconds that the head's clock gains on the node's in each second; 0 where it was not compared twice."""
        if self.start is None or self.end is None or self.end.at_s <= self.start.at_s:
            return 0.0
        return (self.end.monotonic_s - self.start.monotonic_s) / (self.end.at_s - self.start.at_s)

    def to_head(self, times_s: Floats) -> Floats:
        """Return times of the node's monotonic clock on the head's."""
        if self.start is None:
            return times_s
        return times_s + self.start.monotonic_s + self.drift_fraction * (times_s - self.start.at_s)

    def to_head_wall(self, wall_s: Floats, times_s: Floats) -> Floats:
        """Return times of the node's wall clock, read at `times_s`, on the head's."""
        if self.start is None:
            return wall_s
        grown = 0.0
        if self.end is not None and self.end.at_s > self.start.at_s:
            grown = (self.end.wall_s - self.start.wall_s) / (self.end.at_s - self.start.at_s)
        return wall_s + self.start.wall_s + grown * (times_s - self.start.at_s)

    def moment(self, time_s: float) -> float:
        """Return one time on the head's clock."""
        return float(self.to_head(np.array([time_s]))[0])

    def uncertainty_s(self, last_s: float) -> float | None:
        """Return how far a time of the run may be off; None for a clock that was never compared."""
        if self.start is None:
            return None
        if self.end is None:
            return self.start.uncertainty_s + DRIFT_LARGEST_FRACTION * max(0.0, last_s - self.start.at_s)
        return max(self.start.uncertainty_s, self.end.uncertainty_s)

    def as_table(self) -> dict[str, Any]:
        """Return it as a plain table."""
        found = {"start": self.start, "end": self.end}
        table = {name: None if one is None else one._asdict() for name, one in found.items()}
        return {**table, "drift_fraction": self.drift_fraction}

    def write(self, folder: Path) -> "Clock":
        """Store it beside the node's recording."""
        write_text(json.dumps(self.as_table(), indent=1), folder / CLOCK_FILE)
        return self


def compare(ask: Callable[[], Stamp], round_trips: int = ROUND_TRIPS) -> Comparison:
    """Compare our clocks with those of the one who answers `ask`, many times, and keep the shortest exchange."""
    best: tuple[int, Comparison] | None = None
    for _ in range(round_trips):
        sent_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        head_ns, head_wall_ns = ask()
        trip_ns = time.monotonic_ns() - sent_ns
        if best is None or trip_ns < best[0]:
            half_ns = trip_ns // 2
            offset_ns, wall_offset_ns = head_ns - sent_ns - half_ns, head_wall_ns - wall_ns - half_ns
            numbers = (sent_ns * NANO, offset_ns * NANO, wall_offset_ns * NANO, trip_ns * NANO / 2)
            best = trip_ns, Comparison(*numbers, round_trips)
    if best is None:
        raise ValueError("at least one round trip")
    return best[1]


def read_clock(folder: Path) -> Clock:
    """Read how a node's clocks lie; one that was never compared is taken for the head's own."""
    try:
        table: dict[str, Any] = json.loads((folder / CLOCK_FILE).read_text(encoding="utf-8"))
        found = (None if table.get(name) is None else Comparison(**table[name]) for name in ("start", "end"))
        return Clock(*found)
    except (OSError, ValueError, TypeError, AttributeError):
        return Clock()
