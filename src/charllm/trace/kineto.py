"""Traces of the PyTorch profiler (Kineto; Chrome's trace event format), plain or gzip, whole or cut short."""

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from charllm.trace.event_columns import Columns, parse_ranks
from charllm.trace.event_fields import convert_event, event_decoder
from charllm.trace.events import Group, RankTrace
from charllm.trace.json_events import Reading, read_batches, read_count

GAP_S = 3600.0
"""A gap between events that a clock that was set explains better than a job (assumed)."""
RANK_IN_NAME = re.compile(r"rank[-_.]?(\d+)", re.IGNORECASE)


def read_kineto(path: Path) -> RankTrace:
    """Read one file; what could not be read is said in the warnings of the trace."""
    reading, columns = Reading(), Columns()
    with _without_garbage_collection():
        for batch in read_batches(path, event_decoder(), convert_event, reading):
            columns.add(batch)
    header = reading.header
    distributed = header.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    origin_ns, events = columns.finish(read_count(header.get("baseTimeNanoseconds")) or 0)
    return RankTrace(
        path=path,
        source="kineto",
        rank=rank_of_file(path, read_count(distributed.get("rank"))),
        world_size=read_count(distributed.get("world_size")),
        backend=str(distributed.get("backend") or ""),
        device_names=tuple(_device_names(header)),
        groups=tuple(_groups(distributed)),
        origin_ns=origin_ns,
        events=events,
        names=columns.names.texts(),
        threads=columns.threads.texts(),
        collectives=columns.collectives.texts(),
        warnings=tuple(_warnings(path, reading, columns, events.start_s)),
        whole=columns.until_us == float("inf"),
        shapes=tuple(columns.shapes.texts()),
        shape_of=columns.shape_of(),
    )


def rank_of_file(path: Path, recorded: int | None = None) -> int:
    """Return the rank that a file records, or that its name holds (`rank-3.json`, `trace_rank_3.json.gz`), or 0."""
    if recorded is not None:
        return recorded
    found = RANK_IN_NAME.search(path.name)
    return int(found[1]) if found else 0


def _device_names(header: dict[str, Any]) -> Iterator[str]:
    devices = header.get("deviceProperties")
    for device in devices if isinstance(devices, list) else []:
        if isinstance(device, dict):
            yield str(device.get("name") or "")


def _groups(distributed: dict[str, Any]) -> Iterator[Group]:
    """Read the process groups of the header; newer profilers list them, with ranks where they are few."""
    listed = distributed.get("pg_config")
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict):
            name, description = str(entry.get("pg_name", "")), str(entry.get("pg_desc", ""))
            size = read_count(entry.get("pg_size")) or read_count(entry.get("group_size"))
            yield Group(name, description, parse_ranks(entry.get("ranks")), size)


def _warnings(path: Path, reading: Reading, columns: Columns, start_s: Any) -> Iterator[str]:
    name = path.name
    if not reading.found_events:
        yield f"{name}: no list of events was found" + (f"; {reading.truncated}" if reading.truncated else "")
        return
    if reading.truncated:
        yield f"{name}: {reading.truncated}; the {columns.seen:,} events before that were read"
    if reading.unreadable:
        yield f"{name}: {reading.unreadable:,} malformed events were left out"
    if columns.without_time:
        yield f"{name}: {columns.without_time:,} events without a valid start and duration were left out"
    if columns.seen and not len(start_s):
        yield (
            f"{name}: none of its {columns.seen:,} events is a profiler's (cat kernel, cpu_op ...); a picture for "
            "Perfetto, such as `--perfetto` writes, is none"
        )
    if columns.until_us < float("inf"):
        kept_s = float(start_s[-1]) if len(start_s) else 0.0
        yield f"{name}: only the first {kept_s:.3g} s were kept, {len(start_s):,} events; more do not fit into memory"
    gaps = start_s[1:] - start_s[:-1]
    if len(gaps) and gaps.max() > GAP_S:
        yield f"{name}: a gap of {gaps.max():,.0f} s between events; was a clock set during the run?"


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Decoded events hold no cycles: looking for them among millions would take longer than decoding."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
