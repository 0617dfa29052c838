"""Traces made for tests: few events whose figures can be worked out by hand. Times are microseconds."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from charllm.trace.classes import read_classes
from charllm.trace.kineto import read_kineto
from charllm.trace.run import TracedRun, build_run

Event = dict[str, Any]
GEMM = "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT"
HEAD = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}]}


def event(name: str, category: str, start_us: float, length_us: float, **args: Any) -> Event:
    """Return one complete event."""
    thread = args.get("stream", 1)
    return {
        "ph": "X", "cat": category, "name": name, "pid": 0, "tid": thread, "ts": start_us, "dur": length_us,
        "args": args,
    }  # fmt: skip


def kernel(name: str, start_us: float, length_us: float, stream: int = 7, **args: Any) -> Event:
    """Return a kernel."""
    return event(name, "kernel", start_us, length_us, stream=stream, device=0, **args)


def launched(
    name: str, called_us: float, start_us: float, length_us: float, correlation: int, stream: int = 7
) -> list[Event]:
    """Return a kernel and the call that launched it."""
    call = event("cudaLaunchKernel", "cuda_runtime", called_us, 2, correlation=correlation)
    return [call, kernel(name, start_us, length_us, stream, correlation=correlation)]


def collective(
    name: str, start_us: float, length_us: float, *, ranks: Sequence[int], elements: int = 1 << 20, group: str = "1",
    description: str = "", stream: int = 20,
) -> Event:  # fmt: skip
    """Return a kernel of NCCL with the arguments that torch records."""
    args = {
        "Collective name": name,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "dtype": "BFloat16",
        "Group size": len(ranks),
        "Process Group Name": group,
        "Process Group Description": description,
        "Process Group Ranks": str(list(ranks)),
    }
    return kernel(f"ncclDevKernel_{name}", start_us, length_us, stream, **args)


def step(number: int, start_us: float, length_us: float) -> Event:
    """Return the range of a step on the host."""
    return event(f"ProfilerStep#{number}", "user_annotation", start_us, length_us)


def text(events: Sequence[Event], rank: int = 0, world: int = 1) -> str:
    """Return a trace as the profiler writes it."""
    told = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}}
    return json.dumps({**HEAD, **told, "traceEvents": list(events), "traceName": "made"}, indent=1)


def run_of(folder: Path, *ranks: Sequence[Event]) -> TracedRun:
    """Return the run of several ranks, each a list of events."""
    traces = []
    for rank, events in enumerate(ranks):
        path = folder / f"rank-{rank}.json"
        path.write_text(text(events, rank, len(ranks)))
        traces.append(read_kineto(path))
    return build_run(traces, read_classes())
