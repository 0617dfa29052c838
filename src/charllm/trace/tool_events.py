"""Events of other profilers in Kineto's form: as plain tables, then in columns, one trace for each GPU of a file."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from charllm.trace.event_columns import MOST_EVENTS, Columns
from charllm.trace.event_fields import convert_event
from charllm.trace.events import RankTrace
from charllm.trace.kineto import rank_of_file
from charllm.units import MICRO, NANO

Event = dict[str, Any]
HOST = "host"
"""Stands for a device in events of the host."""
BATCH = 10_000
NO_ID = -1


def device_event(
    kind: str, name: str, start: int, spent: float, device: Any, stream: Any, correlation: int, process: Any = None
) -> Event:
    """Return what a device executed; times in nanoseconds."""
    args = {"device": device, "stream": stream, "correlation": correlation}
    return _event(kind, name, start, spent, device, stream, args, process)


def host_event(
    kind: str, name: str, start: int, spent: float, thread: Any, correlation: int = NO_ID, process: Any = None
) -> Event:
    """Return a call of the runtime or a range of the user; times in nanoseconds."""
    return _event(kind, name, start, spent, HOST, thread, {"correlation": correlation}, process)


def _event(kind: str, name: str, start: int, spent: float, owner: Any, thread: Any, args: Event, process: Any) -> Event:
    times = {"ts": start, "dur": spent * (NANO / MICRO)}
    return {"ph": "X", "cat": kind, "name": name, "pid": owner, "tid": thread, **times, "args": args, "of": process}


def build_traces(
    path: Path, source: str, events: Iterable[Event], told: Mapping[str, str] | None = None,
    warnings: Iterable[str] = (),
) -> list[RankTrace]:  # fmt: skip
    """Collect events into columns, those of each GPU into a trace of its own; `told` are classes that the file states.

    GPUs count as ranks in order, from the rank in the file's name. Of the host's events each has the calls that
    launched its own work, and the ranges of the processes that drive it.
    """
    devices: dict[Any, list[Event]] = defaultdict(list)
    hosts: list[Event] = []
    first_ns: int | None = None
    for event in islice(events, MOST_EVENTS):
        first_ns = event["ts"] if first_ns is None else min(first_ns, event["ts"])
        (hosts if event["pid"] == HOST else devices[event["pid"]]).append(event)
    busy = {device: mine for device, mine in devices.items() if any(event["cat"] == "kernel" for event in mine)}
    kept = busy or devices or {HOST: []}
    ordered = sorted(kept, key=lambda device: (not isinstance(device, int), device if isinstance(device, int) else 0))
    first = rank_of_file(path)
    said = tuple(warnings)
    if len(kept) > 1:
        said = (*said, f"{path.name}: {len(kept)} GPUs, counted as ranks {first} to {first + len(kept) - 1}")
    return [
        _build_one(path, source, first + place, [*kept[device], *_launching(hosts, kept[device], len(kept))],
                   first_ns or 0, told or {}, said if place == 0 else ())
        for place, device in enumerate(ordered)
    ]  # fmt: skip


def _launching(hosts: list[Event], mine: list[Event], devices: int) -> Iterator[Event]:
    """List the calls that launched the work of a device, and the other events of its processes."""
    if devices == 1:
        yield from hosts
        return
    launched = {(event["of"], event["args"]["correlation"]) for event in mine}
    processes = {event["of"] for event in mine}
    for event in hosts:
        correlation = event["args"]["correlation"]
        if (event["of"], correlation) in launched if correlation != NO_ID else event["of"] in processes:
            yield event


def _build_one(
    path: Path, source: str, rank: int, listed: list[Event], first_ns: int, told: Mapping[str, str],
    warnings: tuple[str, ...],
) -> RankTrace:  # fmt: skip
    columns = Columns()
    for start in range(0, len(listed), BATCH):
        # Microseconds since 1970 would lose fractions of one.
        batch = ({**event, "ts": (event["ts"] - first_ns) * (NANO / MICRO)} for event in listed[start : start + BATCH])
        columns.add([convert_event(event) for event in batch])
    origin_ns, found = columns.finish(first_ns)
    return RankTrace(
        path=path, source=source, rank=rank, world_size=None, backend="", device_names=(), groups=(),
        origin_ns=origin_ns, events=found, names=columns.names.texts(), threads=columns.threads.texts(),
        collectives=columns.collectives.texts(), warnings=warnings, whole=True, told=told,
    )  # fmt: skip
