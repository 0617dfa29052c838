"""The class of every event that keeps a device busy: by collective arguments, then names, then operators and streams.

1. The arguments that a backend recorded with a collective, on its kernel or on the operator that launched it.
2. The name of the kernel; where a collective has no arguments, the range around it tells all-to-all from sends.
3. For a kernel of unknown name, the operator that launched it, then its stream: a stream that only communicates.

Where a trace has no device events (gloo on CPUs), collectives, and operators that enclose no other, stand for them.
"""

from collections.abc import Mapping

import numpy as np

from charllm.arrays import Bools, Ints
from charllm.trace.activity import Activity, Work, communication
from charllm.trace.axes import Axis, complete, only_group
from charllm.trace.classes import (
    COMMUNICATION,
    COMPUTE,
    HOST,
    MEMORY,
    SEND_RECV,
    UNKNOWN,
    Classes,
    communication_kind,
)
from charllm.trace.collective_kinds import KINDS
from charllm.trace.event_columns import Numbered
from charllm.trace.events import (
    DEVICE_KINDS,
    DEVICE_RANGE,
    KERNEL,
    MEMCPY,
    NONE,
    OP,
    RANGE,
    Codes,
    Group,
    RankTrace,
)  # fmt: skip
from charllm.trace.links import enclosing, enclosing_on_stream, launching_calls, operators_of

STREAM_SHARE = 0.9
"""An unknown kernel communicates where at least this share of the known time on its stream does (assumed)."""
PEER_COPY = "PtoP"
"""In the name of a copy from one GPU to another."""
BACKEND_RANGES = ("nccl:", "gloo:", "rccl:", "ucc:", "mpi:")
"""How the ranges that backends open around a collective begin."""
NOT_KNOWN = Work(UNKNOWN, COMPUTE)
AXES = ("tp", "pp", "dp", "ep", "cp")
COLLECTIVES = (*KINDS.values(), SEND_RECV, "collective_permute", "peer_copy", "other communication")
Works = Numbered[Work]


def classify(trace: RankTrace, classes: Classes, axes: Mapping[Group, Axis]) -> Activity:
    """Return what keeps the device of a rank busy, and the class of each event."""
    rows = np.flatnonzero(trace.matches(*DEVICE_KINDS)) if trace.has_device_events else _host_rows(trace, classes)
    calls, works = launching_calls(trace, rows), Works()
    work = _by_name(trace, rows, works, classes)
    collective = _recorded(trace, rows, calls, work, works)
    _apply_arguments(trace, collective, work, works, axes)
    _apply_ranges(trace, rows, calls, (collective == NONE) & _is(work, works, COMMUNICATION), work, works)
    _apply_only_group(collective == NONE, work, works, _alone(trace, axes))
    _apply_operators(trace, calls, work, works, classes)
    _apply_streams(trace, rows, work, works)
    start_s, end_s = trace.events.start_s[rows], trace.events.end_s[rows]
    return Activity(works.texts(), rows, start_s, end_s, work, calls, collective)


def _host_rows(trace: RankTrace, classes: Classes) -> Ints:
    """Return the collectives of a backend without device events, and the operators that enclose no other that works."""
    events = trace.events
    collects = np.array([name.startswith(BACKEND_RANGES) for name in trace.names] or [False])[events.name]
    works = np.array([classes.op_class(name) != HOST for name in trace.names] or [False])[events.name]
    ops = np.flatnonzero(trace.matches(OP) & works)
    order = ops[np.lexsort((-events.duration_s[ops], events.start_s[ops], events.thread[ops]))]
    following = np.append(order[1:], NONE)
    same = (events.thread[order] == events.thread[following]) & (following != NONE)
    encloses = same & (events.start_s[following] < events.end_s[order])
    return np.sort(np.concatenate([order[~encloses], np.flatnonzero(trace.matches(RANGE) & collects)]))


def _by_name(trace: RankTrace, rows: Ints, works: Works, classes: Classes) -> Codes:
    """Return the class that each event's kind and name say; every different name is looked up once."""
    pairs = np.stack([trace.events.kind[rows].astype(np.int64), trace.events.name[rows]], axis=1)
    different, place = np.unique(pairs, axis=0, return_inverse=True)
    codes = [
        works[
            _stated(told) if (told := trace.told.get(trace.names[name])) else _named(kind, trace.names[name], classes)
        ]
        for kind, name in different.tolist()
    ]
    return np.array(codes, dtype=np.int32)[place.reshape(-1)]


def _stated(told: str) -> Work:
    """Return a class that a file states: ``gemm``, or a collective and its axis, ``tp all_gather``."""
    axis, _, kind = told.partition(" ")
    if axis in AXES and kind:
        return communication(communication_kind(kind), axis)
    if communication_kind(told) in COLLECTIVES:
        return communication(communication_kind(told), None)
    return Work(told, MEMORY if told in ("memcpy", "memset") else COMPUTE)


