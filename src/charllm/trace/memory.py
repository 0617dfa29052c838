"""Memory snapshots of PyTorch (`torch.cuda.memory._dump_snapshot`): what a GPU's memory held at its fullest moment.

A snapshot has the blocks of the allocator when it was written, and the last events before. What was live at any time
between follows backwards from the blocks: live(t) = live(end) - sum of what was allocated and freed since. A block
belongs to who allocated it, which its stack tells. Sizes are those that tensors asked for.

A pickle may run code when it is opened. This one is read by Python's own, slow reader, and nothing in it is called.

Source: pytorch.org/docs, "Understanding CUDA Memory Usage", and real files of PyTorch 2.3 to 2.7.
Ignores: memory beside PyTorch's allocator (NCCL, the context); private pools apart.
"""

import gzip
import pickle
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from charllm.errors import SpecError
from charllm.layout.grid import Grid
from charllm.spec.run import RunSpec
from charllm.trace.kineto import rank_of_file
from charllm.units import format_bytes
from charllm.workload.memory import rank_memories
from charllm.workload.step import build_step

MOST_BYTES = 1 << 28
"""Of a file: about a minute of reading."""
SHOWN_SITES = 10
ORIGINS = {
    "optimizer": re.compile(r"/optim/|optimizer|/adamw?\.py|multi_tensor"),
    "backward": re.compile(r"torch::autograd::Engine::|/autograd/(graph|__init__)\.py|_tensor\.py:backward"),
    "communication": re.compile(r"ProcessGroup|distributed_c10d|/fsdp/|/_fsdp|deepspeed/runtime/zero|reduce_scatter"),
    "forward": re.compile(r"/nn/modules/module\.py:_(wrapped_)?call_impl|:forward$"),
    "set-up": re.compile(r"/nn/modules/module\.py:(_apply|to|cuda)|:__init__$|load_state_dict|:from_pretrained$"),
}
"""Who allocated a block: the first whose pattern some frame of its stack matches, written ``FILE:FUNCTION``."""
OTHER, NO_STACK, BEFORE = "other", "no stack recorded", "before the recording"
LIBRARY = re.compile(r"(site|dist)-packages/|/torch/|/lib/python3")
LIVE = "active_allocated"
GROWS, SHRINKS = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")


class Snapshot(NamedTuple):
    """The memory of one GPU."""

    path: Path
    rank: int
    """As its file's name says, or 0."""
    device: int
    allocated_bytes: int
    """Of live tensors when it was written."""
    reserved_bytes: int
    """Of the allocator, then."""
    peak_bytes: int | None
    """Most that tensors had at once; None where no events were recorded."""
    peak_reserved_bytes: int | None
    origins: dict[str, int]
    """Bytes at the peak by who allocated them, largest first."""
    sites: list[dict[str, Any]]
    """The lines that had most at the peak: site, bytes, tensors."""
    warnings: list[str]


def read_snapshots(path: Path) -> list[Snapshot]:
    """Read a snapshot: one for each GPU that has memory in it."""
    table = _load(path)
    try:
        segments = table["segments"]
        traces = table.get("device_traces") or []
        devices = sorted({int(one["device"]) for one in segments} | {n for n, one in enumerate(traces) if one})
        found = [
            _read_device(
                path,
                device,
                [one for one in segments if one["device"] == device],
                traces[device] if device < len(traces) else [],
            )
            for device in devices
        ]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _no_snapshot(path, f"{type(error).__name__}: {error}") from None
    if not found:
        raise _no_snapshot(path, "no GPU has memory in it")
    return found


def tabulate_snapshots(snapshots: Sequence[Snapshot], run: RunSpec | None) -> list[dict[str, Any]]:
    """Return snapshots as tables, each beside the memory that is predicted for the stage of its rank."""
    stages = (
        {one.stage: one for one in reversed(rank_memories(build_step(run)))} if run is not None and snapshots else {}
    )
    tables = []
    for one in snapshots:
        table = {**one._asdict(), "path": str(one.path), "predicted": None}
        if run is not None:
            place = one.rank if one.rank < run.parallelism.world else 0
            memory = stages[int(Grid(run.parallelism).stage(place))]
            totals = {name: getattr(memory, name) for name in ("allocated_bytes", "reserved_bytes")}
            table["predicted"] = {"stage": memory.stage, **totals, "kinds": memory.by_kind()}
        tables.append(table)
    return tables


def _no_snapshot(path: Path, found: str) -> SpecError:
    return SpecError("--memory", str(path), f"a file of torch.cuda.memory._dump_snapshot ({found})")


class _PlainReader(pickle._Unpickler):
    """Reads tables, lists, numbers and texts. Python's reader, for the one in C takes memory that a file names."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse whatever is not plain data."""
        raise pickle.UnpicklingError(f"it names {module}.{name}, and holds more than plain data")


