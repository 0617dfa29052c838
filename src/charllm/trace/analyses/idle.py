"""Why does the device wait? Each gap in which it does nothing has one cause, told by the launch of what ends the gap.

With g the gap [end of all work before, start of the next event] and l the start of the call that launched that event:
  host:        l lies inside g, so nothing was queued: the host was late;
  sync:        the same, and before it the host stood in a call that waits for the device;
  kernel gap:  l lies before g and g is at most KERNEL_GAP_S: the device's own delay between two kernels;
  dependency:  l lies before g and g is longer: the event waited for another stream, device or rank;
  unknown:     the trace does not tell what launched the event.
Ignores: waits of one stream while another is busy; those are hidden.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charllm.arrays import Bools, Floats, Ints
from charllm.trace.events import NONE, RUNTIME
from charllm.trace.run import TracedRank
from charllm.trace.steps import Window

KERNEL_GAP_S = 10e-6
"""Longest delay between two queued kernels that is the device's own (assumed; about 1-2 us on an H100)."""
WAITING_CALLS = re.compile(r"synchronize|streamwaitvalue|^cudaMemcpy$|^hipMemcpy(WithStream)?$", re.IGNORECASE)
"""Calls in which the host waits for the device."""
CAUSES = ("host", "sync", "kernel_gap", "dependency", "unknown")
HOST, SYNC, KERNEL_GAP, DEPENDENCY, NOT_TOLD = range(len(CAUSES))


class Gaps(NamedTuple):
    """Stretches of a window in which a device did nothing."""

    start_s: Floats
    end_s: Floats
    cause: Ints
    """Numbers in CAUSES."""

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each cause."""
        length_s = self.end_s - self.start_s
        return {name: float(np.sum(length_s[self.cause == code])) for code, name in enumerate(CAUSES)}


def find_gaps(rank: TracedRank) -> list[Gaps]:
    """Return the gaps of every step of a rank and the cause of each."""
    waits_end_s = _waits_end_s(rank)
    return [_window_gaps(rank, window, waits_end_s) for window in rank.windows]


def _window_gaps(rank: TracedRank, window: Window, waits_end_s: Floats) -> Gaps:
    """Return the gaps of a window; the time after its last event is the host's."""
    here = rank.activity.inside(window.start_s, window.end_s)
    order = np.argsort(here.start_s, kind="stable")
    start_s, reached_s = here.start_s[order], np.maximum.accumulate(here.end_s[order])
    before_s = np.concatenate([[window.start_s], np.maximum(reached_s[:-1], window.start_s)])[: len(order)]
    idle = start_s > before_s
    ends = order[idle]
    gap_start_s, gap_end_s = before_s[idle], start_s[idle]
    cause = _causes(rank, here.call[ends], gap_start_s, gap_end_s, waits_end_s)
    left_s = max(float(reached_s.max(initial=window.start_s)), window.start_s)
    if left_s < window.end_s:
        waits = _reach_into(waits_end_s, np.array([left_s]), np.array([window.end_s]))
        gap_start_s, gap_end_s = np.append(gap_start_s, left_s), np.append(gap_end_s, window.end_s)
        cause = np.append(cause, SYNC if waits[0] else HOST)
    return Gaps(gap_start_s, gap_end_s, cause)


def _causes(rank: TracedRank, calls: Ints, start_s: Floats, end_s: Floats, waits_end_s: Floats) -> Ints:
    launched_s = rank.trace.events.start_s[calls]
    late = launched_s >= start_s
    queued = np.where(end_s - start_s <= KERNEL_GAP_S, KERNEL_GAP, DEPENDENCY)
    cause = np.where(late, np.where(_reach_into(waits_end_s, start_s, launched_s), SYNC, HOST), queued)
    unknown = NOT_TOLD if rank.trace.has_device_events else HOST
    return np.where(calls == NONE, unknown, cause)


def _waits_end_s(rank: TracedRank) -> Floats:
    """Return when the calls ended in which the host waits for the device, in order."""
    events = rank.trace.events
    waits = np.array([bool(WAITING_CALLS.search(name)) for name in rank.trace.names] or [False])
    rows = np.flatnonzero(rank.trace.matches(RUNTIME) & waits[events.name])
    return np.sort(events.start_s[rows] + events.duration_s[rows])


def _reach_into(waits_end_s: Floats, start_s: Floats, end_s: Floats) -> Bools:
    """Mark the stretches in which a waiting call ends: it returns just after the device has finished."""
    place = np.searchsorted(waits_end_s, start_s)
    return np.asarray(np.append(waits_end_s, np.inf)[place] <= end_s)


def idle_seconds(gaps: Sequence[Gaps]) -> dict[str, float]:
    """Return the idle seconds of a mean step by cause."""
    found = [one.seconds() for one in gaps]
    return {cause: float(np.mean([one[cause] for one in found])) if found else 0.0 for cause in CAUSES}
