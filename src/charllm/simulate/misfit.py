"""Warn of a run that does not fit in memory or may not, and find the nearest change that would fit."""

from collections.abc import Iterator
from typing import NamedTuple

from charllm.catalog.change import (
    Change,
    both,
    changed_run,
    microbatch_change,
    node_change,
    offload_change,
    pipeline_change,
    recompute_change,
    tensor_change,
    zero_change,
)
from charllm.catalog.command import write_command, write_plan_command
from charllm.errors import SpecError
from charllm.result.memory_verdict import MemoryVerdict, judge_memory
from charllm.spec.run import RunSpec
from charllm.units import GIB, format_probability
from charllm.workload.step import build_step


class Remedy(NamedTuple):
    """A change that makes a run fit, and the verdict on the changed run."""

    flags: str
    memory: MemoryVerdict
    run: RunSpec

    def describe(self) -> str:
        """Write the flags, the need and the probability, and the whole command where flags can say it."""
        probability, worst = format_probability(self.memory.fit_probability), self.memory.worst
        told = (
            f"with {self.flags} it fits (probability {probability}), and needs {_gib(worst.need_bytes)} of "
            f"{_gib(worst.gpu_bytes)}"
        )
        command = write_command(self.run)
        return f"{told}: {command}" if command else told


def memory_warnings(run: RunSpec, memory: MemoryVerdict) -> list[str]:
    """Say that a run does not fit, or that it may not."""
    if memory.fits_within():
        return []
    worst, gpu = memory.worst, run.cluster.kinds[memory.worst.node_kind].gpu
    needs = f"memory: rank {worst.rank} (stage {worst.stage}) needs {_gib(worst.need_bytes)}"
    kinds = {kind: size_bytes for kind, size_bytes in worst.by_kind().items() if kind != "reserve"}
    largest = max(kinds, key=lambda kind: kinds[kind])
    part = f"the largest part is {largest} ({_gib(kinds[largest])})"
    probability = f"probability of fitting: {format_probability(memory.fit_probability)}"
    if memory.fits:
        return [f"{needs} of {_gib(gpu.memory_bytes)}: the run may not fit ({probability}); {part}"]
    size = f"more than the {_gib(gpu.memory_bytes)} of one {gpu.name}"
    return [f"{needs}, {size} ({probability}); {part}; {advise(run)}"]


def advise(run: RunSpec) -> str:
    """Say what would make a run fit, with a command that can be run, and what finds the fastest strategy that fits."""
    remedy = nearest_change(run)
    advice = remedy.describe() if remedy else "none of the changes tried makes it fit: use more GPUs or a smaller model"
    search = write_plan_command(run)
    return f"{advice}; {search} finds the fastest strategy that fits" if search else advice


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:,.1f} GiB"


def nearest_change(run: RunSpec) -> Remedy | None:
    """Return the mildest change that fits safely: first what costs least time, then what moves the run furthest.

    Where none does, return that which fits with the highest probability.
    """
    best: Remedy | None = None
    for change in _changes(run):
        try:
            remedy = _try(run, change)
        except SpecError:
            continue
        if remedy.memory.fits_within():
            return remedy
        if remedy.memory.fits and (not best or remedy.memory.fit_probability > best.memory.fit_probability):
            best = remedy
    return best


def _try(run: RunSpec, change: Change) -> Remedy:
    changed = changed_run(run, change)
    return Remedy(change.asked, judge_memory(build_step(changed)), changed)


def _changes(run: RunSpec) -> Iterator[Change]:
    """List single changes, then sharded layers that are recomputed in full, offloaded optimizers, and more nodes."""
    degrees, training = run.parallelism, run.training
    full = recompute_change("full")
    if training.recompute == "none":
        yield recompute_change("selective")
    if degrees.data_ranks > 1:
        for zero in range(degrees.zero + 1, 3):
            yield zero_change(zero)
    for halvings in range(1, training.micro_batch_size.bit_length()):
        yield from microbatch_change(run, 0.5**halvings)
    if training.recompute != "full":
        yield full
    shards = list(_shard_changes(run))
    yield from shards
    smallest = [*microbatch_change(run, 1 / training.micro_batch_size)] if training.micro_batch_size > 1 else []
    for least in (full, both(full, offload_change())):
        yield least
        yield from (both(change, least) for change in shards)
        yield from (both(both(change, smaller), least) for change in shards for smaller in smallest)
    for factor in (2, 4, 8, 16):
        yield both(node_change(run, factor), full)


def _shard_changes(run: RunSpec) -> Iterator[Change]:
    """Shard weights over replicas, or layers over more ranks."""
    if run.parallelism.data_ranks > 1 and run.parallelism.zero < 3:
        yield zero_change(3)
    for factor in (2, 4, 8):
        yield from tensor_change(run, factor)
        yield from pipeline_change(run, factor)