def _load(path: Path) -> Mapping[str, Any]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise SpecError("--memory", str(path), f"a snapshot of at most {format_bytes(MOST_BYTES)}")
        table = _PlainReader(BytesIO(data)).load()
    except SpecError:
        raise
    except Exception as error:
        # A damaged pickle fails in any way.
        raise _no_snapshot(path, str(error) or type(error).__name__) from None
    if not isinstance(table, dict) or "segments" not in table:
        raise _no_snapshot(path, "it has no segments")
    return table


class _Block(NamedTuple):
    size_bytes: int
    frames: Sequence[Mapping[str, Any]] | None
    """None where it was allocated before the recording."""


def _read_device(
    path: Path, device: int, segments: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]
) -> Snapshot:
    blocks = dict(_live_blocks(segments, {int(event["addr"]) for event in events if event["action"] == "alloc"}))
    reserved = sum(int(segment["total_size"]) for segment in segments)
    allocated = sum(block.size_bytes for block in blocks.values())
    warnings = [
        f"{path.name}: an allocation of {format_bytes(int(event['size']))} failed with "
        f"{format_bytes(int(event.get('device_free', 0)))} free"
        for event in events
        if event["action"] == "oom"
    ]
    peak, held, at = allocated, reserved, len(events)
    live, kept = allocated, reserved
    for place in range(len(events) - 1, -1, -1):
        action, size = events[place]["action"], int(events[place]["size"])
        live += {"alloc": -size, "free_requested": size}.get(action, 0)
        kept += size if action in SHRINKS else -size if action in GROWS else 0
        if live > peak:
            peak, at = live, place
        held = max(held, kept)
    if live < 0:
        warnings.append(f"{path.name}: its events free less than they allocate; what was live before is not known")
    if not events:
        warnings.append(f"{path.name}: peak: no events were recorded (torch.cuda.memory._record_memory_history())")
    then = _live_at(blocks, events, at)
    origins: Counter[str] = Counter()
    sites: Counter[str] = Counter()
    tensors: Counter[str] = Counter()
    for block in then:
        origin, site = _describe(block.frames)
        origins[origin] += block.size_bytes
        sites[site] += block.size_bytes
        tensors[site] += 1
    return Snapshot(
        path, rank_of_file(path), device, allocated, reserved,
        peak if events else None, held if events else None,
        dict(origins.most_common()),
        [{"site": site, "bytes": size, "tensors": tensors[site]} for site, size in sites.most_common(SHOWN_SITES)],
        warnings,
    )  # fmt: skip


def _live_blocks(segments: Sequence[Mapping[str, Any]], seen: set[int]) -> Iterator[tuple[int, _Block]]:
    for segment in segments:
        address = int(segment["address"])
        for block in segment["blocks"]:
            start = int(block.get("address", address))
            if block["state"] == LIVE:
                frames = block.get("frames")
                yield (
                    start,
                    _Block(int(block.get("requested_size", block["size"])), frames or (() if start in seen else None)),
                )
            address = start + int(block["size"])


def _live_at(blocks: Mapping[int, _Block], events: Sequence[Mapping[str, Any]], at: int) -> list[_Block]:
    """Return the blocks that were live before the event at a place, by taking back all from there on."""
    live = dict(blocks)
    freed: dict[int, int] = {}
    for event in reversed(events[at:]):
        if event["action"] == "alloc":
            live.pop(int(event["addr"]), None)
            freed.pop(int(event["addr"]), None)
        elif event["action"] == "free_requested":
            freed[int(event["addr"])] = int(event["size"])
    stacks: dict[int, Sequence[Mapping[str, Any]]] = {}
    for event in events[:at]:
        if event["action"] == "alloc":
            stacks[int(event["addr"])] = event.get("frames") or ()
    again = [_Block(size, stacks.get(address)) for address, size in freed.items()]
    return [*live.values(), *again]


def _describe(frames: Sequence[Mapping[str, Any]] | None) -> tuple[str, str]:
    """Return who allocated a block, and the line of a program that did: the nearest that is no library's."""
    if not frames:
        told = BEFORE if frames is None else NO_STACK
        return told, told
    texts = [f"{frame.get('filename', '')}:{frame.get('name', '')}" for frame in frames]
    origin = next((name for name, pattern in ORIGINS.items() if any(map(pattern.search, texts))), OTHER)
    own = [frame for frame in frames if str(frame.get("filename", "")).endswith(".py")]
    if not own:
        return origin, next(
            (text[1:] for text in texts if text.startswith(":at::_ops::")), "the backward pass's thread"
        )
    nearest = next((one for one in own if not LIBRARY.search(one["filename"])), own[0])
    return origin, f"{Path(nearest['filename']).name}:{nearest.get('line')} {nearest.get('name')}"