def _named(kind: int, name: str, classes: Classes) -> Work:
    if kind in DEVICE_KINDS and kind != KERNEL:
        if PEER_COPY in name:
            return communication("peer_copy", None)
        return Work("memcpy" if kind == MEMCPY else "memset", MEMORY)
    if kind == RANGE:
        return communication(communication_kind(name), None)
    if found := classes.communication_of(name) if kind == KERNEL else None:
        return communication(found.kind, found.axis)
    known = classes.kernel_class(name) if kind == KERNEL else classes.op_class(name)
    return Work(known, COMPUTE) if known else NOT_KNOWN


def _is(work: Codes, works: Works, family: int) -> Bools:
    return np.array([one.family == family for one in works] or [False])[work]


def _recorded(trace: RankTrace, rows: Ints, calls: Ints, work: Codes, works: Works) -> Codes:
    """Return the collective whose arguments were recorded with an event, or with the operator that launched it."""
    found = trace.events.collective[rows].copy()
    asked = np.flatnonzero((found == NONE) & _is(work, works, COMMUNICATION))
    hosts = np.flatnonzero(trace.matches(OP, RANGE) & (trace.events.collective != NONE))
    if len(asked) and len(hosts):
        around = enclosing(trace, hosts, calls[asked])
        found[asked] = np.where(around == NONE, NONE, trace.events.collective[around])
    return found


def _apply_arguments(
    trace: RankTrace, collective: Codes, work: Codes, works: Works, axes: Mapping[Group, Axis]
) -> None:
    listed = {group.name: group for group in trace.groups}
    recorded = np.flatnonzero(collective != NONE)
    numbers, place = np.unique(collective[recorded], return_inverse=True)
    ones = [trace.collectives[number] for number in numbers.tolist()]
    codes = [works[_serving(communication_kind(one.name), axes.get(complete(one.group, listed)))] for one in ones]
    work[recorded] = np.array(codes, dtype=np.int32)[place.reshape(-1)]


def _apply_ranges(trace: RankTrace, rows: Ints, calls: Ints, asked: Bools, work: Codes, works: Works) -> None:
    """Name collectives without arguments after the backend's range around them, on the device or on the host."""
    backend = np.array([name.startswith(BACKEND_RANGES) for name in trace.names] or [False])[trace.events.name]
    around = enclosing_on_stream(trace, np.flatnonzero(backend & trace.matches(DEVICE_RANGE)), rows[asked])
    hosts = enclosing(trace, np.flatnonzero(backend & trace.matches(RANGE)), calls[asked])
    around = np.where(around == NONE, hosts, around)
    named = np.flatnonzero(asked)[around != NONE]
    kinds = [communication_kind(trace.names[trace.events.name[row]]) for row in around[around != NONE]]
    current = works.texts()
    work[named] = [works[communication(kind, current[work[at]].axis)] for kind, at in zip(kinds, named, strict=True)]


def _apply_only_group(asked: Bools, work: Codes, works: Works, axis: Axis | None) -> None:
    """Give collectives without arguments the axis of the only group that the trace lists."""
    for number, one in enumerate(works.texts()):
        if one.family == COMMUNICATION and one.axis is None and axis is not None:
            work[asked & (work == number)] = works[_serving(one.kind, axis)]


def _alone(trace: RankTrace, axes: Mapping[Group, Axis]) -> Axis | None:
    group = only_group(trace)
    return axes.get(group) if group is not None else None


def _serving(kind: str, axis: Axis | None) -> Work:
    return communication(kind, axis.serving(kind) if axis else None)


def _apply_operators(trace: RankTrace, calls: Ints, work: Codes, works: Works, classes: Classes) -> None:
    """Name kernels of unknown name after the operator that launched them."""
    asked = np.flatnonzero((work == works.get(NOT_KNOWN, NONE)) & (calls != NONE))
    ops = operators_of(trace, calls[asked])
    for at, op in zip(asked[ops != NONE], ops[ops != NONE], strict=True):
        known = classes.op_class(trace.names[trace.events.name[op]])
        if known and known != HOST:
            work[at] = works[Work(known, COMPUTE)]


def _apply_streams(trace: RankTrace, rows: Ints, work: Codes, works: Works) -> None:
    """Take kernels that are still unknown for communication where their stream does nothing else."""
    unknown = work == works.get(NOT_KNOWN, NONE)
    if not unknown.any():
        return
    streams, seconds = trace.events.stream[rows], trace.events.duration_s[rows]
    _streams, place = np.unique(streams, return_inverse=True)
    known_s, communicates_s = (
        np.bincount(place.reshape(-1), np.where(kept, seconds, 0.0))
        for kept in (~unknown, ~unknown & _is(work, works, COMMUNICATION))
    )
    taken = unknown & ((known_s > 0) & (communicates_s >= STREAM_SHARE * known_s))[place.reshape(-1)]
    if taken.any():
        work[taken] = works[communication("other communication", None)]
