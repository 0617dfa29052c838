"""How much does each pipeline stage wait for its neighbours?

bubble = idle time + waiting in exposed sends and receives, between the first and the last kernel that computes in a
step. Of the exposed time of sends, the share that waits is 1 - sum(transfer) / sum(length) over their calls, where the
transfer of a message is the shortest length of a call of its size.
Ignores: idle time of the same stretch that is not the schedule's (a late host); idle.py tells how much that is.
"""

from typing import NamedTuple

import numpy as np

from charllm.layout.grid import Grid
from charllm.spec.parallelism import Parallelism
from charllm.trace.analyses.breakdown import label_window
from charllm.trace.classes import COMPUTE, SEND_RECV
from charllm.trace.collective_calls import Calls, list_calls
from charllm.trace.events import Group
from charllm.trace.run import TracedRank, TracedRun
from charllm.trace.steps import Window

PIPELINE = "pp"


class StageBubble(NamedTuple):
    """The bubble of one rank in a mean step."""

    rank: int
    stage: int | None
    bubble_s: float
    fraction: float
    """Of the step."""


def find_bubbles(run: TracedRun, parallelism: Parallelism | None = None) -> list[StageBubble]:
    """Return the bubble of every rank that takes part in a pipeline."""
    return [
        _bubble(rank, stage_of(run, rank.rank, parallelism))
        for rank in run.ranks
        if rank.windows and any(work.axis == PIPELINE for work in rank.activity.works)
    ]


def stage_of(run: TracedRun, rank: int, parallelism: Parallelism | None) -> int | None:
    """Return the pipeline stage of a rank: the spec's, or its place in its pipeline's group."""
    if parallelism is not None:
        return int(Grid(parallelism).stage(rank)) if rank < parallelism.world else None
    groups: list[Group] = [group for group, axis in run.axes.items() if axis.name == PIPELINE]
    places = [sorted(group.ranks).index(rank) for group in groups if rank in group.ranks]
    return max(places) if places else None


def _bubble(rank: TracedRank, stage: int | None) -> StageBubble:
    calls = list_calls(rank)
    works = rank.activity.works
    sends = np.array([work.kind == SEND_RECV and work.axis == PIPELINE for work in works] or [False])
    waiting = _waiting_share(calls.take(sends[calls.work]))
    found = [_window_bubble(rank, window, waiting) for window in rank.windows]
    bubble_s, step_s = float(np.mean(found)), float(np.mean([window.seconds for window in rank.windows]))
    return StageBubble(rank.rank, stage, bubble_s, bubble_s / step_s)


def _waiting_share(sends: Calls) -> float:
    if not len(sends.seconds) or not sends.seconds.sum():
        return 0.0
    _sizes, place = np.unique(sends.message_bytes, return_inverse=True)
    shortest = np.full(place.max() + 1, np.inf)
    np.minimum.at(shortest, place, sends.seconds)
    return float(1.0 - shortest[place].sum() / sends.seconds.sum())


def _window_bubble(rank: TracedRank, window: Window, waiting: float) -> float:
    here = rank.activity.inside(window.start_s, window.end_s)
    computes = here.of_family(COMPUTE)
    if not computes.any():
        return 0.0
    first_s, last_s = float(here.start_s[computes].min()), float(here.end_s[computes].max())
    labels = label_window(rank.activity, Window(window.number, max(first_s, window.start_s), min(last_s, window.end_s)))
    length_s = labels.segments.length_s
    return float(length_s[labels.idle].sum() + waiting * length_s[labels.exposed[PIPELINE]].sum())
