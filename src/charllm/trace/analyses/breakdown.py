"""Where does the time go? Computing, communication that nothing hides, copies, and nothing at all.

Over all streams of a rank, with C, N and M the unions of the times of compute, communication and copies:
  exposed communication = |N \\ C|;  overlapped = |C and N|;
  exposed copies = |M \\ (C or N)|;  idle = step - |C or N or M|.
Every instant has one label, the first that applies: compute, communication of an axis, copy, idle; they add up.
Ignores: that a kernel which runs beside a collective is slowed down by it.
"""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Bools
from charllm.trace.activity import Activity
from charllm.trace.classes import COMMUNICATION, COMPUTE, MEMORY
from charllm.trace.intervals import Segments, cut
from charllm.trace.run import TracedRank
from charllm.trace.steps import Window

AXES = ("tp", "pp", "dp", "ep", "cp", None)
"""Axes in the order in which they are charged; None: a collective whose axis is not known."""
OTHER = "other"


class Breakdown(NamedTuple):
    """Seconds of a mean step of one rank."""

    step_time_s: float
    compute_s: float
    exposed_s: dict[str, float]
    """Communication that nothing hides, by axis."""
    hidden_s: dict[str, float]
    """Communication under compute, by axis."""
    copy_s: float
    """Copies under neither."""
    idle_s: float

    @property
    def busy_s(self) -> float:
        """Seconds in which the device does anything."""
        return self.step_time_s - self.idle_s


class Labels(NamedTuple):
    """A window in segments, each under one label."""

    segments: Segments
    compute: Bools
    exposed: dict[str, Bools]
    hidden: dict[str, Bools]
    copy: Bools
    idle: Bools


def label_window(activity: Activity, window: Window) -> Labels:
    """Cut a window into segments and label each."""
    here = activity.inside(window.start_s, window.end_s)
    sets = [here.times(here.of_family(COMPUTE)), here.times(here.of_family(MEMORY))]
    for axis in AXES:
        serving = [work.family == COMMUNICATION and _axis(work.axis) == axis for work in here.works]
        sets.append(here.times(np.array(serving or [False])[here.work]))
    segments = cut(sets, window.start_s, window.end_s)
    compute, copy, *by_axis = segments.inside
    exposed, hidden, charged = {}, {}, np.zeros_like(compute)
    for axis, inside in zip(AXES, by_axis, strict=True):
        mine = inside & ~charged
        exposed[axis or OTHER], hidden[axis or OTHER] = mine & ~compute, mine & compute
        charged = charged | inside
    free = ~(compute | charged)
    return Labels(segments, compute, exposed, hidden, copy & free, free & ~copy)


def _axis(axis: str | None) -> str | None:
    return axis if axis in AXES else None


def break_down(rank: TracedRank) -> Breakdown:
    """Return the mean step of a rank."""
    parts = [_sum(label_window(rank.activity, window)) for window in rank.windows]
    return mean_breakdown(parts)


def _sum(labels: Labels) -> Breakdown:
    length_s = labels.segments.length_s

    def seconds(marked: Bools) -> float:
        return float(np.sum(length_s[marked]))

    return Breakdown(
        float(np.sum(length_s)),
        seconds(labels.compute),
        {axis: seconds(marked) for axis, marked in labels.exposed.items() if marked.any()},
        {axis: seconds(marked) for axis, marked in labels.hidden.items() if marked.any()},
        seconds(labels.copy),
        seconds(labels.idle),
    )


def mean_breakdown(parts: list[Breakdown]) -> Breakdown:
    """Return the mean of several: steps of a rank, or ranks of a run."""

    def by_axis(tables: list[dict[str, float]]) -> dict[str, float]:
        named = [axis or OTHER for axis in AXES if any((axis or OTHER) in table for table in tables)]
        return {axis: float(np.mean([table.get(axis, 0.0) for table in tables])) for axis in named}

    def mean(values: list[float]) -> float:
        return float(np.mean(values)) if values else 0.0

    return Breakdown(
        mean([part.step_time_s for part in parts]),
        mean([part.compute_s for part in parts]),
        by_axis([part.exposed_s for part in parts]),
        by_axis([part.hidden_s for part in parts]),
        mean([part.copy_s for part in parts]),
        mean([part.idle_s for part in parts]),
    )
