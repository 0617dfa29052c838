"""Replay a trace with something changed: the step time that would follow from it.

Every item of the graph (trace/graph.py) begins as soon as what it waits for is done. Unchanged, a trace gives its own
times back; changed, what was hidden may come to the front and what was in front may hide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from charllm.arrays import Bools, Floats, Ints
from charllm.errors import SpecError
from charllm.trace.activity import Activity
from charllm.trace.classes import COMMUNICATION, COMPUTE
from charllm.trace.events import NONE, RankTrace
from charllm.trace.graph import Graph, build_graph
from charllm.trace.run import TracedRank
from charllm.trace.settings import GPUS_PER_NODE
from charllm.trace.steps import Window
from charllm.units import NANO

CLOCK_BOUND = ("gemm", "attention", "convolution")
"""Classes whose time goes with the clock; of the rest, memory decides (assumed for whole classes)."""
TIE_S = 1e-9


class Edits(NamedTuple):
    """What is changed."""

    nic: float = 1.0
    """How many times as fast collectives between nodes are."""
    hide: tuple[str, ...] = ()
    """Collectives that cost no time: by axis (dp), kind (all_reduce) or class (`dp all_reduce`)."""
    clock_full: Mapping[int, float] = {}
    """Rank: the fraction of its full clock that it ran at."""
    scale: Mapping[str, float] = {}
    """Class: factor on its seconds."""
    launch: float = 1.0
    """Factor on the host's own time."""
    gpus_per_node: int = GPUS_PER_NODE


class Rank(NamedTuple):
    """One rank, ready to be replayed."""

    trace: RankTrace
    activity: Activity
    windows: list[Window]
    graph: Graph


class Replay(NamedTuple):
    """Step times of the trace, of its unchanged replay, and of the changed one."""

    steps: int
    traced_s: float
    unchanged_s: float
    changed_s: float
    kept: int = 0
    """Collectives of a mean step that keep their traced time, waits for peers included: not all of their ranks are
    here."""
    kept_s: float = 0.0
    """Their time on the slowest rank."""

    @property
    def error_fraction(self) -> float:
        """How far the unchanged replay lies from the trace."""
        return self.unchanged_s / self.traced_s - 1

    @property
    def change_fraction(self) -> float:
        """How much longer a step takes after the change."""
        return self.changed_s / self.unchanged_s - 1


def replay(traced_ranks: Sequence[TracedRank], edits: Edits) -> Replay:
    """Replay ranks, unchanged and changed; the step time is that of the slowest rank."""
    known = [rank for rank in traced_ranks if rank.windows and rank.trace.has_device_events]
    if not known:
        raise SpecError("TRACE", "no work on a device", "a trace with device events")
    first_ns = min(rank.trace.origin_ns for rank in known)
    ranks = [_prepare(rank, first_ns) for rank in known]
    _require_named(ranks, edits)
    shared = _shared_collectives(ranks)
    windows = [rank.windows for rank in ranks]
    steps = max(len(found) for found in windows)
    traced = [(found[0].start_s, found[-1].end_s) for found in windows]
    seconds = []
    for changed in (Edits(), edits):
        ends = replay_once(ranks, changed, shared)
        seconds.append(
            max(
                _moved(rank.graph, end, found[-1].end_s) - _moved(rank.graph, end, found[0].start_s)
                for rank, end, found in zip(ranks, ends, windows, strict=True)
            )
        )
    kept = [_kept(rank, place, shared) for place, rank in enumerate(ranks)]
    unchanged_s, changed_s = (spent / steps for spent in seconds)
    return Replay(
        steps,
        max(end - start for start, end in traced) / steps,
        unchanged_s,
        changed_s,
        round(max(count for count, _kept_s in kept) / steps),
        max(kept_s for _count, kept_s in kept) / steps,
    )


def _kept(rank: Rank, place: int, shared: Sequence[Ints]) -> tuple[int, float]:
    """Return how many collectives in the steps of a rank have peers without a trace, and their seconds."""
    known = [item - rank.graph.calls for members in shared for at, item in members.tolist() if at == place]
    alone = rank.activity.of_family(COMMUNICATION)
    alone[known] = False
    alone &= (rank.activity.start_s >= rank.windows[0].start_s) & (rank.activity.start_s < rank.windows[-1].end_s)
    return int(np.count_nonzero(alone)), float((rank.activity.end_s - rank.activity.start_s)[alone].sum())


