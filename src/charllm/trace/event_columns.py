"""Decoded events, a batch at a time, into columns."""

import ast
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from typing import Any, Generic, TypeVar

import numpy as np

from charllm.trace.event_fields import NO_ARGUMENTS
from charllm.trace.events import (
    DEVICE_KINDS,
    DEVICE_RANGE,
    DTYPES,
    KERNEL,
    KINDS,
    MEMCPY,
    MEMSET,
    NONE,
    OP,
    OVERHEAD,
    RANGE,
    RUNTIME,
    SYNC,
    Collective,
    Events,
    Group,
    narrow,
)  # fmt: skip
from charllm.trace.shaped import OPERATORS
from charllm.units import MICRO, NANO

T = TypeVar("T")
CATEGORIES = {
    "kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "cuda_sync": SYNC,
    "gpu_user_annotation": DEVICE_RANGE,
    "cpu_op": OP,
    "user_annotation": RANGE,
    "cuda_runtime": RUNTIME,
    "cuda_driver": RUNTIME,
    "privateuse1_runtime": RUNTIME,
    "mtia_runtime": RUNTIME,
    "xpu_runtime": RUNTIME,
    "xpu_driver": RUNTIME,
    "mtia_ccp_events": KERNEL,
    "overhead": OVERHEAD,
    "Kernel": KERNEL,
    "Memcpy": MEMCPY,
    "Memset": MEMSET,
    "Operator": OP,
    "Runtime": RUNTIME,
}
"""Kineto's categories, older spellings included: kinds. Others (Python's stack, arrows, memory) are not read."""
ON_DEVICE = np.isin(np.arange(len(KINDS)), (*DEVICE_KINDS, SYNC, DEVICE_RANGE))
"""By kind: whether its events have a device and a stream."""
LARGEST_ID, LARGEST_CODE, MOST_THREADS = 2**62, 2**31 - 1, 2**15 - 1
MOST_EVENTS = 24_000_000
"""Events of one trace that are kept: 1 GB of columns, and two to three times that while they are analysed."""
LONGEST_RANKS = 1 << 20
"""Characters of a list of ranks."""
JOINED_BATCHES = 64
"""Batches whose columns are joined as they come: memory of large arrays goes back to the system, of small ones not."""
START = Events._fields.index("start_s")


class Numbered(dict[T, int], Generic[T]):
    """Numbers each different thing as it is first seen."""

    def __missing__(self, thing: T) -> int:
        self[thing] = number = len(self)
        return number

    def texts(self) -> list[T]:
        """Return the things by number."""
        return list(self)


class Places(dict[tuple[Any, Any], int]):
    """Numbers threads by process and thread as they are written; their texts are made once.

    A trace with more threads than a column has numbers for gives all further ones the last number.
    """

    def __init__(self, threads: Numbered[tuple[str, str]]) -> None:
        super().__init__()
        self._threads = threads

    def __missing__(self, place: tuple[Any, Any]) -> int:
        named = (str(place[0]), str(place[1]))
        if len(self._threads) > MOST_THREADS and named not in self._threads:
            return MOST_THREADS
        self[place] = number = self._threads[named]
        return number


