"""Traces of other profilers, as events of Kineto's form: Nsight Systems (SQLite), rocprofv3 (JSON and CSV).

What cannot be read is named, with the command that turns it into something that can.
Source: docs.nvidia.com/nsight-systems, "SQLite Schema Reference"; rocm.docs.amd.com, "Using rocprofv3".
Ignores: all GPUs of a file but the busiest; counters; API calls of HIP.
"""

import csv
import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from charllm.errors import SpecError
from charllm.trace.event_columns import MOST_EVENTS, Columns
from charllm.trace.event_fields import convert_event
from charllm.trace.events import RankTrace
from charllm.units import MICRO, NANO

Event = dict[str, Any]
BATCH = 10_000
NVTX_RANGES = (59, 60)
"""Push and pop; start and end."""
COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
LARGEST_JSON_BYTES = 1 << 30


class Unread(NamedTuple):
    """A format that is known and not read."""

    name: str
    command: str
    """What makes of it something that is read."""


def name_unread(path: Path, head: bytes) -> Unread | None:
    """Return which tool wrote a file that cannot be read here; None for what is not known."""
    suffixes = "".join(path.suffixes[-2:]).lower()
    if path.suffix == ".nsys-rep" or path.suffix == ".qdrep":
        return Unread("a report of Nsight Systems", f"nsys export --type sqlite {path.name}")
    if path.suffix == ".ncu-rep":
        return Unread("a report of Nsight Compute, without times of a step", "nsys profile, then nsys export")
    if suffixes.endswith((".xplane.pb", ".xplane.pb.gz")):
        return Unread("an XPlane of JAX or TensorFlow", "use trace.json.gz beside it, or xprof's trace_viewer tool")
    if path.suffix in (".pftrace", ".perfetto-trace") or b"perfetto" in head[:4096] or head[:1] == b"\x0a":
        return Unread("a protobuf of Perfetto", f"traceconv json {path.name} trace.json (perfetto.dev/docs)")
    if head[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        told = "a pickle, such as a memory snapshot of PyTorch: pickles run code when they are opened"
        return Unread(told, "python -m torch.cuda._memory_viz trace_plot SNAPSHOT, where it is trusted")
    return None


def is_nsight(head: bytes) -> bool:
    """Tell whether a file is a database of SQLite."""
    return head.startswith(b"SQLite format 3\x00")


def is_rocprof(path: Path, head: bytes) -> bool:
    """Tell whether a file is rocprofv3's."""
    return b'"rocprofiler-sdk-tool"' in head or (path.suffix == ".csv" and b"Start_Timestamp" in head[:2000])


def read_nsight(path: Path) -> RankTrace:
    """Read the SQLite export of Nsight Systems."""
    try:
        with sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True) as database:
            return _build(path, "nsight systems", _nsight_events(path, database))
    except sqlite3.Error as error:
        raise SpecError("TRACE", str(path), f"an export of Nsight Systems ({error})") from None


def _nsight_events(path: Path, database: sqlite3.Connection) -> Iterator[Event]:
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    if "rocpd_kernel_dispatch" in tables or any(name.startswith("rocpd") for name in tables):
        command = f"rocpd convert -i {path.name} --output-format csv"
        raise SpecError("TRACE", f"{path}, a database of rocprofv3 (rocpd)", f"its CSV or JSON: {command}")
    if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables:
        expected = "an export with kernels (table CUPTI_ACTIVITY_KIND_KERNEL): nsys profile --trace cuda,nvtx"
        raise SpecError("TRACE", str(path), expected)
    texts = dict(database.execute("SELECT id, value FROM StringIds")) if "StringIds" in tables else {}
    kernels = "SELECT start, end, deviceId, streamId, correlationId, demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL"
    for start, end, device, stream, correlation, name in _rows(database, kernels):
        yield _device("kernel", str(texts.get(name, name)), start, end, device, stream, correlation)
    if "CUPTI_ACTIVITY_KIND_MEMCPY" in tables:
        copies = "SELECT start, end, deviceId, streamId, correlationId, copyKind FROM CUPTI_ACTIVITY_KIND_MEMCPY"
        for start, end, device, stream, correlation, kind in _rows(database, copies):
            name = f"Memcpy {COPY_KINDS.get(kind, '')}".strip()
            yield _device("gpu_memcpy", name, start, end, device, stream, correlation)
    if "CUPTI_ACTIVITY_KIND_MEMSET" in tables:
        fills = "SELECT start, end, deviceId, streamId, correlationId FROM CUPTI_ACTIVITY_KIND_MEMSET"
        for start, end, device, stream, correlation in _rows(database, fills):
            yield _device("gpu_memset", "Memset", start, end, device, stream, correlation)
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
        calls = "SELECT start, end, globalTid, correlationId, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        for start, end, thread, correlation, name in _rows(database, calls):
            args = {"correlation": correlation}
            yield _host("cuda_runtime", str(texts.get(name, name)).split("_v")[0], start, end, thread, args)
    if "NVTX_EVENTS" in tables:
        ranges = (
            "SELECT start, end, globalTid, text, textId FROM NVTX_EVENTS "
            f"WHERE eventType IN ({', '.join(map(str, NVTX_RANGES))}) AND end IS NOT NULL"
        )
        for start, end, thread, text, number in _rows(database, ranges):
            yield _host("user_annotation", str(text or texts.get(number, "")), start, end, thread, {})


