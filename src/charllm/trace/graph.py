"""What waited for what in a trace, so that it can be replayed with something changed.

Nodes are calls of the host that launch or wait, and the work of the device. An edge says that one began some time after
another:

- a call after the last call that had ended before it, on whatever thread (the host's own work lies between them);
- work after the call that launched it, after the work before it on its stream, and, where neither explains when it
  began, after the work of another stream that ended last before it (an event that its stream waited for);
- the end of a call that took longer than its like, while work that it could wait for ended, after that work (a wait for
  the device, or for room in the launch queue);
- a collective's end on each rank after the last rank has begun it.

The time between both ends of an edge is kept where the edge was the last to be met, and is the shortest seen elsewhere.

Ignores: waits between streams that did not delay anything in the trace, though they might after a change; waits of the
host on something that leaves no call (a file, another process).
"""

from dataclasses import dataclass

import numpy as np

from charllm.arrays import Bools, Floats, Ints
from charllm.trace.activity import Activity
from charllm.trace.events import NONE, RUNTIME, RankTrace

SHORTEST_PERCENT = 5.0
"""The lag of an edge that was not the last to be met: near the shortest that was seen."""
LAUNCH_S = 10e-6
"""From a call to the start of what it launches on an idle stream, at most (assumed; a full queue shows none)."""
UNEXPLAINED_S = 3e-6
"""Work that begins this much later than its launch and its stream explain has waited for another stream (assumed)."""
LONGER_S = 20e-6
"""A call this much longer than the median of its like may have waited (assumed)."""
TOUCHING_S = 1e-9
"""The resolution of a profiler's clock."""
LOOK_BACK = 64
"""Pieces of work that ended before a call that are looked at for what it waited for."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Items of one rank: calls of the host first, then work of the device in the order of the activity."""

    calls: int
    """How many items are calls."""
    start_s: Floats
    end_s: Floats
    own_s: Floats
    """How long an item takes by itself, without what it waits for."""
    before: Ints
    """Columns of edges from ends: the call or work before, and the work of another stream. NONE where there is none."""
    lag_s: Floats
    launch: Ints
    """The call that launched each piece of work, by its start."""
    launch_lag_s: Floats
    waited: Ints
    """Work whose end a call waited for."""
    tail_s: Floats
    """From the end of that work to the end of the call."""


def build_graph(trace: RankTrace, activity: Activity) -> Graph:
    """Find what waited for what in one rank."""
    calls = _calls(trace, activity)
    events = trace.events
    start_s = np.concatenate([events.start_s[calls], activity.start_s])
    end_s = np.concatenate([events.end_s[calls], activity.end_s])
    items, works = len(start_s), len(activity.row)
    before, lag_s = np.full((items, 2), NONE, np.int64), np.zeros((items, 2))
    before[: len(calls), 0] = _last_ended(events.end_s[calls], events.start_s[calls])
    launch = np.full(items, NONE, np.int64)
    launch[len(calls) :] = np.where(activity.call != NONE, np.searchsorted(calls, activity.call), NONE)
    before[len(calls) :, 0] = _on_stream(trace, activity, len(calls))
    launched, followed = start_s - start_s[launch], start_s - end_s[before[:, 0]]
    device = np.arange(items) >= len(calls)
    shortest_launch = min(_shortest(launched[device & (launch != NONE)]), LAUNCH_S)
    shortest_gap = _shortest(followed[device & (before[:, 0] != NONE)])
    ready = np.maximum(
        np.where(launch != NONE, start_s[launch] + shortest_launch, -np.inf),
        np.where(before[:, 0] != NONE, end_s[before[:, 0]] + shortest_gap, -np.inf),
    )
    late = device & (start_s - ready > UNEXPLAINED_S)
    before[late, 1] = _other_stream(start_s, end_s, ready, late, len(calls))
    crossed = before[:, 1] != NONE
    lag_s[:, 1] = np.where(crossed, start_s - end_s[before[:, 1]], 0.0)
    by_launch = (launch != NONE) & (start_s[launch] + shortest_launch >= ready) & ~crossed
    launch_lag_s = np.where(by_launch, launched, np.minimum(launched, shortest_launch))
    by_stream = ~by_launch & ~crossed | ~device
    lag_s[:, 0] = np.where(by_stream, followed, np.minimum(followed, shortest_gap))
    waited, tail_s, own_s = _waits(trace, calls, start_s, end_s, launch, works)
    return Graph(len(calls), start_s, end_s, own_s, before, lag_s, launch, launch_lag_s, waited, tail_s)