def _prepare(rank: TracedRank, first_ns: int) -> Rank:
    """Find what waited for what, on the clock of the first rank."""
    shift_s = (rank.trace.origin_ns - first_ns) * NANO
    graph = build_graph(rank.trace, rank.activity)
    moved = replace(graph, start_s=graph.start_s + shift_s, end_s=graph.end_s + shift_s)
    windows = [one._replace(start_s=one.start_s + shift_s, end_s=one.end_s + shift_s) for one in rank.windows]
    return Rank(rank.trace, rank.activity, windows, moved)


def replay_once(ranks: Sequence[Rank], edits: Edits, shared: Sequence[Ints]) -> list[tuple[Floats, Floats]]:
    """Return starts and ends of the items of every rank after a change."""
    own_s = [_changed_s(rank, edits) for rank in ranks]
    hidden = [_items(rank, is_hidden(rank, edits)) for rank in ranks]
    times = [(rank.graph.start_s.copy(), rank.graph.end_s.copy()) for rank in ranks]
    arrived = _last_arrivals(ranks, shared)
    number = [np.full(len(rank.graph.start_s), NONE, np.int64) for rank in ranks]
    for place, members in enumerate(shared):
        for rank, item in members.tolist():
            number[rank][item] = place
    newest = [-np.inf] * len(shared)
    for rank, item, ends in _in_order(ranks):
        graph, (start_s, end_s) = ranks[rank].graph, times[rank]
        if not ends:
            start_s[item] = _begin(graph, item, start_s, end_s, edits.launch)
            if number[rank][item] != NONE:
                at = int(number[rank][item])
                newest[at] = max(newest[at], start_s[item])
            continue
        end_s[item] = start_s[item] + own_s[rank][item]
        if number[rank][item] != NONE and not hidden[rank][item]:
            at = int(number[rank][item])
            # Of a collective, what comes after the last arrival is transfer; before it, ranks wait.
            factor = own_s[rank][item] / max(graph.own_s[item], TIE_S)
            transfer_s = max(graph.end_s[item] - arrived[at], 0.0) * factor
            end_s[item] = max(newest[at] + transfer_s, start_s[item])
        if graph.waited[item] != NONE:
            end_s[item] = max(end_s[item], end_s[graph.waited[item]] + graph.tail_s[item])
    return times


def _begin(graph: Graph, item: int, start_s: Floats, end_s: Floats, launch: float) -> float:
    """Return when an item begins: as soon as all that it waits for is done; the first of all, when it did."""
    host = item < graph.calls
    least = -np.inf
    for place in (0, 1):
        before = graph.before[item, place]
        if before != NONE:
            least = max(least, end_s[before] + graph.lag_s[item, place] * (launch if host else 1.0))
    if graph.launch[item] != NONE:
        least = max(least, start_s[graph.launch[item]] + graph.launch_lag_s[item])
    return float(least) if np.isfinite(least) else float(graph.start_s[item])


def _in_order(ranks: Sequence[Rank]) -> list[tuple[int, int, bool]]:
    """List starts and ends of all items in the order in which they happened, each after what it waits for."""
    parts = []
    for place, rank in enumerate(ranks):
        graph = rank.graph
        items = np.arange(len(graph.start_s))
        # A kernel may begin before the one in front has quite ended (programmatic launches): its turn is after it.
        before = np.where(graph.before != NONE, graph.end_s[graph.before], -np.inf).max(axis=1)
        starts = np.maximum(graph.start_s, before)
        empty = graph.end_s <= starts
        for is_end, times in ((False, starts), (True, np.maximum(graph.end_s, starts))):
            parts.append((times, np.full(len(items), place), items, np.full(len(items), is_end), empty))
    time_s, rank_of, item, ends, empty = (np.concatenate(column) for column in zip(*parts, strict=True))
    # At one moment ends come first, but the end of an item that takes no time comes after its start.
    turn = np.where(ends & ~empty, 0, np.where(ends, 2, 1))
    order = np.lexsort((turn, time_s))
    return list(zip(rank_of[order].tolist(), item[order].tolist(), ends[order].tolist(), strict=True))


def _moved(graph: Graph, times: tuple[Floats, Floats], moment_s: float) -> float:
    """Return where a moment of the trace has moved to: as far from the last start or end before it as it was."""
    before = np.concatenate([graph.start_s, graph.end_s])
    after = np.concatenate(times)
    reached = np.flatnonzero(before <= moment_s + TIE_S)
    if not len(reached):
        return moment_s
    latest = before[reached].max()
    nearest = reached[before[reached] >= latest - TIE_S]
    return float(after[nearest].max() + max(moment_s - latest, 0.0))


