"""What does the host take to launch a step, by itself? The time from the end of one call to the end of the next.

A call of the runtime belongs to a kind: its name and the operator around it. With g the gaps of a kind, median m:
  host seconds of a step = sum over kinds of calls of the kind x mean of those g that are at most LONGEST m
A longer gap is no launch: the call waited for room in the queue, or the thread did something else or was interrupted.
Ignores: what the profiler itself adds to each call (7 to 14 % in eager PyTorch).
"""

from typing import NamedTuple

import numpy as np

from charllm.trace.analyses.idle import WAITING_CALLS
from charllm.trace.events import NONE, RUNTIME
from charllm.trace.links import operators_of
from charllm.trace.run import TracedRank

LONGEST = 2.0
"""A gap this many times the median of its kind is a wait (assumed)."""


class HostCost(NamedTuple):
    """What launching takes the host of a rank, in a mean step."""

    seconds: float
    calls: float
    """Calls that launch something."""

    @property
    def each_s(self) -> float:
        """Return the host's time for one launch."""
        return self.seconds / self.calls


def host_cost(rank: TracedRank) -> HostCost | None:
    """Return what the host of a rank takes to launch a mean step; None where the trace does not show launches."""
    events, launched = rank.trace.events, rank.activity.call[rank.activity.call != NONE]
    if not rank.windows or not len(launched):
        return None
    waits = np.array([bool(WAITING_CALLS.search(name)) for name in rank.trace.names] or [False])
    rows = np.flatnonzero(rank.trace.matches(RUNTIME))
    ends_s = events.end_s[rows]
    before_s = np.concatenate([[np.inf], np.maximum.accumulate(ends_s)[:-1]])
    inside = (events.start_s[rows] >= rank.windows[0].start_s) & (events.start_s[rows] < rank.windows[-1].end_s)
    kept = inside & np.isin(rows, launched) & ~waits[events.name[rows]] & (before_s < np.inf)
    calls, gap_s = rows[kept], np.maximum(ends_s - before_s, 0.0)[kept]
    if not len(calls):
        return None
    operators = operators_of(rank.trace, calls)
    named = np.where(operators == NONE, NONE, events.name[operators]).astype(np.int64)
    kind = events.name[calls].astype(np.int64) * (len(rank.trace.names) + 1) + named
    order = np.argsort(kind, kind="stable")
    kinds = np.split(gap_s[order], np.flatnonzero(np.diff(kind[order])) + 1)
    steps = len(rank.windows)
    return HostCost(sum(map(_usual_s, kinds)) / steps, len(calls) / steps)


def _usual_s(gap_s: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
    """Return the seconds of calls of one kind, had none of them waited."""
    return float(len(gap_s) * gap_s[gap_s <= LONGEST * np.median(gap_s)].mean())
