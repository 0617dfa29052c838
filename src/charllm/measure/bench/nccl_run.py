"""Time collectives on the groups of a layout: every rank runs this, rank 0 writes the rows.

A repeat is some calls back to back, enough for `REPEAT_S`, after one call that brings the ranks of a group together;
its length is that of its slowest rank. On a GPU its calls are one CUDA graph, so that the host, which takes longer to
launch a small collective than the GPU to run it, is not what is measured. Repeats end when the 95 % interval of their
median is narrow, or after a while. Ranks agree on everything (when to stop, what to leave out) over gloo.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from charllm.arrays import Floats
from charllm.layout.grid import Ranks
from charllm.measure.bench.nccl_collectives import (
    LAUNCHES,
    Buffers,
    Launch,
    Member,
    allocate,
    check_collective,
    even_bytes,
    gather,
)
from charllm.measure.bench.nccl_suite import ALONE, ELEMENT_BYTES, CollectiveCase
from charllm.measure.bench.nccl_table import CollectiveRow, bandwidths
from charllm.units import MILLI

REPEAT_S, MOST_CALLS = 0.005, 200
ROUND_REPEATS, LEAST_REPEATS, MOST_REPEATS = 5, 10, 200
INTERVAL_FRACTION = 0.02
WARM_UP_CALLS = 3
PATIENCE = 10.0
"""A case may take this many times its usual seconds for the least number of calls; longer ones are left out."""
MEMORY_FRACTION = 0.5
TIMEOUT = timedelta(minutes=30)


class Bench(NamedTuple):
    """What every rank needs to time a case."""

    members: dict[str, Member]
    """Kind of group: this rank in its group."""
    groups: dict[str, Ranks]
    node_of_rank: tuple[str, ...]
    rank: int
    device: str
    backend: str
    buffers: Buffers
    case_s: float


def join_groups(groups: Mapping[str, Ranks], backend: str, rank: int) -> dict[str, Member]:
    """Create the groups of every kind; all ranks must do this in the same order."""
    members = {}
    for name, rows in groups.items():
        for row in rows:
            ranks = tuple(int(each) for each in sorted(row) if name != "pp") or tuple(int(each) for each in row)
            made = dist.new_group(list(ranks), backend=backend, timeout=TIMEOUT)
            if rank in ranks:
                members[name] = Member(made, ranks, ranks.index(rank))
    return members


def largest_message(
    sizes: Sequence[int], device: str, ranks_per_node: int, available_bytes: Callable[[], float]
) -> int:
    """Return the largest size whose two buffers fit into half of the memory that every rank has left."""
    free = torch.cuda.mem_get_info()[0] if device != "cpu" else available_bytes() / ranks_per_node
    least = torch.tensor(float(free), dtype=torch.float64)
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    fitting = [size for size in sizes if 2 * size <= MEMORY_FRACTION * float(least)]
    return max(fitting, default=min(sizes))


def prepare(
    groups: dict[str, Ranks], node_of_rank: Sequence[str], sizes: Sequence[int], settings: Mapping[str, Any]
) -> Bench:
    """Create groups and buffers of this rank."""
    rank, device, backend = dist.get_rank(), settings["device"], settings["backend"]
    members = join_groups(groups, backend, rank)
    # One element for each rank is the least that a collective can divide.
    largest = max(even_bytes(max(sizes), rows.shape[1]) for rows in groups.values())
    buffers = allocate(largest, device)
    return Bench(members, groups, tuple(node_of_rank), rank, device, backend, buffers, settings["case_s"])


def check_all(bench: Bench, cases: Sequence[CollectiveCase]) -> None:
    """Check the numbers of each collective on each kind of group once."""
    for group, collective in dict.fromkeys((case.group, case.collective) for case in cases):
        check_collective(collective, bench.members[group], bench.device)


def run_cases(
    bench: Bench, cases: Sequence[CollectiveCase], done: set[CollectiveCase], seconds_s: float
) -> Iterator[CollectiveRow | None]:
    """Yield a row for each case, on every rank the same; None for one that was measured before or has no time left."""
    began_s, taken_s = time.monotonic(), dict[tuple[str, str, str], tuple[int, float]]()
    parent = os.getppid()
    for case in cases:
        series = case[:3]
        # Ranks outlive a launcher that is killed: another command may be at the same table by now.
        over = bool(_agree(float(time.monotonic() - began_s > seconds_s or os.getppid() != parent)))
        if case in done or over:
            yield None
            continue
        size, call_s = taken_s.get(series, (0, 0.0))
        expected_s = call_s * case.message_bytes / size if size else 0.0
        row = _time_case(bench, case, expected_s)
        if row.seconds_s is not None:
            taken_s[series] = (case.message_bytes, row.seconds_s)
        yield row


def _agree(value: float) -> float:
    """Return rank 0's value on every rank."""
    told = torch.tensor([value], dtype=torch.float64)
    dist.broadcast(told, src=0)
    return float(told[0])


