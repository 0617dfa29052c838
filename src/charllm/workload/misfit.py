"""Tell whether a run fits in memory; explain why it does not, and find the nearest change that would fit."""

from collections.abc import Iterator
from typing import NamedTuple

from charllm.catalog.change import (
    Change,
    both,
    changed_run,
    microbatch_change,
    node_change,
    pipeline_change,
    recompute_change,
    tensor_change,
    zero_change,
)
from charllm.errors import SpecError
from charllm.spec.run import RunSpec
from charllm.units import format_bytes
from charllm.workload.memory import StageMemory, first_rank, worst_memory
from charllm.workload.step import build_step

ERROR_FRACTION = 0.05
"""What predicted memory may be off by. Measured: nine in ten dense loops on an H200 are within 4 %, three in four
published runs that print allocated memory within 5 % (benchmarks/memory.py)."""


class Remedy(NamedTuple):
    """A change that makes a run fit, and what the changed run reports."""

    flags: str
    memory_peak_bytes: float


def fits(run: RunSpec, memory: StageMemory) -> bool:
    """Tell whether the worst rank fits in its GPU."""
    return memory.least_bytes <= run.cluster.smallest_gpu.memory_bytes


def memory_warnings(run: RunSpec, memory: StageMemory) -> list[str]:
    """Say that a run does not fit, or that it fits by less than predictions may be off by."""
    has_bytes = run.cluster.smallest_gpu.memory_bytes
    if not fits(run, memory):
        return [explain_misfit(run, memory)]
    if memory.least_bytes * (1 + ERROR_FRACTION) <= has_bytes:
        return []
    return [
        f"memory: rank {first_rank(run, memory.stage)} (stage {memory.stage}) needs at least "
        f"{format_bytes(memory.least_bytes)} of {format_bytes(has_bytes)}, which is within the {ERROR_FRACTION:.0%} "
        "error of predicted memory: the run may not fit"
    ]


def explain_misfit(run: RunSpec, memory: StageMemory) -> str:
    """Name the rank that does not fit, its largest kind of memory, and the nearest change that would fit."""
    has_bytes = run.cluster.smallest_gpu.memory_bytes
    kind, size_bytes = max(memory.by_kind().items(), key=lambda item: item[1])
    remedy = nearest_change(run)
    advice = (
        f"with {remedy.flags} it fits, and its memory is {format_bytes(remedy.memory_peak_bytes)}"
        if remedy
        else "none of the single changes tried fits: use more GPUs or a smaller model"
    )
    doubt = (
        f" (within the {ERROR_FRACTION:.0%} error of predicted memory: it may fit)"
        if memory.least_bytes <= has_bytes * (1 + ERROR_FRACTION)
        else ""
    )
    return (
        f"memory: rank {first_rank(run, memory.stage)} (stage {memory.stage}) needs "
        f"{format_bytes(memory.least_bytes)}, more than the {format_bytes(has_bytes)} of one "
        f"{run.cluster.smallest_gpu.name}{doubt}; the largest part is {kind} ({format_bytes(size_bytes)}); {advice}"
    )


def nearest_change(run: RunSpec) -> Remedy | None:
    """Return the mildest change that fits: first what costs least time, then what moves the run furthest."""
    for change in _changes(run):
        try:
            changed = changed_run(run, change)
        except SpecError:
            continue
        memory = worst_memory(build_step(changed))
        if fits(changed, memory):
            return Remedy(change.asked, memory.total_bytes)
    return None


def _changes(run: RunSpec) -> Iterator[Change]:
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
    if degrees.data_ranks > 1 and degrees.zero < 3:
        yield zero_change(3)
    for factor in (2, 4, 8):
        yield from tensor_change(run, factor)
        yield from pipeline_change(run, factor)
    for factor in (2, 4, 8):
        for change in tensor_change(run, factor):
            yield both(change, full)
    for factor in (2, 4, 8, 16):
        yield both(node_change(run, factor), full)
