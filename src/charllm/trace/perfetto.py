"""Traces of Perfetto: its protobuf (track events), and pictures in Chrome's JSON that no profiler of torch wrote.

Source: perfetto.dev/docs/reference/trace-packet-proto. Trace: packets 1. TracePacket: clocks 6, time 8, sequence 10,
track event 11, interned texts 12, flags 13, clock 58, defaults 59, track 60. TrackEvent: categories by number 3, type
9, name by number 10, track 11, category 22, name 23, annotations 4. A clock may be incremental: its times are added up.
Ignores: scheduling, counters and memory, which other data sources of Perfetto write; instants.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from charllm.errors import SpecError
from charllm.trace.events import RankTrace
from charllm.trace.json_events import Reading, read_batches
from charllm.trace.protobuf import Fields, Truncated, double_of, read_fields, text_of
from charllm.trace.slices import Slice, read_picture
from charllm.trace.tool_events import build_traces
from charllm.units import MICRO, NANO

PERFETTO_SUFFIXES = (".pftrace", ".perfetto-trace")
LARGEST_BYTES = 1 << 30
BEGIN, END = 1, 2
CLEARED = 1
"""Flag of a packet before which interned texts and clocks are forgotten."""
FIRST_OWN_CLOCK = 64
MICROSECOND = round(MICRO / NANO)


@dataclass
class Writer:
    """What packets of one writer refer to."""

    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    """Of annotations."""
    texts: dict[int, str] = field(default_factory=dict)
    clock: int = 0
    track: int = 0
    clocks: dict[int, tuple[bool, int]] = field(default_factory=dict)
    """Clock: whether it is incremental, and nanoseconds of its unit."""
    now: dict[int, int] = field(default_factory=dict)
    """Incremental clock: where it stands."""
    open: dict[int, list[tuple[str, str, int, dict[str, Any]]]] = field(default_factory=dict)
    """Track: slices that have begun."""


def read_perfetto(path: Path) -> list[RankTrace]:
    """Read a protobuf of Perfetto."""
    with path.open("rb") as file:
        data = file.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise SpecError("TRACE", str(path), f"a trace of Perfetto of at most {LARGEST_BYTES} bytes")
    warnings: list[str] = []
    found = read_picture(_packet_slices(path, data, warnings))
    if not found.events:
        expected = (
            "slices of rocprofv3, JAX or charllm; others: traceconv json TRACE OUT, and see it in ui.perfetto.dev"
        )
        raise SpecError("TRACE", f"{path}, a protobuf of Perfetto", expected)
    return build_traces(path, "perfetto", found.events, found.told, [*found.warnings, *warnings])


def read_chrome_picture(path: Path) -> list[RankTrace]:
    """Read a picture in Chrome's JSON: JAX's trace.json.gz, rocprofv3's by traceconv, those of charllm --perfetto."""
    reading = Reading()
    tables = [table for batch in read_batches(path, json.loads, lambda table: table, reading) for table in batch]
    found = read_picture(_chrome_slices([table for table in tables if isinstance(table, dict)]))
    return build_traces(path, "picture", found.events, found.told, found.warnings) if found.events else []


def _chrome_slices(tables: Sequence[Mapping[str, Any]]) -> Iterator[Slice]:
    processes, threads = dict[Any, str](), dict[Any, str]()
    for table in tables:
        args = table.get("args")
        if table.get("ph") == "M" and isinstance(args, dict) and "name" in args:
            if table.get("name") == "process_name":
                processes[str(table.get("pid"))] = str(args["name"])
            elif table.get("name") == "thread_name":
                threads[str(table.get("pid")), str(table.get("tid"))] = str(args["name"])
    for table in tables:
        start, spent = table.get("ts"), table.get("dur")
        if table.get("ph") != "X" or not isinstance(start, int | float) or not isinstance(spent, int | float):
            continue
        process, thread = str(table.get("pid")), str(table.get("tid"))
        args = table.get("args")
        yield Slice(
            str(table.get("name", "")), str(table.get("cat", "")), processes.get(process, process),
            threads.get((process, thread), thread), round(start * MICROSECOND), spent * MICROSECOND,
            args if isinstance(args, dict) else {},
        )  # fmt: skip


