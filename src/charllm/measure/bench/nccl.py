"""One rank of the network bench: agree with the others on the machine and the suite, measure, write rows."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist

from charllm import __version__
from charllm.errors import CharllmError
from charllm.layout.grid import Ranks
from charllm.measure.bench.nccl_run import TIMEOUT, check_all, largest_message, prepare, run_cases
from charllm.measure.bench.nccl_suite import build_suite, parse_collectives, parse_sizes
from charllm.measure.bench.nccl_table import CollectiveRow, RowWriter, open_table, read_rows
from charllm.measure.command_settings import NcclSettings
from charllm.spec.parallelism import Parallelism
from charllm.units import KIB

T = TypeVar("T")
BACKENDS = {"cuda": "nccl", "cpu": "gloo"}
"""Device: what its tensors are sent by (RCCL has NCCL's name in torch)."""


class Peers(NamedTuple):
    """All ranks, as they have described themselves."""

    nodes: tuple[str, ...]
    gpus: tuple[str, ...]

    @property
    def ranks_per_node(self) -> int:
        """Ranks on the node that has most."""
        return max(self.nodes.count(node) for node in self.nodes)


def join(device: str, node: str, local_rank: int) -> Peers:
    """Meet the other ranks (over gloo: what they agree on must not disturb what they measure)."""
    if device == "cuda":
        torch.cuda.set_device(local_rank)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, (node, torch.cuda.get_device_name() if device == "cuda" else "cpu"))
    return Peers(*(tuple(column) for column in zip(*told, strict=True)))


def leave() -> None:
    """Let go of the other ranks, who may still be at their last case."""
    dist.barrier()
    dist.destroy_process_group()


def measure_collectives(
    settings: NcclSettings,
    folder: Path,
    layout: Parallelism,
    groups: dict[str, Ranks],
    peers: Peers,
    header: Mapping[str, Any],
) -> tuple[int, Iterator[CollectiveRow | None]]:
    """Return the number of cases and what each gives; rank 0 writes rows as they come, the others return none."""
    sizes, collectives = parse_sizes(settings.sizes), parse_collectives(settings.collectives)
    largest = largest_message(sizes, settings.device, peers.ranks_per_node, available_bytes)
    if largest < max(sizes) and is_first():
        print(f"charllm: messages above {largest / KIB:,.0f} KiB are left out: too little memory", file=sys.stderr)
    suite = build_suite(groups, collectives, [size for size in sizes if size <= largest])
    backend = BACKENDS[settings.device]
    writers: list[RowWriter] = []

    def begin() -> list[CollectiveRow]:
        open_table(folder, {**describe(layout, peers, backend), **header})
        writers.append(RowWriter(folder))
        # Only now does nobody else write: a command that has just ended may have added rows.
        return read_rows(folder)

    written = agreed(begin)
    done = {row.case for row in written if not row.error}
    shared = {"device": settings.device, "backend": backend, "case_s": settings.case_seconds_s}
    bench = prepare(groups, peers.nodes, sorted({case.message_bytes for case in suite}), shared)
    check_all(bench, suite)
    rows = run_cases(bench, suite, done, settings.seconds_s)
    return len(suite), _written(rows, writers[0]) if writers else rows


def is_first() -> bool:
    """Tell whether this rank is the one that writes and talks."""
    return int(dist.get_rank()) == 0


def _written(rows: Iterator[CollectiveRow | None], writer: RowWriter) -> Iterator[CollectiveRow | None]:
    try:
        for row in rows:
            if row is not None:
                writer.write(row)
            yield row
    finally:
        writer.close()


def agreed(decide: Callable[[], T]) -> T:
    """Return what rank 0 decides, or raise on every rank what stops it."""
    told: list[Any] = [None, None]
    if is_first():
        try:
            told[0] = decide()
        except CharllmError as error:
            told[1] = error
    dist.broadcast_object_list(told, src=0)
    if told[1] is not None:
        raise told[1]
    found: T = told[0]
    return found


def describe(layout: Parallelism, peers: Peers, backend: str) -> dict[str, Any]:
    """Return what a table is of: layout, machine and software."""
    version = ".".join(map(str, torch.cuda.nccl.version())) if backend == "nccl" else None
    degrees = {name: getattr(layout, name) for name in ("tp", "cp", "dp", "pp", "ep", "etp", "order")}
    return {
        "charllm": __version__,
        "torch": torch.__version__,
        "backend": backend,
        "library": "rccl" if torch.version.hip else backend,
        "library_version": version,
        "ranks": len(peers.nodes),
        "layout": degrees,
        "node_of_rank": list(peers.nodes),
        "gpu_of_rank": list(peers.gpus),
        "precision": "bf16",
        "started_wall_s": time.time(),
    }


def available_bytes() -> float:
    """Return the memory of this node that nothing uses."""
    with open("/proc/meminfo", encoding="ascii") as file:
        table = dict(line.split(":", 1) for line in file)
    return float(table["MemAvailable"].split()[0]) * KIB