def _changed_s(rank: Rank, edits: Edits) -> Floats:
    """Return how long each item takes by itself after a change."""
    graph, activity = rank.graph, rank.activity
    factor = np.ones(len(graph.start_s))
    factor[: graph.calls] = edits.launch
    work = np.ones(len(activity.row))
    for name, scale in edits.scale.items():
        work[activity.where(lambda known, name=name: name in (known.name, known.kind, known.axis))] *= scale  # type: ignore[misc]
    if rank.trace.rank in edits.clock_full:
        bound = activity.where(lambda known: known.family == COMPUTE and known.name in CLOCK_BOUND)
        work[bound] *= edits.clock_full[rank.trace.rank]
    if edits.nic != 1.0:
        work[crosses_nodes(rank, edits.gpus_per_node)] /= edits.nic
    work[is_hidden(rank, edits)] = 0.0
    factor[graph.calls :] = work
    return np.asarray(graph.own_s * factor)


def _items(rank: Rank, works: Bools) -> Bools:
    return np.concatenate([np.zeros(rank.graph.calls, bool), works])


def is_hidden(rank: Rank, edits: Edits) -> Bools:
    """Mark the work whose time is not to count."""
    return rank.activity.where(
        lambda known: known.family == COMMUNICATION and bool({known.name, known.kind, known.axis} & set(edits.hide))
    )


def crosses_nodes(rank: Rank, gpus_per_node: int) -> Bools:
    """Mark collectives of groups on several nodes; a group of unknown ranks counts where the job has several nodes."""
    found = []
    for one in rank.trace.collectives:
        nodes = {member // gpus_per_node for member in one.group.ranks}
        found.append(len(nodes) > 1 if nodes else (rank.trace.world_size or 0) > gpus_per_node)
    known = np.array([*found, (rank.trace.world_size or 0) > gpus_per_node])
    return np.asarray(known[rank.activity.collective] & rank.activity.of_family(COMMUNICATION))


def _shared_collectives(ranks: Sequence[Rank]) -> list[Ints]:
    """Return (rank, item) of each collective that all ranks of its group have here: the n-th of a group and kind."""
    seen: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for place, rank in enumerate(ranks):
        count: dict[tuple[object, ...], int] = {}
        for work, collective in enumerate(rank.activity.collective.tolist()):
            if collective == NONE:
                continue
            one = rank.trace.collectives[collective]
            key = (one.group.ranks or one.group.name, one.name)
            count[key] = count.get(key, 0) + 1
            seen.setdefault((*key, count[key]), []).append((place, rank.graph.calls + work))
    return [np.array(members) for key, members in seen.items() if len(members) > 1 and _is_whole(key[0], members)]


def _is_whole(group: object, members: list[tuple[int, int]]) -> bool:
    return not isinstance(group, tuple) or len(group) == len(members)


def _last_arrivals(ranks: Sequence[Rank], shared: Sequence[Ints]) -> list[float]:
    return [max(float(ranks[rank].graph.start_s[item]) for rank, item in members.tolist()) for members in shared]


def _require_named(ranks: Sequence[Rank], edits: Edits) -> None:
    """Refuse changes of what the trace does not have."""
    works = [work for rank in ranks for work in rank.activity.works]
    every = {name for work in works for name in (work.name, work.kind, work.axis) if name}
    collectives = {n for work in works if work.family == COMMUNICATION for n in (work.name, work.kind, work.axis) if n}
    for flag, asked, known in (("--hide", edits.hide, collectives), ("--scale", edits.scale, every)):
        for name in asked:
            if name not in known:
                raise SpecError(
                    flag, name, f"one of {', '.join(sorted(known)) or 'none: the trace has no collectives'}"
                )
    numbers = {rank.trace.rank for rank in ranks}
    for number in edits.clock_full:
        if number not in numbers:
            raise SpecError("--clock-full", number, f"a rank of the traces: {', '.join(map(str, sorted(numbers)))}")
    if edits.nic != 1.0 and not any(crosses_nodes(rank, edits.gpus_per_node).any() for rank in ranks):
        raise SpecError(
            "--nic",
            edits.nic,
            f"a trace with collectives between nodes of {edits.gpus_per_node} GPUs (--gpus-per-node)",
        )
