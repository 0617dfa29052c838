"""Traces of other profilers, as events of Kineto's form: Nsight Systems (SQLite), rocprofv3 (JSON and CSV).

What cannot be read is named, with the command that turns it into something that can.
Source: docs.nvidia.com/nsight-systems, "SQLite Schema Reference"; rocm.docs.amd.com, "Using rocprofv3".
Ignores: counters; API calls of HIP.
"""

import csv
import gzip
import json
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from charllm.errors import SpecError
from charllm.trace.event_columns import MOST_EVENTS
from charllm.trace.events import RankTrace
from charllm.trace.tool_events import NO_ID, Event, build_traces, device_event, host_event

NVTX_RANGES = (59, 60)
"""Push and pop; start and end."""
COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
LARGEST_JSON_BYTES = 1 << 30


class Unread(NamedTuple):
    """A format that is known and not read."""

    name: str
    command: str
    """What makes of it something that is read."""


GPU_TRACE = "a trace of torch.profiler, Nsight Systems, rocprofv3 or JAX"
BY_SUFFIX = {
    ".nsys-rep": ("a report of Nsight Systems", "nsys export --type sqlite {name}"),
    ".qdrep": ("a report of Nsight Systems", "nsys export --type sqlite {name}"),
    ".ncu-rep": ("a report of Nsight Compute, without times of a step", "nsys profile, then nsys export"),
}
BY_HEAD = {
    rb'"Ascend Hardware"|"async_npu"|"AI_CORE"': ("a trace of Ascend's profiler", "no NPU is read here"),
    rb'"viztracer_metadata"': ("a trace of VizTracer, of Python functions", GPU_TRACE),
    rb"speedscope\.app/file-format": ("a profile of speedscope", GPU_TRACE),
    rb'"timeDeltas"|"callFrame"': ("a CPU profile of V8", GPU_TRACE),
    rb'"cat": ?"(?:toplevel|devtools|blink|v8)\b': ("a trace of a browser", GPU_TRACE),
    rb"^\x18\0\0\0\0\0\0\0.{4}\x09": ("events of TensorBoard", "the trace.json.gz or xplane.pb beside them"),
}
"""What the beginning of a file holds: what it is, and what would be read."""


def name_unread(path: Path, head: bytes) -> Unread | None:
    """Return which tool wrote a file that cannot be read here; None for what is not known."""
    if path.suffix in BY_SUFFIX:
        name, command = BY_SUFFIX[path.suffix]
        return Unread(name, command.format(name=path.name))
    for mark, told in BY_HEAD.items():
        if re.search(mark, head, re.DOTALL):
            return Unread(*told)
    if head[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        return Unread("a pickle, such as a memory snapshot of PyTorch", f"charllm trace --memory {path.name}")
    return None


def is_nsight(head: bytes) -> bool:
    """Tell whether a file is a database of SQLite."""
    return head.startswith(b"SQLite format 3\x00")


def is_rocprof(path: Path, head: bytes) -> bool:
    """Tell whether a file is rocprofv3's."""
    return b'"rocprofiler-sdk-tool"' in head or (path.suffix == ".csv" and b"Start_Timestamp" in head[:2000])


def read_nsight(path: Path) -> list[RankTrace]:
    """Read the SQLite export of Nsight Systems, a trace for each GPU."""
    try:
        with sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True) as database:
            return build_traces(path, "nsight systems", _nsight_events(path, database))
    except (sqlite3.Error, TypeError) as error:
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
    for kind, table, name_of in (
        ("kernel", "CUPTI_ACTIVITY_KIND_KERNEL", "demangledName"),
        ("gpu_memcpy", "CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind"),
        ("gpu_memset", "CUPTI_ACTIVITY_KIND_MEMSET", "0"),
    ):
        if table not in tables:
            continue
        process = "globalPid >> 24" if "globalPid" in _columns(database, table) else "NULL"
        query = f"SELECT start, end, deviceId, streamId, correlationId, {process}, {name_of} FROM {table}"
        for start, end, device, stream, correlation, of, name in _rows(database, query):
            shown = f"Memcpy {COPY_KINDS.get(name, '')}".strip() if kind == "gpu_memcpy" else "Memset"
            shown = str(texts.get(name, name)) if kind == "kernel" else shown
            yield device_event(kind, shown, start, end - start, device, stream, correlation, of)
    process = "globalTid >> 24" if "globalPid" in _columns(database, "CUPTI_ACTIVITY_KIND_KERNEL") else "NULL"
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
        calls = f"SELECT start, end, globalTid, correlationId, {process}, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        for start, end, thread, correlation, of, name in _rows(database, calls):
            shown = str(texts.get(name, name)).split("_v")[0]
            yield host_event("cuda_runtime", shown, start, end - start, thread, correlation, of)
    if "NVTX_EVENTS" in tables:
        ranges = (
            f"SELECT start, end, globalTid, {process}, text, textId FROM NVTX_EVENTS "
            f"WHERE eventType IN ({', '.join(map(str, NVTX_RANGES))}) AND end IS NOT NULL"
        )
        for start, end, thread, of, text, number in _rows(database, ranges):
            shown = str(text or texts.get(number, ""))
            yield host_event("user_annotation", shown, start, end - start, thread, process=of)


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in database.execute(f"PRAGMA table_info({table})")}


def _rows(database: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    yield from database.execute(f"{query} LIMIT {MOST_EVENTS}")


def read_rocprof(path: Path) -> list[RankTrace]:
    """Read the kernels and copies that rocprofv3 wrote, a trace for each GPU."""
    reader: Callable[[Path], Iterator[Event]] = _rocprof_csv if path.suffix == ".csv" else _rocprof_json
    return build_traces(path, "rocprofv3", reader(path))


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
                correlation = _whole(row.get("Correlation_Id")) or NO_ID
                yield device_event(kind, name, start, end - start, device, stream or 0, correlation)


def _agent(text: str | None) -> int:
    """Read the number of a GPU: ``4`` or ``Agent 4``."""
    return _whole((text or "").rpartition(" ")[2]) or 0


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _rocprof_json(path: Path) -> Iterator[Event]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(LARGEST_JSON_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError("TRACE", str(path), f"a whole file of rocprofv3 --output-format json ({error})") from None
    if len(data) > LARGEST_JSON_BYTES:
        raise SpecError("TRACE", str(path), f"at most {LARGEST_JSON_BYTES} bytes of JSON; CSV may be larger")
    try:
        document = json.loads(data)
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
        start, end = one["start_timestamp"], one["end_timestamp"]
        yield device_event("kernel", name, start, end - start, device, stream, correlation or NO_ID)
    for one in records.get("memory_copy", []):
        device = numbers.get(one.get("dst_agent_id", {}).get("handle"), 0)
        start, end = one["start_timestamp"], one["end_timestamp"]
        yield device_event("gpu_memcpy", "Memcpy", start, end - start, device, 0, NO_ID)
