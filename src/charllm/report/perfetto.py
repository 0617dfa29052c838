"""A traced run as one view for Perfetto (ui.perfetto.dev): ranks as processes, streams as threads, labels of steps."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.trace.run import TracedRank, TracedRun
from charllm.trace.timeline import label_times
from charllm.units import MICRO, NANO

MAX_EVENTS = 200_000
Event = dict[str, Any]
LABEL_THREAD = -1
HOST_THREAD = 0


class Trace(NamedTuple):
    """The events of a trace, and what was left out to keep it small."""

    events: list[Event]
    left_out: str

    def to_text(self) -> str:
        """Write it as Chrome's trace event format."""
        return json.dumps({"traceEvents": self.events, "displayTimeUnit": "ms"}, allow_nan=False)


class Signal(NamedTuple):
    """What was read of a rank's GPU, on the clock of its trace."""

    name: str
    times_s: Floats
    values: Floats


def trace_run(
    run: TracedRun, max_events: int = MAX_EVENTS, signals: Mapping[int, Sequence[Signal]] | None = None
) -> Trace:
    """Return the events of all ranks on one clock, as many as a viewer takes: the first ones of each rank.

    `signals` (by rank) are counters above the kernels: watts, degrees, megahertz.
    """
    first_ns = min((rank.trace.origin_ns for rank in run.ranks), default=0)
    room = max_events // max(1, len(run.ranks))
    events = [event for rank in run.ranks for event in _rank_events(rank, first_ns, room)]
    for rank in run.ranks:
        events += _signal_events(rank, first_ns, (signals or {}).get(rank.rank, ()))
    dropped = sum(max(0, len(rank.activity.row) - room) for rank in run.ranks)
    return Trace(events, f"{dropped:,} later events are too many and not shown" if dropped else "")


def _rank_events(rank: TracedRank, first_ns: int, room: int) -> Iterator[Event]:
    offset_s = (rank.trace.origin_ns - first_ns) * NANO
    named = {"ph": "M", "ts": 0, "pid": rank.rank}
    yield {**named, "tid": HOST_THREAD, "name": "process_name", "args": {"name": f"rank {rank.rank}"}}
    yield {**named, "tid": LABEL_THREAD, "name": "thread_name", "args": {"name": "step"}}
    for window in rank.windows:
        for label, start_s, end_s in label_times(rank, window)[: room // max(1, len(rank.windows))]:
            yield _slice(rank.rank, LABEL_THREAD, label, offset_s + window.start_s + start_s, end_s - start_s, {})
    activity, trace = rank.activity, rank.trace
    kept = slice(0, room)
    streams = np.where(trace.events.stream < 0, HOST_THREAD, trace.events.stream)[activity.row[kept]].tolist()
    names = trace.events.name[activity.row[kept]].tolist()
    columns = (activity.start_s[kept].tolist(), activity.seconds[kept].tolist(), activity.work[kept].tolist())
    for stream, name, start_s, seconds, work in zip(streams, names, *columns, strict=True):
        args = {"class": activity.works[work].name}
        yield _slice(rank.rank, stream, trace.names[name], offset_s + start_s, seconds, args)


def _signal_events(rank: TracedRank, first_ns: int, signals: Sequence[Signal]) -> Iterator[Event]:
    """Show a signal where it changes."""
    offset_s = (rank.trace.origin_ns - first_ns) * NANO
    for signal in signals:
        changed = np.flatnonzero(np.diff(signal.values, prepend=np.nan) != 0)
        for time_s, value in zip(signal.times_s[changed].tolist(), signal.values[changed].tolist(), strict=True):
            at = {"ts": round((offset_s + time_s) / MICRO, 3), "pid": rank.rank, "tid": HOST_THREAD}
            yield {"name": signal.name, "ph": "C", **at, "args": {signal.name: round(value, 2)}}


def _slice(rank: int, thread: int, name: str, start_s: float, seconds: float, args: dict[str, str]) -> Event:
    times = {"ts": round(start_s / MICRO, 3), "dur": round(seconds / MICRO, 3)}
    return {"name": name, "ph": "X", **times, "pid": rank, "tid": thread, "args": args}