def _rows(database: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    yield from database.execute(f"{query} LIMIT {MOST_EVENTS}")


def read_rocprof(path: Path) -> RankTrace:
    """Read the kernels and copies that rocprofv3 wrote."""
    reader: Callable[[Path], Iterator[Event]] = _rocprof_csv if path.suffix == ".csv" else _rocprof_json
    return _build(path, "rocprofv3", reader(path))


def _rocprof_csv(path: Path) -> Iterator[Event]:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for number, row in enumerate(csv.DictReader(file)):
            if number >= MOST_EVENTS:
                return
            name = row.get("Kernel_Name") or row.get("Direction") or row.get("Function") or ""
            kind = "kernel" if row.get("Kernel_Name") else "gpu_memcpy"
            if row.get("Function"):
                continue
            start, end = _whole(row.get("Start_Timestamp")), _whole(row.get("End_Timestamp"))
            device = _agent(row.get("Agent_Id") or row.get("Destination_Agent_Id"))
            stream = _whole(row.get("Stream_Id") or row.get("Queue_Id"))
            if start is not None and end is not None:
                yield _device(kind, name, start, end, device, stream or 0, _whole(row.get("Correlation_Id")) or -1)


def _agent(text: str | None) -> int:
    """Read the number of a GPU: ``4`` or ``Agent 4``."""
    return _whole((text or "").rpartition(" ")[2]) or 0


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _rocprof_json(path: Path) -> Iterator[Event]:
    if path.stat().st_size > LARGEST_JSON_BYTES:
        raise SpecError("TRACE", str(path), f"at most {LARGEST_JSON_BYTES} bytes of JSON; CSV may be larger")
    try:
        document = json.loads(path.read_bytes())
        tools = document["rocprofiler-sdk-tool"]
        for tool in tools if isinstance(tools, list) else [tools]:
            yield from _rocprof_tool(tool)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        found = f"{type(error).__name__}: {error}"
        raise SpecError("TRACE", str(path), f"a whole file of rocprofv3 --output-format json ({found})") from None


def _rocprof_tool(tool: Mapping[str, Any]) -> Iterator[Event]:
    names = {
        one["kernel_id"]: one.get("formatted_kernel_name") or one.get("demangled_kernel_name") or one.get("kernel_name")
        for one in tool.get("kernel_symbols", [])
    }
    numbers = {one["id"]["handle"]: one.get("logical_node_type_id", place)
               for place, one in enumerate(tool.get("agents", []))}  # fmt: skip
    records = tool["buffer_records"]
    for one in records.get("kernel_dispatch", []):
        info = one["dispatch_info"]
        handle = info["agent_id"]["handle"]
        name = str(names.get(info["kernel_id"], f"kernel {info['kernel_id']}"))
        stream = one.get("stream_id", info.get("queue_id", {})).get("handle", 0)
        correlation = _whole(one.get("correlation_id", {}).get("internal"))
        device = numbers.get(handle, handle)
        yield _device("kernel", name, one["start_timestamp"], one["end_timestamp"], device, stream, correlation or -1)
    for one in records.get("memory_copy", []):
        device = numbers.get(one.get("dst_agent_id", {}).get("handle"), 0)
        yield _device("gpu_memcpy", "Memcpy", one["start_timestamp"], one["end_timestamp"], device, 0, -1)


def _device(kind: str, name: str, start: int, end: int, device: Any, stream: Any, correlation: Any) -> Event:
    args = {"device": device, "stream": stream, "correlation": correlation}
    return {"ph": "X", "cat": kind, "name": name, "pid": device, "tid": stream, **_times(start, end), "args": args}


def _host(kind: str, name: str, start: int, end: int, thread: Any, args: dict[str, Any]) -> Event:
    return {"ph": "X", "cat": kind, "name": name, "pid": "host", "tid": thread, **_times(start, end), "args": args}


def _times(start: int, end: int) -> dict[str, float]:
    return {"ts": start * (NANO / MICRO), "dur": (end - start) * (NANO / MICRO)}


def _build(path: Path, source: str, events: Iterable[Event]) -> RankTrace:
    """Collect events into columns; of several GPUs the busiest is kept."""
    from charllm.trace.kineto import rank_of_file

    listed = list(events)
    busy_us: dict[Any, float] = defaultdict(float)
    for event in listed:
        if event["cat"] == "kernel":
            busy_us[event["pid"]] += event["dur"]
    shown = max(busy_us, key=lambda device: busy_us[device], default=None)
    kept = [event for event in listed if event["pid"] in ("host", shown)]
    columns = Columns()
    for start in range(0, len(kept), BATCH):
        columns.add([convert_event(event) for event in kept[start : start + BATCH]])
    origin_ns, found = columns.finish(0)
    told = f"{path.name}: {len(busy_us)} GPUs; the busiest, {shown}, is shown"
    return RankTrace(
        path=path, source=source, rank=rank_of_file(path), world_size=None, backend="", device_names=(), groups=(),
        origin_ns=origin_ns, events=found, names=columns.names.texts(), threads=columns.threads.texts(),
        collectives=columns.collectives.texts(), warnings=(told,) if len(busy_us) > 1 else (), whole=True,
    )  # fmt: skip