def _time_case(bench: Bench, case: CollectiveCase, expected_s: float) -> CollectiveRow:
    row = _describe(bench, case)
    least_calls = 2 * WARM_UP_CALLS + 2 * ROUND_REPEATS
    if least_calls * expected_s > PATIENCE * bench.case_s:
        needed_s = math.ceil(least_calls * expected_s / PATIENCE)
        return row._replace(error=f"left out: a call takes about {expected_s:.2g} s; --case-seconds {needed_s} runs it")
    launch = _launch_of(bench, case, row.message_bytes)
    start_s, wall_s = time.monotonic(), time.time()
    calls = _calls_per_repeat(launch, bench.device)
    batch, launched = _batch(launch, calls, bench.device)
    durations = _repeat(lambda: _run(launch, batch, calls, bench.device), bench)
    return _summarise(row, case, durations, bench)._replace(
        calls=calls, launched=launched, start_monotonic_s=start_s, end_monotonic_s=time.monotonic(), start_wall_s=wall_s
    )


def _active(bench: Bench, case: CollectiveCase) -> Ranks:
    """Return the groups that communicate in a case."""
    rows = bench.groups[case.group]
    return rows[:1] if case.mode == ALONE else rows


def _describe(bench: Bench, case: CollectiveCase) -> CollectiveRow:
    active = _active(bench, case)
    ranks = active.shape[1]
    nodes = [[bench.node_of_rank[rank] for rank in row] for row in active]
    everyone = [node for row in nodes for node in row]
    # The size asked for stays the row's: what is sent differs by less than an element for each rank.
    return CollectiveRow(
        *case, ranks, max(row.count(node) for row in nodes for node in set(row)),
        max(everyone.count(node) for node in set(everyone)), len(active), backend=bench.backend,
    )  # fmt: skip


def _launch_of(bench: Bench, case: CollectiveCase, message_bytes: int) -> Launch | None:
    """Return what this rank launches; None where it only looks on."""
    member = bench.members[case.group]
    if bench.rank not in _active(bench, case):
        return None
    count = even_bytes(message_bytes, len(member.ranks)) // ELEMENT_BYTES
    return LAUNCHES[case.collective](member, bench.buffers, count)


def _calls_per_repeat(launch: Launch | None, device: str) -> int:
    """Warm up, and return how many calls make a repeat; all ranks take the slowest one's."""
    warm_up = _loop(launch, WARM_UP_CALLS)
    _run(launch, warm_up, WARM_UP_CALLS, device)
    slowest_s = torch.tensor([_run(launch, warm_up, WARM_UP_CALLS, device)], dtype=torch.float64)
    slowest_s.nan_to_num_(0.0)
    dist.all_reduce(slowest_s, op=dist.ReduceOp.MAX)
    return int(min(MOST_CALLS, max(1, REPEAT_S / max(float(slowest_s), REPEAT_S / MOST_CALLS))))


def _loop(launch: Launch | None, calls: int) -> Launch:
    def run() -> None:
        for _ in range(calls if launch else 0):
            launch()  # type: ignore[misc]

    return run