class Columns:
    """Collects batches of events."""

    def __init__(self, most_events: int = MOST_EVENTS) -> None:
        self.names: Numbered[str] = Numbered()
        self.threads: Numbered[tuple[str, str]] = Numbered()
        self.collectives: Numbered[Collective] = Numbered()
        self.seen = 0
        """Events of every kind."""
        self.without_time = 0
        self.until_us = float("inf")
        """Events that begin later are left out: more do not fit."""
        self.shapes: Numbered[str] = Numbered()
        self._shaped: tuple[array[int], array[int]] = array("q"), array("i")
        """External ids of operators on known shapes, and the numbers of these."""
        self._most, self._kept, self._batches = most_events, 0, 0
        self._places = Places(self.threads)
        self._parts: list[list[Any]] = [[] for _ in DTYPES]

    def add(self, batch: Sequence[Any]) -> None:
        """Add the events of a batch that have a duration and a known category."""
        self.seen += len(batch)
        found = np.array([CATEGORIES.get(event.cat, NONE) if event.ph == "X" else NONE for event in batch], np.int8)
        kept = list(compress(batch, found != NONE))
        if not kept:
            return
        start_us, length_us = _floats([event.ts for event in kept]), _floats([event.dur for event in kept])
        kinds = found[found != NONE]
        valid = np.isfinite(start_us) & np.isfinite(length_us) & (length_us >= 0)
        self.without_time += int((~valid).sum())
        valid &= start_us <= self.until_us
        if not valid.all():
            kept, kinds = list(compress(kept, valid)), kinds[valid]
            start_us, length_us = start_us[valid], length_us[valid]
        self._add_shapes(kept)
        places = self._places
        columns: list[Any] = [
            kinds,
            [self.names[event.name if type(event.name) is str else str(event.name)] for event in kept],
            start_us,
            length_us,
            [places[event.pid, event.tid] for event in kept],
            *self._arguments(kept, kinds),
        ]
        for parts, column, dtype in zip(self._parts, columns, DTYPES, strict=True):
            parts.append(narrow(np.asarray(column, dtype)))
        self._batches += 1
        if self._batches % JOINED_BATCHES == 0:
            for parts in self._parts:
                parts[-JOINED_BATCHES:] = [np.concatenate(parts[-JOINED_BATCHES:])]
        self._kept += len(kept)
        if self._kept > self._most:
            self._keep_first_half()

    def _add_shapes(self, events: Sequence[Any]) -> None:
        """Keep the shapes of operators that have an id by which kernels name them."""
        ids, numbers = self._shaped
        for event in events:
            args = event.args
            if event.name not in OPERATORS or args is None or type(args.dims) is not list:
                continue
            number = _id(args.external_id)
            if number != NONE:
                ids.append(number)
                numbers.append(self.shapes[f"{args.dims} {args.types}"])

    def shape_of(self) -> Mapping[int, int]:
        """Return the number of each operator's shapes by its external id; an id that stands for several has none."""
        ids, numbers = (np.frombuffer(part, part.typecode) for part in self._shaped)
        different = np.unique(np.stack([ids, numbers]), axis=1) if len(ids) else np.empty((2, 0), np.int64)
        known, first, counts = np.unique(different[0], return_index=True, return_counts=True)
        return dict(zip(known[counts == 1].tolist(), different[1][first[counts == 1]].tolist(), strict=True))

    def _keep_first_half(self) -> None:
        """Leave out what begins in the later half of the events so far: host events come first in a file, so that it is
        a moment at which all of them are cut, and not a place in the file.
        """
        start_us = np.concatenate(self._parts[START])
        self.until_us = float(np.median(start_us))
        marks = start_us <= self.until_us
        for parts in self._parts:
            parts[:] = [np.concatenate(parts)[marks]]
        self._kept, self._batches = int(marks.sum()), 0
        if self._kept > self._most:
            # All begin at one moment: nothing later is of use, either.
            self.until_us = float("-inf")

    def _arguments(self, events: Sequence[Any], kinds: Any) -> Iterator[Any]:
        """Yield the columns of arguments; those that only events of the device have are asked of no other."""
        args = [event.args or NO_ARGUMENTS for event in events]
        count, rows = len(args), np.flatnonzero(ON_DEVICE[kinds])
        on_device = [args[row] for row in rows.tolist()]
        yield _placed(rows, count, _ids([one.device for one in on_device], 2**15 - 1))
        yield _placed(rows, count, _ids([one.stream for one in on_device], LARGEST_CODE))
        yield _ids([one.correlation for one in args])
        yield _ids([one.external_id for one in args])
        yield [NONE if one.collective is None else self._collective(one) for one in args]

    def _collective(self, args: Any) -> int:
        size = args.group_size if type(args.group_size) is int else None
        group = Group(_text(args.group_name), _text(args.group_description), parse_ranks(args.group_ranks), size)
        elements = (_id(number) for number in (args.in_elements, args.out_elements))
        sent, received = (None if number == NONE else number for number in elements)
        return self.collectives[Collective(_text(args.collective), sent, received, _text(args.dtype), group)]

    def finish(self, base_ns: int) -> tuple[int, Events]:
        """Return the columns in order of start, in seconds, and the nanosecond that they begin at."""
        start_us = _join(self._parts[START], np.float64)
        if not len(start_us):
            return base_ns, Events._make(_join(parts, dtype) for parts, dtype in zip(self._parts, DTYPES, strict=True))
        order, first_us = np.argsort(start_us, kind="stable"), float(start_us.min())
        # One column at a time, so that no two copies of all of them are held.
        columns = [
            (start_us[order] - first_us) * MICRO if at == START else narrow(_join(parts, dtype)[order])
            for at, (parts, dtype) in enumerate(zip(self._parts, DTYPES, strict=True))
        ]
        events = Events._make(columns)
        return base_ns + round(first_us * MICRO / NANO), events._replace(duration_s=events.duration_s * MICRO)


def _join(parts: list[Any], dtype: Any) -> Any:
    joined = np.concatenate(parts) if parts else np.empty(0, dtype)
    parts.clear()
    return joined


def _placed(rows: Any, count: int, values: Any) -> Any:
    """Return a column that has values in some rows."""
    column = np.full(count, NONE, np.int64)
    column[rows] = values
    return column


def parse_ranks(value: Any) -> tuple[int, ...]:
    """Read the ranks of a group, written as a list or as a text; empty where it is shortened or missing."""
    if isinstance(value, str):
        return _parse_text(value) if "..." not in value and len(value) <= LONGEST_RANKS else ()
    if not isinstance(value, list | tuple) or not all(type(rank) is int and rank >= 0 for rank in value):
        return ()
    return tuple(value)


@lru_cache(maxsize=64)
def _parse_text(text: str) -> tuple[int, ...]:
    """Read ranks that are written as a list; most collectives of a trace have the same ones."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    return parse_ranks(value) if isinstance(value, list | tuple) else ()


def _floats(values: list[Any]) -> Any:
    """Return numbers; what is none is not a number."""
    try:
        return np.frombuffer(array("d", values))
    except (TypeError, OverflowError):
        return np.array([_float(value) for value in values])


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _ids(values: list[Any], largest: int = LARGEST_ID) -> Any:
    """Return numbers that name something; NONE where there is none."""
    try:
        # An array takes whole numbers only, and faster than numpy does.
        found = np.frombuffer(array("q", values), np.int64)
    except (TypeError, OverflowError):
        return [_id(value, largest) for value in values]
    return np.where((found < 0) | (found > largest), NONE, found)


def _id(value: Any, largest: int = LARGEST_ID) -> int:
    """Return a number that names something; NONE where there is none."""
    if type(value) is int:
        return value if 0 <= value <= largest else NONE
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        return _id(int(value), largest)
    return _id(int(value), largest) if isinstance(value, float) and value.is_integer() else NONE


def _text(value: Any) -> str:
    return "" if value is None else str(value)
