"""Which kernels and classes take the time?"""

from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Ints
from charllm.trace.activity import Activity
from charllm.trace.events import NONE
from charllm.trace.links import operators_of
from charllm.trace.run import TracedRank

LONGEST_NAME = 200


class KernelRow(NamedTuple):
    """All calls of one kernel in a mean step of one rank."""

    name: str
    work: str
    calls: float
    seconds: float
    share: float
    """Of the seconds of all events."""
    operator: str | None
    """That launched most of its time; None where the trace does not say."""


def in_steps(rank: TracedRank) -> Activity:
    """Return the events that begin inside a step."""
    activity = rank.activity
    bounds = sorted((window.start_s, window.end_s) for window in rank.windows)
    begins_s, ends_s = np.array(bounds).reshape(-1, 2).T
    place = np.searchsorted(begins_s, activity.start_s, side="right") - 1
    # Windows may overlap: an event lies in one if it begins before the latest end so far.
    until_s = np.append(np.maximum.accumulate(ends_s), -np.inf)
    return activity.take((place >= 0) & (activity.start_s < until_s[place]))


def class_seconds(rank: TracedRank) -> dict[str, float]:
    """Return the seconds of each class in a mean step, largest first; events that run side by side both count."""
    here, steps = in_steps(rank), max(1, len(rank.windows))
    sums = np.bincount(here.work, weights=here.seconds, minlength=len(here.works)) / steps
    found: dict[str, float] = {}
    for work, seconds in zip(here.works, sums.tolist(), strict=True):
        if seconds > 0:
            found[work.name] = found.get(work.name, 0.0) + seconds
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def kernel_rows(rank: TracedRank) -> list[KernelRow]:
    """Return every kernel by name, largest first."""
    here, steps = in_steps(rank), max(1, len(rank.windows))
    names = rank.trace.events.name[here.row].astype(np.int64)
    pairs, place = np.unique(np.stack([names, here.work.astype(np.int64)], axis=1), axis=0, return_inverse=True)
    place = place.reshape(-1)
    seconds = np.bincount(place, weights=here.seconds, minlength=len(pairs)) / steps
    calls = np.bincount(place, minlength=len(pairs)) / steps
    total_s = float(seconds.sum()) or 1.0
    operators = _main_operators(rank, here, place, len(pairs))
    rows = [
        KernelRow(
            rank.trace.names[int(name)][:LONGEST_NAME],
            here.works[int(work)].name,
            float(calls[at]),
            float(seconds[at]),
            float(seconds[at]) / total_s,
            operators[at],
        )
        for at, (name, work) in enumerate(pairs.tolist())
    ]
    return sorted(rows, key=lambda row: -row.seconds)


def _main_operators(rank: TracedRank, here: Activity, place: Ints, count: int) -> list[str | None]:
    """Return the operator that launched most of the seconds of each of some groups of events."""
    rows = operators_of(rank.trace, here.call)
    known = np.flatnonzero(rows != NONE)
    named = rank.trace.events.name[rows[known]].astype(np.int64)
    keys, of = np.unique(np.stack([place[known], named]), axis=1, return_inverse=True)
    spent = np.bincount(of.reshape(-1), here.seconds[known], keys.shape[1])
    found: list[str | None] = [None] * count
    for at in np.argsort(spent, kind="stable").tolist():
        found[int(keys[0, at])] = rank.trace.names[int(keys[1, at])]
    return found


def unknown_fraction(rank: TracedRank) -> float:
    """Return the share of the events' seconds whose class is not known."""
    here = in_steps(rank)
    total_s = float(here.seconds.sum())
    return float(here.seconds[here.unknown].sum()) / total_s if total_s else 0.0


def as_table(row: KernelRow) -> dict[str, Any]:
    """Return a row as a table."""
    table = row._asdict()
    return {"name": table.pop("name"), "class": table.pop("work"), **table}