def _batch(launch: Launch | None, calls: int, device: str) -> tuple[Launch, str]:
    """Return what runs all calls of a repeat, and how: as one graph, or one by one where some rank cannot."""
    loop = _loop(launch, calls)
    if device == "cpu":
        return loop, "eager"
    graph, captured = torch.cuda.CUDAGraph(), 1.0
    if launch is not None:
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                loop()
        except RuntimeError:
            captured = 0.0
    everyone = torch.tensor([captured], dtype=torch.float64)
    dist.all_reduce(everyone, op=dist.ReduceOp.MIN)
    return (graph.replay, "graph") if float(everyone) else (loop, "eager")


def _run(launch: Launch | None, batch: Launch, calls: int, device: str) -> float:
    """Return the seconds of one of several calls back to back, after one that brings the ranks together."""
    if launch is None:
        return math.nan
    launch()
    clock = _HostClock() if device == "cpu" else _DeviceClock()
    batch()
    return clock.elapsed_s() / calls


class _HostClock:
    def __init__(self) -> None:
        self._start_s = time.perf_counter()

    def elapsed_s(self) -> float:
        return time.perf_counter() - self._start_s


class _DeviceClock:
    """Events of the device: they count from when the stream gets there, not from when the host asked."""

    def __init__(self) -> None:
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in "se")
        self._start.record()

    def elapsed_s(self) -> float:
        self._end.record()
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) * MILLI


def _repeat(run: Callable[[], float], bench: Bench) -> Floats:
    """Repeat until the median is known well enough; returns [rank, repeat], NaN for ranks that looked on."""
    rounds: list[Floats] = []
    start_s = time.monotonic()
    while True:
        mine = [run() for _ in range(ROUND_REPEATS)]
        mine.append(time.monotonic() - start_s)
        told = torch.tensor(mine, dtype=torch.float64)
        everyone = torch.zeros(dist.get_world_size() * len(mine), dtype=torch.float64)
        gather(everyone, told)
        table = everyone.numpy().reshape(-1, len(mine))
        rounds.append(table[:, :-1])
        durations = np.concatenate(rounds, axis=1)
        repeats = durations.shape[1]
        # Rank 0's clock decides, so that all ranks stop together.
        if repeats >= MOST_REPEATS or table[0, -1] > bench.case_s:
            return durations
        if repeats >= LEAST_REPEATS and median_interval(np.nanmax(durations, axis=0)) <= INTERVAL_FRACTION:
            return durations


def median_interval(values: Floats) -> float:
    """Return half the 95 % interval of the median over the median, from order statistics (binomial, normal limit)."""
    ordered, count = np.sort(values), len(values)
    reach = 0.98 * math.sqrt(count)
    low, high = int(max(0, math.floor(count / 2 - reach))), int(min(count - 1, math.ceil(count / 2 + reach)))
    return float((ordered[high] - ordered[low]) / 2 / np.median(values))


def _summarise(row: CollectiveRow, case: CollectiveCase, durations: Floats, bench: Bench) -> CollectiveRow:
    """Reduce repeats of all ranks to a row."""
    active = _active(bench, case)
    slowest = np.nanmax(durations, axis=0)
    seconds_s = float(np.median(slowest))
    of_group = [float(np.median(np.max(durations[row_ranks], axis=0))) for row_ranks in active]
    algorithm, bus = bandwidths(row.collective, row.message_bytes, row.ranks, seconds_s)
    return row._replace(
        seconds_s=seconds_s,
        p10_s=float(np.quantile(slowest, 0.1)),
        p90_s=float(np.quantile(slowest, 0.9)),
        interval_fraction=median_interval(slowest),
        repeats=len(slowest),
        algorithm_bytes_per_s=algorithm,
        bus_bytes_per_s=bus,
        fastest_group_s=min(of_group),
        slowest_group_s=max(of_group),
        slowest_group_ranks=" ".join(map(str, sorted(active[int(np.argmax(of_group))].tolist()))),
    )
