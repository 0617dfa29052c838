"""Explain why a run does not fit in memory, and find the nearest change that would fit."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from charllm.errors import SpecError
from charllm.spec.run import RunSpec, check_run
from charllm.units import format_bytes
from charllm.workload.memory import StageMemory, first_rank, worst_memory
from charllm.workload.step import build_step


class Change(NamedTuple):
    """A change to a run that makes it fit."""

    flags: str
    memory_bytes: float


def fits(run: RunSpec, memory: StageMemory) -> bool:
    """Tell whether the worst rank fits in its GPU."""
    return memory.least_bytes <= run.cluster.smallest_gpu.memory_bytes


def explain_misfit(run: RunSpec, memory: StageMemory) -> str:
    """Name the rank that does not fit, its largest kind of memory, and the nearest change that would fit."""
    kind, size_bytes = max(memory.by_kind().items(), key=lambda item: item[1])
    change = nearest_change(run)
    advice = (
        f"with {change.flags} it would need {format_bytes(change.memory_bytes)}"
        if change
        else "none of the single changes tried fits: use more GPUs or a smaller model"
    )
    gpu = run.cluster.smallest_gpu
    return (
        f"memory: rank {first_rank(run, memory.stage)} (stage {memory.stage}) needs "
        f"{format_bytes(memory.least_bytes)}, more than the {format_bytes(gpu.memory_bytes)} of one "
        f"{gpu.name}; the largest part is {kind} ({format_bytes(size_bytes)}); {advice}"
    )


def nearest_change(run: RunSpec) -> Change | None:
    """Return the mildest change that fits: first what costs least time, then what moves the run furthest."""
    for flags, make in _changes(run):
        try:
            changed = make()
            check_run(changed)
        except SpecError:
            continue
        memory = worst_memory(build_step(changed))
        if fits(changed, memory):
            return Change(flags, memory.least_bytes)
    return None


def _changes(run: RunSpec) -> Iterator[tuple[str, Callable[[], RunSpec]]]:
    degrees, training = run.parallelism, run.training
    if training.recompute == "none":
        yield "--recompute selective", lambda: _train(run, recompute="selective")
    if degrees.data_ranks > 1:
        for zero in range(degrees.zero + 1, 3):
            yield f"--zero {zero}", lambda zero=zero: _cut(run, zero=zero)  # type: ignore[misc]
    for micro in _halvings(training.micro_batch_size):
        yield f"--mbs {micro}", lambda micro=micro: _train(run, micro_batch_size=micro)  # type: ignore[misc]
    if training.recompute != "full":
        yield "--recompute full", lambda: _train(run, recompute="full", recompute_modules=())
    if degrees.data_ranks > 1 and degrees.zero < 3:
        yield "--zero 3", lambda: _cut(run, zero=3)
    for factor in (2, 4, 8):
        tp, pp = degrees.tp * factor, degrees.pp * factor
        yield f"--tp {tp} --dp {degrees.dp // factor}", lambda factor=factor: _deepen(run, "tp", factor)  # type: ignore[misc]
        yield f"--pp {pp} --dp {degrees.dp // factor}", lambda factor=factor: _deepen(run, "pp", factor)  # type: ignore[misc]
    full = _train(run, recompute="full", recompute_modules=())
    for factor in (2, 4, 8):
        tp, dp = degrees.tp * factor, degrees.dp // factor
        yield f"--tp {tp} --dp {dp} --recompute full", lambda factor=factor: _deepen(full, "tp", factor)  # type: ignore[misc]
    for factor in (2, 4, 8, 16):
        nodes = run.cluster.nodes * factor
        yield f"--set cluster.nodes={nodes} --recompute full", lambda factor=factor: _widen(full, factor)  # type: ignore[misc]


def _halvings(value: int) -> list[int]:
    return [value >> shift for shift in range(1, value.bit_length()) if value % (1 << shift) == 0]


def _train(run: RunSpec, **changes: object) -> RunSpec:
    return replace(run, training=replace(run.training, recompute_layers=None, **changes))  # type: ignore[arg-type]


def _cut(run: RunSpec, **changes: object) -> RunSpec:
    return replace(run, parallelism=replace(run.parallelism, **changes))  # type: ignore[arg-type]


def _deepen(run: RunSpec, axis: str, factor: int) -> RunSpec:
    """Move a factor from dp to tp or pp."""
    degrees = run.parallelism
    if degrees.dp % factor:
        raise SpecError("parallelism.dp", degrees.dp, f"a multiple of {factor}")
    changes: dict[str, object] = {axis: getattr(degrees, axis) * factor, "dp": degrees.dp // factor}
    if axis == "tp":
        changes["sp"] = True
        if run.model.experts and degrees.etp == degrees.tp:
            changes["etp"] = degrees.tp * factor
    if axis == "pp":
        chunks = degrees.pp * factor * degrees.vpp
        if run.model.layers % chunks:
            raise SpecError("parallelism.pp", degrees.pp * factor, f"a divisor of {run.model.layers} layers")
        changes["layers_per_stage"] = (run.model.layers // chunks,) * chunks
    return _cut(run, **changes)


def _widen(run: RunSpec, factor: int) -> RunSpec:
    """Use more nodes for data parallelism, and as many more sequences."""
    wider = replace(run, cluster=replace(run.cluster, nodes=run.cluster.nodes * factor))
    batch = run.training.global_batch_size * factor
    zero = max(1, run.parallelism.zero)
    return _cut(_train(wider, global_batch_size=batch), dp=run.parallelism.dp * factor, zero=zero)
