"""A traced run as the timeline of a result: the labels of the breakdown over time, for the same figures and tables."""

from typing import Any

import numpy as np

from charllm.spec.parallelism import Parallelism
from charllm.timeline.labels import LABELS
from charllm.timeline.table import COLUMNS
from charllm.trace.analyses.breakdown import AXES, OTHER, Breakdown, label_window
from charllm.trace.analyses.bubble import stage_of
from charllm.trace.run import TracedRank, TracedRun
from charllm.trace.steps import Window

UNNAMED_AXIS = "dp_exposed"
"""Where communication is shown whose axis is not known; the result says so."""


def tabulate_trace(run: TracedRun, parallelism: Parallelism | None = None) -> dict[str, list[Any]]:
    """Return what each rank does in its first step, by start, in the columns of a simulated timeline."""
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for rank in run.ranks:
        stage = stage_of(run, rank.rank, parallelism)
        for activity, start_s, end_s in label_times(rank, rank.windows[0]) if rank.windows else ():
            row = (rank.rank if stage is None else stage, rank.rank, activity, None, None, start_s, end_s)
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
    return columns


def label_times(rank: TracedRank, window: Window) -> list[tuple[str, float, float]]:
    """Return the labels of a window, neighbours of one label joined; times count from its start."""
    labels = label_window(rank.activity, window)
    names = [label_of(axis) for axis in AXES]
    code = np.full(len(labels.idle), LABELS.index("overhead"))
    code[labels.compute] = LABELS.index("compute")
    for name, axis in zip(names, AXES, strict=True):
        code[labels.exposed[axis or OTHER]] = LABELS.index(name)
    changes = np.flatnonzero(np.diff(code, prepend=-1))
    starts = labels.segments.start_s[changes] - window.start_s
    ends = np.append(starts[1:], window.end_s - window.start_s)
    rows = zip(code[changes].tolist(), starts.tolist(), ends.tolist(), strict=True)
    return [(LABELS[label], begin_s, finish_s) for label, begin_s, finish_s in rows]


def label_of(axis: str | None) -> str:
    """Return the label of exposed communication of an axis."""
    return f"{axis}_exposed" if axis and axis != OTHER else UNNAMED_AXIS


def breakdown_labels(parts: Breakdown, optimizer_s: float) -> dict[str, float]:
    """Return a breakdown under the labels of a simulated one; copies and idle time are overhead."""
    labels = dict.fromkeys(LABELS, 0.0)
    labels["optimizer"] = min(optimizer_s, parts.compute_s)
    labels["compute"] = parts.compute_s - labels["optimizer"]
    labels["overhead"] = parts.copy_s + parts.idle_s
    for axis, seconds in parts.exposed_s.items():
        labels[label_of(axis)] += seconds
    return labels
