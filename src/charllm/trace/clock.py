"""Where the clock of a trace stands against the monotonic clock, which marks and readings are on.

The ranges that charllm.profile leaves in a trace tell it: the monotonic time t_k in the name of range k was read after
range k - 1 had ended and before range k began, so that t_k - start_k <= offset <= t_k - end_(k - 1). The tightest of
some ranges bound the offset to microseconds, at both ends of the trace; between them it is interpolated.
"""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.profile import CLOCK
from charllm.trace.events import RANGE, RankTrace
from charllm.units import NANO

BURST_S = 0.05
"""Ranges further apart belong to different ends of a trace."""
WALL_ERROR_S = 1e-3
"""Where a trace holds no clock ranges: how far its clock may lie from the machine's (assumed)."""


MOST_DIGITS = 19


class Clock(NamedTuple):
    """Seconds to add to times of a trace to have monotonic ones, at some of its times, and how wrong they may be."""

    times_s: Floats
    offsets_s: Floats
    error_s: float
    source: str

    def monotonic_s(self, times_s: Floats) -> Floats:
        """Return times of a trace on the monotonic clock."""
        return np.asarray(times_s + np.interp(times_s, self.times_s, self.offsets_s))


def read_clock(trace: RankTrace, wall_less_monotonic_s: float | None = None) -> Clock | None:
    """Find the offset of a trace; without clock ranges, by the machine's wall clock where its offset is given."""
    names = [name if _tells_time(name) else "" for name in trace.names]
    events = trace.events
    told = np.array([int(name[len(CLOCK) :]) * NANO if name else np.nan for name in names] or [np.nan])
    chosen = np.flatnonzero((events.kind == RANGE) & np.isfinite(told[events.name]))
    if len(chosen) > 1:
        return _from_ranges(told[events.name[chosen]], events.start_s[chosen], events.end_s[chosen])
    if wall_less_monotonic_s is None:
        return None
    offset_s = trace.origin_ns * NANO - wall_less_monotonic_s
    return Clock(np.zeros(1), np.array([offset_s]), WALL_ERROR_S, "wall clock")


def _tells_time(name: str) -> bool:
    """Tell whether the name of a range holds nanoseconds of the monotonic clock."""
    digits = name.removeprefix(CLOCK)
    return digits != name and digits.isdecimal() and len(digits) <= MOST_DIGITS


def _from_ranges(told_s: Floats, start_s: Floats, end_s: Floats) -> Clock:
    burst = np.concatenate([[0], np.cumsum(np.diff(start_s) > BURST_S)])
    middles, offsets, errors = [], [], []
    for number in np.unique(burst):
        own = burst == number
        least = np.max(told_s[own] - start_s[own])
        later = own & np.concatenate([[False], burst[1:] == burst[:-1]])
        most = np.min(told_s[later] - end_s[np.flatnonzero(later) - 1]) if later.any() else least
        middles.append(float(np.mean(start_s[own])))
        offsets.append((least + most) / 2)
        errors.append(abs(most - least) / 2)
    return Clock(np.array(middles), np.array(offsets), float(max(errors)), "clock ranges")
