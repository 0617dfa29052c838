"""Do collectives wait or transfer? And for whom?

The ranks of a collective leave it together, so the last to arrive spends only the transfer in it. For call k of a
group, with d_r(k) its length on rank r:  transfer(k) = min over r of d_r(k);  wait_r(k) = d_r(k) - transfer(k).
No common clock is needed. What others waited in call k is charged to the rank with the shortest call.
Ignores: sends (see bubble.py); ranks without a trace, whose absence makes waits look like transfers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charllm.arrays import Bools, Floats
from charllm.trace.analyses.breakdown import OTHER
from charllm.trace.collective_calls import Calls, list_calls
from charllm.trace.events import NONE
from charllm.trace.intervals import merge
from charllm.trace.run import TracedRank, TracedRun

MATCHED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Kinds that no rank leaves before all have arrived."""


class Waits(NamedTuple):
    """Seconds of a mean step of one rank in matched collectives; calls that overlap count once."""

    rank: int
    wait_s: float
    transfer_s: float
    caused_wait_s: float
    """Longest that another rank waited in the calls that this rank joined last."""


class Matched(NamedTuple):
    """Calls of a group that all its traced ranks made."""

    ranks: list[int]
    axis: str | None
    start_s: Floats
    """[rank, call]"""
    seconds: Floats
    """[rank, call]"""

    @property
    def transfer_s(self) -> Floats:
        """Transfer of each call."""
        return np.asarray(self.seconds.min(axis=0))

    def waited(self, at: int, calls: Bools) -> float:
        """Return the seconds that a member waited in some calls."""
        start_s = self.start_s[at, calls]
        return merge(start_s, start_s + (self.seconds[at] - self.transfer_s)[calls]).total_s

    def caused(self, at: int) -> float:
        """Return the longest that another member waited in the calls that this one joined last."""
        last = self.seconds.argmin(axis=0) == at
        return max(self.waited(other, last) for other in range(len(self.ranks)) if other != at)


class WaitSummary(NamedTuple):
    """Waits of every rank, and what could not be matched."""

    ranks: list[Waits]
    by_axis: dict[str, dict[str, float]]
    """Axis: wait_s and transfer_s of a mean step, mean over ranks."""
    warnings: list[str]


def split_waits(run: TracedRun) -> WaitSummary | None:
    """Split collectives into waits and transfers; None where fewer than two ranks made the same calls."""
    matched, warnings = match_calls(run)
    if not matched:
        return None
    steps = {rank.rank: max(1, len(rank.windows)) for rank in run.ranks}
    sums = {rank: [0.0, 0.0, 0.0] for rank in steps}
    by_axis: dict[str, list[float]] = {}
    for group in matched:
        every = np.ones(group.seconds.shape[1], dtype=bool)
        axis_sums = by_axis.setdefault(group.axis or OTHER, [0.0, 0.0])
        for at, rank in enumerate(group.ranks):
            found = (group.waited(at, every), float(group.transfer_s.sum()), group.caused(at))
            sums[rank] = [total + value / steps[rank] for total, value in zip(sums[rank], found, strict=True)]
            axis_sums[:] = [total + value / steps[rank] for total, value in zip(axis_sums, found[:2], strict=True)]
    axes = {
        axis: {"wait_s": waited / len(steps), "transfer_s": moved / len(steps)}
        for axis, (waited, moved) in by_axis.items()
    }
    return WaitSummary([Waits(rank, *values) for rank, values in sums.items()], axes, warnings)


def match_calls(run: TracedRun) -> tuple[list[Matched], list[str]]:
    """Match the calls of each group across its traced ranks, by their order."""
    members: dict[tuple[object, ...], list[tuple[TracedRank, Calls]]] = {}
    for rank in run.ranks:
        calls = list_calls(rank)
        kinds = np.array([work.kind in MATCHED for work in rank.activity.works] or [False])
        for number, group in enumerate(calls.groups):
            mine = calls.take((calls.group == number) & kinds[calls.work])
            if len(mine.work):
                members.setdefault((group.name, group.ranks or group.size), []).append((rank, mine))
    matched, warnings = [], []
    for key, ranks in members.items():
        if len(ranks) < 2:
            continue
        found = _align(ranks)
        if found is None:
            warnings.append(
                f"ranks of group {key} made different collectives; their waits are not separated from transfers"
            )
        else:
            matched.append(found)
    return matched, warnings


def _align(ranks: Sequence[tuple[TracedRank, Calls]]) -> Matched | None:
    """Match the last calls of all ranks, as many as each has; None where their kinds or sizes differ."""
    count = min(len(calls.work) for _rank, calls in ranks)
    kinds = [[rank.activity.works[work].kind for work in calls.work[-count:]] for rank, calls in ranks]
    sizes = np.stack([calls.message_bytes[-count:] for _rank, calls in ranks])
    all_to_all = np.array([kind == "all_to_all" for kind in kinds[0]])
    same = (sizes == sizes[0]).all(axis=0) | (sizes == NONE).any(axis=0) | all_to_all
    if any(other != kinds[0] for other in kinds) or not same.all():
        return None
    first, calls = ranks[0]
    start_s, seconds = (
        np.stack([column[-count:] for column in columns])
        for columns in ([calls.start_s for _rank, calls in ranks], [calls.seconds for _rank, calls in ranks])
    )
    axis = first.activity.works[calls.work[-1]].axis
    return Matched([rank.rank for rank, _calls in ranks], axis, start_s, seconds)
