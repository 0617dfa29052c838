"""The events of one rank in columns: what every reader of traces returns and every analysis reads.

`RankTrace.events` is an `Events`: numpy columns of equal length, one entry an event, in order of start. Texts are
numbered once: `events.name[i]` indexes `trace.names`, `events.thread[i]` indexes `trace.threads`, and
`events.collective[i]` indexes `trace.collectives`. `events.kind[i]` is one of the constants below. A number that an
event does not have is NONE in its column. Times are seconds from `trace.origin_ns`, nanoseconds of the machine's clock
(since 1970), which places several ranks, and telemetry, on one axis.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from charllm.arrays import Bools, Floats, Ints

Codes = NDArray[np.int32]
"""Row or text numbers."""

NONE = -1
"""A number that an event does not have."""
KERNEL, MEMCPY, MEMSET, SYNC, DEVICE_RANGE, OP, RANGE, RUNTIME, OVERHEAD = range(9)
KINDS = ("kernel", "memcpy", "memset", "sync", "device_range", "op", "range", "runtime", "overhead")
"""Names of the kinds. On the device: kernels, copies, fills, waits of a stream, and ranges that enclose them. On the
host: operators, ranges of the user (record_function), calls of the runtime, and the profiler's own overhead."""
DEVICE_KINDS = (KERNEL, MEMCPY, MEMSET)
"""Kinds that keep a device busy."""


class Group(NamedTuple):
    """A process group: what the program calls it, and its ranks (empty where the trace does not say)."""

    name: str
    description: str
    ranks: tuple[int, ...]
    size: int | None = None


class Collective(NamedTuple):
    """The arguments of a collective or a send, as its backend recorded them."""

    name: str
    """As recorded: allreduce, _allgather_base, all_to_allv, send ..."""
    in_elements: int | None
    out_elements: int | None
    dtype: str
    group: Group


class Events(NamedTuple):
    """Columns of equal length, in order of start."""

    kind: NDArray[np.int8]
    name: Codes
    start_s: Floats
    duration_s: Floats
    thread: NDArray[np.int16]
    device: NDArray[np.int16]
    stream: Codes
    correlation: Ints | Codes
    """Joins a call of the runtime to what it launched."""
    external_id: Ints | Codes
    """Joins an operator to the calls of the runtime inside it."""
    collective: Codes

    @property
    def end_s(self) -> Floats:
        """When each event ended."""
        return self.start_s + self.duration_s

    @property
    def size(self) -> int:
        """How many events there are."""
        return len(self.kind)

    def take(self, rows: NDArray[np.intp] | Bools) -> "Events":
        """Return some of the events."""
        return Events._make(column[rows] for column in self)


DTYPES: tuple[Any, ...] = (
    np.int8, np.int32, np.float64, np.float64, np.int16, np.int16, np.int32, np.int64, np.int64, np.int32,
)  # fmt: skip
"""Types of the columns of `Events`. Ids are narrowed to 32 bits where all of them fit (`narrow`)."""


def narrow(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column of ids in as few bytes as they need."""
    small = column.dtype == np.int64 and (not len(column) or int(column.max()) < 2**31)
    return column.astype(np.int32) if small else column


@dataclass(frozen=True, slots=True)
class RankTrace:
    """What one rank executed, from one file."""

    path: Path
    source: str
    """The tool or form it is of: kineto, chakra, nsight systems, xplane ..."""
    rank: int
    world_size: int | None
    backend: str
    """nccl, gloo ...; empty where the trace does not say."""
    device_names: tuple[str, ...]
    groups: tuple[Group, ...]
    """Process groups that the trace lists."""
    origin_ns: int
    events: Events
    names: list[str]
    threads: list[tuple[str, str]]
    """Process and thread, or device and stream, by number."""
    collectives: list[Collective]
    warnings: tuple[str, ...] = ()
    """What could not be read, or looks wrong."""
    whole: bool = True
    """Whether all of its time was kept: a trace of too many events is read up to a moment."""
    told: Mapping[str, str] = field(default_factory=dict)
    """Classes of names that the file itself states: those of XLA's operations, of a simulated step."""
    shapes: tuple[str, ...] = ()
    """Different operands of operators, as written: ``[[8, 4], [4, 2]] ['float', 'float']``."""
    shape_of: Mapping[int, int] = field(default_factory=dict)
    """External id of an operator: number of its operands."""

    def matches(self, *kinds: int) -> Bools:
        """Mark the events of some kinds."""
        wanted = np.zeros(len(KINDS), dtype=bool)
        wanted[list(kinds)] = True
        return np.asarray(wanted[self.events.kind])

    @property
    def has_device_events(self) -> bool:
        """Tell whether a device executed anything."""
        return bool(self.matches(*DEVICE_KINDS).any())