def _calls(trace: RankTrace, activity: Activity) -> Ints:
    """Return the rows of calls that launch work or take longer than their like, in order of start."""
    runtime = np.flatnonzero(trace.matches(RUNTIME))
    longer = runtime[trace.events.duration_s[runtime] > _usual_s(trace, runtime) + LONGER_S]
    waits = np.array(["Synchronize" in name for name in trace.names] or [False])[trace.events.name[runtime]]
    return np.unique(np.concatenate([activity.call[activity.call != NONE], longer, runtime[waits]]))


def _usual_s(trace: RankTrace, rows: Ints) -> Floats:
    """Return the median length of the calls of the same name as each."""
    _names, place, counts = np.unique(trace.events.name[rows], return_inverse=True, return_counts=True)
    order = np.argsort(place, kind="stable")
    parts = np.split(trace.events.duration_s[rows][order], np.cumsum(counts)[:-1])
    return np.array([np.median(part) for part in parts])[place] if len(rows) else np.zeros(0)


def _last_ended(end_s: Floats, start_s: Floats, *, touching: bool = False) -> Ints:
    """Return for each start the item that ended last before it, or just then."""
    order = np.argsort(end_s, kind="stable")
    place = np.searchsorted(end_s[order], start_s + (TOUCHING_S if touching else 0.0), side="left") - 1
    return np.where(place >= 0, order[np.maximum(place, 0)], NONE)


def _on_stream(trace: RankTrace, activity: Activity, calls: int) -> Ints:
    """Return the item before each piece of work on its stream."""
    stream = trace.events.stream[activity.row].astype(np.int64) * 2**15 + trace.events.device[activity.row]
    order = np.lexsort((activity.start_s, stream))
    before = np.full(len(order), NONE, np.int64)
    same = stream[order][1:] == stream[order][:-1]
    before[order[1:]] = np.where(same, order[:-1] + calls, NONE)
    return before


def _shortest(lags_s: Floats) -> float:
    return float(max(np.percentile(lags_s, SHORTEST_PERCENT), 0.0)) if len(lags_s) else 0.0


def _other_stream(start_s: Floats, end_s: Floats, ready_s: Floats, late: Bools, calls: int) -> Ints:
    """Return the work that ended last before each late start, where that was later than all that is known of it."""
    found = _last_ended(end_s[calls:], start_s[late], touching=True)
    item = np.where(found != NONE, found + calls, NONE)
    return np.where((item != NONE) & (end_s[item] > ready_s[late]), item, NONE)


def _waits(
    trace: RankTrace, calls: Ints, start_s: Floats, end_s: Floats, launch: Ints, works: int
) -> tuple[Ints, Floats, Floats]:
    """Find calls that waited, the work that they waited for, and how long each item takes by itself."""
    items = len(calls) + works
    waited, tail_s, own_s = np.full(items, NONE, np.int64), np.zeros(items), end_s - start_s
    usual_s = _usual_s(trace, calls)
    by_end = np.argsort(end_s[len(calls) :], kind="stable") + len(calls)
    ends = end_s[by_end]
    names = np.array(["Synchronize" in name for name in trace.names] or [False])[trace.events.name[calls]]
    for call in np.flatnonzero((own_s[: len(calls)] > usual_s + LONGER_S) | names).tolist():
        last = int(np.searchsorted(ends, end_s[call], side="right"))
        for item in by_end[max(0, last - LOOK_BACK) : last][::-1].tolist():
            if end_s[item] <= start_s[call]:
                break
            if launch[item] == NONE or start_s[launch[item]] <= start_s[call]:
                waited[call], tail_s[call] = item, end_s[call] - end_s[item]
                own_s[call] = 0.0 if names[call] else min(usual_s[call], own_s[call])
                break
    return waited, tail_s, own_s
