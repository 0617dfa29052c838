"""What the slices of a picture mean: of JAX and TensorFlow, rocprofv3 in Perfetto's form, and charllm itself.

A picture has slices on threads of processes, and no categories of a profiler: the names of its processes and threads
say what they show. Sources: github.com/openxla/xprof, xplane_schema.h (planes "/device:GPU:0", lines "Stream #7",
"XLA Ops", "Steps"; statistics hlo_category, step_num); github.com/ROCm/rocprofiler-sdk, generatePerfetto.cpp.
Ignores: lines that XLA derives from others ("XLA Modules", "Framework Ops", source code), and counters.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from charllm.trace.tool_events import NO_ID, Event, device_event, host_event


class Slice(NamedTuple):
    """One slice; times in nanoseconds."""

    name: str
    category: str
    process: str
    thread: str
    start: int
    spent: float
    args: Mapping[str, Any]


class Picture(NamedTuple):
    """What slices mean."""

    events: list[Event]
    told: dict[str, str]
    """Name: the class that the file states."""
    warnings: list[str]


XLA_DEVICE = re.compile(r"^/device:(?P<kind>GPU|TPU):(?P<number>\d{1,6})")
AGENT = re.compile(r"AGENT \[(?P<agent>\d{1,6})\](?:.*QUEUE \[(?P<queue>\d{1,6})\])?")
TRACED = re.compile(r"^rank (?P<rank>\d{1,9})$")
SIMULATED = re.compile(r"^stage (?P<stage>\d{1,9}) \(rank \d{1,9}\)$")
LAUNCHES = re.compile(r"(?i)^(?:cu|hip|cuda)\w*(?:launch|memcpy|memset|synchronize)")
COPIES = re.compile(r"(?i)^(?:memcpy|copy(?:host|device)|memset)")
ROCPROF = {
    "kernel_dispatch": "kernel", "memory_copy": "gpu_memcpy", "hip_api": "cuda_runtime", "hsa_api": "cuda_runtime",
    "marker_api": "user_annotation", "gpu_activity": "kernel", "rocdecode_api": "", "scratch_memory": "",
}  # fmt: skip
"""Category of rocprofv3: Kineto's."""
ENCLOSING = ("while", "conditional", "call", "async-start", "async-done")
"""Categories of XLA's operations that hold others, or only wait for them."""
XLA_CLASSES = (
    (r"all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|send|recv|collective-broadcast", ""),
    (r"convolution|dot|matmul|megacore", "gemm"),
    (r"data formatting|copy|transpose|reshape|slice|concatenate|pad|infeed|outfeed", "copy"),
    (r"scatter|gather|dynamic-update", "embedding"),
    (r"sort", "routing"),
    (r"reduce", "reduction"),
    (r"fusion|elementwise|broadcast|iota|select|convert|rng|bitcast", "elementwise"),
)
"""What a category of XLA's operations holds: its class; collectives are named by their operation."""
SIMULATED_CLASSES = (
    (r"^(?P<axis>tp|dp|pp|ep|cp) (?P<kind>\w+)$", ""),
    (r"^transfer$", "pp send_recv"),
    (r"^exchange of gradients and weights$", "dp all_reduce"),
    (r"attention(?! (?:norm|residual))", "attention"),
    (r"norm", "norm"),
    (r"qkv|proj|fc\d|lm head|grad$|expert|mlp up|mlp down|router|gemm", "gemm"),
    (r"cross entropy", "loss"),
    (r"embedding", "embedding"),
    (r"^update$|optimizer", "optimizer"),
    (r"scan|conv", "scan"),
    (r"dispatch|combine|permute", "routing"),
)
"""Op of a simulated step, or part of it: its class; others are `elementwise`."""
NO_WORK = ("bubble", "wait for other stages", "host")
"""Slices of a simulated step in which its GPU does nothing."""


