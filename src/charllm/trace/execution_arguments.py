"""Collective arguments from execution traces: a profiler's trace of gloo has none, one beside it does."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from charllm.errors import SpecError
from charllm.trace.collective_kinds import collective_kind
from charllm.trace.event_columns import Numbered
from charllm.trace.events import NONE, RANGE, Collective, Group, RankTrace
from charllm.trace.execution import read_ordered_messages
from charllm.workload.messages import Message


def join_arguments(trace: RankTrace, path: Path) -> RankTrace:
    """Give the collectives of a trace without arguments those of an execution trace of the same rank.

    They are matched by kind and order, where both traces have as many of a kind; what does not match is said.
    """
    if (trace.events.collective != NONE).any():
        return trace
    try:
        messages = read_ordered_messages(path)
    except SpecError as error:
        return replace(trace, warnings=(*trace.warnings, f"{path.name}: {error}"))
    column, collectives = trace.events.collective.copy(), Numbered[Collective]()
    rows, kinds = _ranges(trace)
    traced = Counter(kinds)
    for kind, count in Counter(message.kind for message in messages).items():
        if traced[kind] == count:
            own = [message for message in messages if message.kind == kind]
            column[rows[np.array(kinds) == kind]] = [collectives[_collective(message)] for message in own]
    if not collectives:
        told = f"{path.name}: holds other collectives than {trace.path.name}; its message sizes are not used"
        return replace(trace, warnings=(*trace.warnings, told))
    return replace(trace, events=trace.events._replace(collective=column), collectives=collectives.texts())


def _ranges(trace: RankTrace) -> tuple[np.ndarray[tuple[int], np.dtype[np.intp]], list[str]]:
    """Return the ranges of a backend's collectives in order, and their kinds."""
    named = np.array([":" in name and "::" not in name for name in trace.names] or [False])
    rows = np.flatnonzero(trace.matches(RANGE) & named[trace.events.name])
    return rows, [collective_kind(trace.names[trace.events.name[row]]) for row in rows]


def _collective(message: Message) -> Collective:
    group = Group(message.group, message.group, message.ranks, len(message.ranks))
    return Collective(message.kind, message.message_bytes, message.message_bytes, "Byte", group)
