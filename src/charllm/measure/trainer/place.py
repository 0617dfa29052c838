"""The place of this process among the ranks of a run: its rank, its device and the groups that it communicates with.

Groups are the rows of layout/grid.py, so that the simulator's groups and the trainer's are the same. Under a placement
map (`conditions.gpu_of_rank`) the process on GPU g takes the rank that the map puts there: torchrun numbers processes
by GPU, and the trainer renumbers them before it connects.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from charllm.errors import CharllmError, SpecError
from charllm.layout.grid import Grid, Ranks
from charllm.spec.framework import groups_experts
from charllm.spec.run import RunSpec

TIMEOUT_S = 600.0
"""Longest wait for a peer, unless the command says otherwise."""


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that communicate with each other; one rank alone has no handle."""

    handle: Any = None
    size: int = 1
    index: int = 0
    """Of this rank."""
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Place:
    """One rank of a run."""

    rank: int = 0
    world: int = 1
    stage: int = 0
    replica: int = 0
    """Which part of the batch it works on."""
    device: str = "cpu"
    sp: bool = False
    cp_kind: str = "ring"
    grouped_gemm: bool = False
    groups: Mapping[str, Group] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Group:
        """Return the group of a kind that this rank belongs to."""
        return self.groups.get(name, Group())


ALONE = Place()


@dataclass(frozen=True, slots=True)
class Launch:
    """How this process was started: its number among the processes of a job, and where they meet."""

    process: int = 0
    processes: int = 1
    local: int = 0
    """Its number on this node, which is that of its GPU."""
    node_processes: int = 1
    address: str = "127.0.0.1"
    port: int = 29500
    served: bool = False
    """Whether the launcher itself serves the store there."""
    attempt: str = "0"


def read_launch(environment: Mapping[str, str]) -> Launch:
    """Read what torchrun tells its processes; one process without it."""
    try:
        processes = int(environment.get("WORLD_SIZE", "1"))
        return Launch(
            int(environment.get("RANK", "0")),
            processes,
            int(environment.get("LOCAL_RANK", "0")),
            max(1, int(environment.get("LOCAL_WORLD_SIZE", str(processes)))),
            environment.get("MASTER_ADDR", "127.0.0.1"),
            int(environment.get("MASTER_PORT", "29500")),
            environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            environment.get("TORCHELASTIC_RESTART_COUNT", "0"),
        )
    except ValueError as error:
        names = "RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_PORT"
        raise SpecError(names, str(error), "whole numbers, as torchrun sets them") from None


def require_world(run: RunSpec, processes: int) -> None:
    """Refuse a run whose ranks are not the processes that were started."""
    ranks = run.parallelism.world
    if ranks != processes:
        expected = f"{processes} rank{'s' if processes > 1 else ''}, one for each process"
        raise SpecError(
            "parallelism", f"{ranks} ranks", f"{expected} (torchrun --nproc-per-node={ranks} starts {ranks})"
        )


def take_place(run: RunSpec, device: str, launch: Launch, timeout_s: float = TIMEOUT_S) -> Place:
    """Connect this process with the others, unless it is already, and return its place."""
    require_world(run, dist.get_world_size() if dist.is_initialized() else launch.processes)
    if run.parallelism.world == 1:
        return Place(device=device, grouped_gemm=groups_experts(run.framework, run.training))
    device = _own_device(device, launch.local)
    if not dist.is_initialized():
        _connect(run, device, launch, timeout_s)
    rank = dist.get_rank()
    grid, degrees = Grid(run.parallelism), run.parallelism
    stage, replica = int(grid.stage(rank)), int(np.argwhere(grid.groups("dp") == rank)[0, 1])
    groups = _make_groups(run, rank, timedelta(seconds=timeout_s))
    grouped = groups_experts(run.framework, run.training)
    return Place(rank, degrees.world, stage, replica, device, degrees.sp, degrees.cp_kind, grouped, groups)


def leave_place() -> None:
    """Part from the other ranks, once all of them are done."""
    if dist.is_initialized():
        dist.destroy_process_group()


def trained_rank(run: RunSpec, process: int) -> int:
    """Return the rank of a process: the one that the placement puts on its GPU."""
    placed = run.conditions.gpu_of_rank
    return placed.index(process) if placed else process


def _own_device(device: str, local: int) -> str:
    if device == "cpu":
        return device
    if local >= torch.cuda.device_count():
        seen = f"{torch.cuda.device_count()} GPUs"
        raise SpecError("LOCAL_RANK", local, f"at most one process for each GPU of this node, which has {seen}")
    torch.cuda.set_device(local)
    return f"cuda:{local}"


def _connect(run: RunSpec, device: str, launch: Launch, timeout_s: float) -> None:
    wait = timedelta(seconds=timeout_s)
    try:
        serves = launch.process == 0 and not launch.served
        store = dist.TCPStore(launch.address, launch.port, launch.processes, serves, wait)
        dist.init_process_group(
            # torch calls RCCL nccl, too.
            "gloo" if device == "cpu" else "nccl",
            store=dist.PrefixStore(f"charllm/{launch.attempt}", store),
            rank=trained_rank(run, launch.process),
            world_size=launch.processes,
            timeout=wait,
            device_id=None if device == "cpu" else torch.device(device),
        )
    except (RuntimeError, ValueError) as error:
        where = f"{launch.address}:{launch.port}"
        raise CharllmError(
            f"rank {launch.process} could not reach the others at {where}: {first_line(error)}"
        ) from None


def first_line(error: BaseException) -> str:
    """Return how a message of torch begins, without the places in its sources that follow."""
    return str(error).strip().split("\n")[0][:300]


def group_rows(run: RunSpec) -> dict[str, Ranks]:
    """List the rows of ranks of every kind of group that a run communicates in, by name."""
    degrees = run.parallelism
    grid = Grid(degrees)
    names = ["tp", "cp", "data", "shard", "replicate", "etp", "ep", "edp", "pp"]
    rows = {name: grid.groups(name) for name in names}
    if run.model.kv_heads < degrees.tp:
        # tp ranks that hold the same key-value head.
        rows["kv"] = rows["tp"].reshape(-1, degrees.tp // run.model.kv_heads)
    if run.model.tied_embeddings and degrees.pp > 1:
        rows["embedding"] = rows["pp"][:, [0, -1]]
    sharded = degrees.expert_shard_ranks
    if 1 < sharded < degrees.expert_data_ranks:
        split = rows["edp"].reshape(len(rows["edp"]), -1, sharded)
        rows["expert shard"] = split.reshape(-1, sharded)
        rows["expert replicate"] = np.swapaxes(split, 1, 2).reshape(-1, split.shape[1])
    unused = () if run.model.experts else ("etp", "ep", "edp")
    return {name: table for name, table in rows.items() if table.shape[1] > 1 and name not in unused}


def _make_groups(run: RunSpec, rank: int, timeout: timedelta) -> dict[str, Group]:
    """Create every group on every rank, in one order, as torch asks for; keep those of this rank."""
    found = {"world": Group(None, dist.get_world_size(), rank, tuple(range(dist.get_world_size())))}
    for name, table in group_rows(run).items():
        for row in table.tolist():
            handle = dist.new_group(row, timeout=timeout, group_desc=name)
            if rank in row:
                found[name] = Group(handle, len(row), row.index(rank), tuple(row))
    return found