def _packet_slices(path: Path, data: bytes, warnings: list[str]) -> Iterator[Slice]:
    """List the slices of a trace; each is known at its end."""
    sequences: dict[int, Writer] = {}
    tracks: dict[int, tuple[int, str]] = {}
    try:
        for packet in _packets(data):
            fields = read_fields(packet)
            numbers = {key: value for key, value in fields if isinstance(value, int)}
            sequence = sequences.setdefault(numbers.get(10, 0), Writer())
            if numbers.get(13, 0) & CLEARED:
                sequences[numbers.get(10, 0)] = sequence = Writer(open=sequence.open)
            for key, value in fields:
                if isinstance(value, bytes):
                    _note(key, value, sequence, tracks)
            event = next((value for key, value in fields if key == 11 and isinstance(value, bytes)), None)
            now = _time(numbers, sequence)
            if event is not None:
                yield from _follow(read_fields(event), now, sequence, tracks)
    except Truncated as error:
        warnings.append(f"{path.name}: it {error}; what comes before was read")


def _packets(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = shift = 0
        if data[at] != 0x0A:
            raise Truncated("holds what is no packet of Perfetto")
        at += 1
        while at < len(data):
            byte = data[at]
            size |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if not byte & 0x80:
                break
        if at + size > len(data):
            raise Truncated("ends inside a packet")
        yield data[at : at + size]
        at += size


def _note(key: int, value: bytes, sequence: Writer, tracks: dict[int, tuple[int, str]]) -> None:
    """Note the texts, clocks, defaults and tracks that a packet states."""
    if key == 12:
        places = {1: sequence.categories, 2: sequence.names, 3: sequence.keys, 29: sequence.texts}
        for number, entry in read_fields(value):
            if number in places and isinstance(entry, bytes):
                parts = read_fields(entry)
                places[number][_number(parts, 1)] = text_of(parts, 2)
    elif key == 6:
        for number, clock in read_fields(value):
            if number == 1 and isinstance(clock, bytes):
                parts = read_fields(clock)
                name, unit = _number(parts, 1), _number(parts, 4) or 1
                if name >= FIRST_OWN_CLOCK:
                    sequence.clocks[name] = bool(_number(parts, 3)), unit
                    sequence.now[name] = _number(parts, 2) * unit
    elif key == 59:
        parts = read_fields(value)
        sequence.clock = _number(parts, 58)
        sequence.track = _number(read_fields(_message(parts, 11)), 11)
    elif key == 60:
        parts = read_fields(value)
        process, thread = read_fields(_message(parts, 3)), read_fields(_message(parts, 4))
        own = text_of(parts, 2) or text_of(parts, 10) or text_of(process, 6) or text_of(thread, 5)
        tracks[_number(parts, 1)] = _number(parts, 5), own


def _time(numbers: Mapping[int, int], sequence: Writer) -> int:
    """Return when a packet is from, and move an incremental clock on."""
    clock, stated = numbers.get(58, sequence.clock), numbers.get(8, 0)
    incremental, unit = sequence.clocks.get(clock, (False, 1))
    if not incremental:
        return stated * unit
    sequence.now[clock] = sequence.now.get(clock, 0) + stated * unit
    return sequence.now[clock]


def _follow(event: Fields, now: int, sequence: Writer, tracks: Mapping[int, tuple[int, str]]) -> Iterator[Slice]:
    kind, track = _number(event, 9), _number(event, 11) or sequence.track
    stack = sequence.open.setdefault(track, [])
    if kind == BEGIN:
        name = text_of(event, 23) or sequence.names.get(_number(event, 10), "")
        category = text_of(event, 22) or sequence.categories.get(_number(event, 3), "")
        stack.append((name, category, now, _annotations(event, sequence)))
    elif kind == END and stack:
        name, category, start, args = stack.pop()
        parent, own = tracks.get(track, (0, ""))
        yield Slice(name, category, tracks.get(parent, (0, ""))[1], own, start, max(0, now - start), args)


def _annotations(event: Fields, sequence: Writer) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, data in event:
        if number != 4 or not isinstance(data, bytes):
            continue
        parts = read_fields(data)
        name = text_of(parts, 10) or sequence.keys.get(_number(parts, 1), "")
        for key, value in parts:
            if key in (2, 3, 4) and isinstance(value, int):
                found[name] = value
            elif key == 5 and isinstance(value, bytes):
                found[name] = double_of(value)
            elif key == 6 and isinstance(value, bytes):
                found[name] = value.decode("utf-8", "replace")
            elif key == 17 and isinstance(value, int):
                found[name] = sequence.texts.get(value, "")
    return found


def _message(fields: Fields, number: int) -> bytes:
    return next((value for key, value in fields if key == number and isinstance(value, bytes)), b"")


def _number(fields: Fields, number: int) -> int:
    """Return a number of a field, the first where it is repeated and packed; 0 where there is none."""
    for key, value in fields:
        if key == number:
            return value if isinstance(value, int) else int.from_bytes(value, "little") if len(value) == 8 else 0
    return 0