def read_picture(slices: Iterable[Slice]) -> Picture:
    """Return the events that slices stand for; those that stand for nothing known are left out."""
    found = Picture([], {}, [])
    simulated: dict[str, list[Slice]] = {}
    for one in slices:
        if one.category in ROCPROF:
            found.events.extend(_rocprof(one))
        elif device := XLA_DEVICE.match(one.process):
            found.events.extend(_xla_device(one, device["kind"], int(device["number"]), found.told))
        elif one.process.startswith("/host:"):
            found.events.extend(_xla_host(one))
        elif (traced := TRACED.match(one.process)) and "class" in one.args:
            found.told[one.name] = str(one.args["class"])
            found.events.append(_kernel(one, int(traced["rank"]), one.thread))
        elif SIMULATED.match(one.process):
            simulated.setdefault(one.process, []).append(one)
    for process, mine in simulated.items():
        stage = SIMULATED.match(process)
        found.events.extend(_simulated(mine, int(stage["stage"]) if stage else 0, found.told))
    if simulated:
        found.warnings.append("a step that charllm has simulated: its ranks here are stages, and nothing was measured")
    return found


def _kernel(one: Slice, device: int, stream: str, correlation: int = NO_ID) -> Event:
    kind = "gpu_memcpy" if COPIES.match(one.name) else "kernel"
    return device_event(kind, one.name, one.start, one.spent, device, _number(stream), correlation)


def _rocprof(one: Slice) -> Iterator[Event]:
    kind, correlation = ROCPROF[one.category], _whole(one.args.get("corr_id"))
    if kind in ("kernel", "gpu_memcpy"):
        place = AGENT.search(one.thread)
        agent = place["agent"] if place else _number(str(one.args.get("agent", one.args.get("dst_agent", 0))))
        queue = place["queue"] if place and place["queue"] else one.args.get("queue", 0)
        name = one.name if kind == "kernel" else f"Memcpy {one.name}"
        yield device_event(kind, name, one.start, one.spent, int(agent), _number(str(queue)), correlation)
    elif kind:
        yield host_event(kind, one.name, one.start, one.spent, one.thread, correlation)


def _xla_device(one: Slice, kind: str, number: int, told: dict[str, str]) -> Iterator[Event]:
    """Read a slice of a device: of a GPU's streams, of a TPU's operations."""
    if one.thread.startswith("Stream"):
        yield _kernel(one, number, one.thread, _whole(one.args.get("correlation_id")))
    elif one.thread == "Steps" and one.name.isdecimal():
        yield host_event("user_annotation", f"step {one.name}", one.start, one.spent, one.thread)
    elif kind == "TPU" and one.thread == "XLA Ops":
        category = str(one.args.get("hlo_category", ""))
        if category in ENCLOSING:
            return
        stated = next((named for pattern, named in XLA_CLASSES if re.search(pattern, category)), None)
        if stated:
            told[one.name] = stated
        elif stated == "":
            told[one.name] = category.removesuffix(" fusion").removesuffix("-start").replace("-", "_")
        yield device_event("kernel", one.name, one.start, one.spent, number, 0, NO_ID)


def _xla_host(one: Slice) -> Iterator[Event]:
    """Read a slice of the host: launches, and steps that the program annotates."""
    step = _whole(one.args.get("step_num"))
    if step != NO_ID:
        yield host_event("user_annotation", f"step {step}", one.start, one.spent, one.thread)
    elif LAUNCHES.match(one.name):
        correlation = _whole(one.args.get("correlation_id"))
        yield host_event("cuda_runtime", one.name, one.start, one.spent, one.thread, correlation)


def _simulated(slices: list[Slice], stage: int, told: dict[str, str]) -> Iterator[Event]:
    """Read the innermost slices of a stage: ops, or passes where ops are not shown."""
    end = max(one.start + one.spent for one in slices)
    yield host_event("user_annotation", "step 0", 0, end, "step", process=stage)
    for thread in sorted({one.thread for one in slices}):
        mine = sorted((one for one in slices if one.thread == thread), key=lambda one: (one.start, -one.spent))
        for one, after in zip(mine, [*mine[1:], None], strict=True):
            holds = after is not None and after.start + after.spent <= one.start + one.spent and after.spent < one.spent
            if not holds and one.name not in NO_WORK and one.spent > 0:
                told[one.name] = _simulated_class(one.name)
                yield device_event("kernel", one.name, one.start, one.spent, stage, 0, NO_ID, stage)


def _simulated_class(name: str) -> str:
    for pattern, stated in SIMULATED_CLASSES:
        if re.search(pattern, name):
            return stated or name
    return "elementwise"


def _number(text: str) -> int:
    """Return the first number of a text, such as that of ``Stream #7(Kernel)``."""
    found = re.search(r"-?\d{1,18}", text)
    return int(found[0]) if found else 0


def _whole(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return NO_ID
