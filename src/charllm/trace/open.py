"""Any trace, by what its file holds: a profiler's trace, a picture, Chakra, or an execution trace."""

import zlib
from pathlib import Path

import numpy as np

from charllm.errors import SpecError
from charllm.trace.chakra import read_chakra
from charllm.trace.events import DTYPES, Events, RankTrace
from charllm.trace.json_events import GZIP_MAGIC, GZIP_WINDOW
from charllm.trace.kineto import rank_of_file, read_kineto
from charllm.trace.other_tools import GPU_TRACE, is_nsight, is_rocprof, name_unread, read_nsight, read_rocprof
from charllm.trace.perfetto import PERFETTO_SUFFIXES, read_chrome_picture, read_perfetto
from charllm.trace.xplane import is_xplane, read_xplane

HEAD_BYTES = 1 << 16
EXECUTION_TRACE = "execution trace"
"""Source of a trace that has collectives, and no times."""


def read_traces(path: Path) -> list[RankTrace]:
    """Read one file, whatever of these formats it is in: a trace for each GPU that it holds."""
    head = _head(path)
    unread = name_unread(path, head)
    if unread is not None:
        raise SpecError("TRACE", f"{path}, {unread.name}", f"a trace that is read here: {unread.command}")
    if b'"traceEvents"' in head:
        return _chrome(path)
    if is_nsight(head):
        return read_nsight(path)
    if is_rocprof(path, head):
        return read_rocprof(path)
    if b'"workload_graph"' in head or path.suffix == ".et":
        return [read_chakra(path)]
    if b'"schema"' in head and b'"nodes"' in head:
        return [_without_times(path)]
    if is_xplane(path, head):
        return read_xplane(path)
    if path.suffix in PERFETTO_SUFFIXES or (head[:1] == b"\x0a" and head.strip()[:1] not in (b"{", b"[")):
        return read_perfetto(path)
    if head.strip() and head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        raise SpecError("TRACE", f"{path}, which is no JSON", GPU_TRACE)
    return _chrome(path)


def _chrome(path: Path) -> list[RankTrace]:
    """Read a Chrome trace: of torch's profiler, or else a picture."""
    trace = read_kineto(path)
    return (read_chrome_picture(path) if not trace.events.size else []) or [trace]


def _without_times(path: Path) -> RankTrace:
    """Return an execution trace of PyTorch as a trace without events, and say where its messages can be seen."""
    told = f"{path.name}: an execution trace has no times; see `charllm messages --execution-trace` for its messages"
    nothing = Events._make(np.empty(0, dtype) for dtype in DTYPES)
    return RankTrace(path, EXECUTION_TRACE, rank_of_file(path), None, "", (), (), 0, nothing, [], [], [], (told,))


def _head(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked as far as they go."""
    with path.open("rb") as raw:
        head = raw.read(HEAD_BYTES)
    if not head.startswith(GZIP_MAGIC):
        return head
    try:
        return zlib.decompressobj(GZIP_WINDOW).decompress(head)
    except zlib.error:
        return b""
