"""Memory of one rank of each stage on each kind of GPU, by kind, at its worst moment.

States (weights, gradients, optimizer) stay; activations follow the schedule: a stage holds what its microbatches in
flight keep, plus what the block that is running needs on top. The caching allocator reserves more than it uses, and the
driver's context and the communicators' buffers lie outside it.
Equation: total = weights + gradients + optimizer (each over the ranks that share it) + activations + scratch + reserve
+ communication + context.
Source: ZeRO (Rajbhandari 2020) for what is shared; constants below; workload/liveness.py for activations.
Ignores: memory of profilers, checkpoints and CUDA graphs; user tensors outside the model.
"""

from typing import NamedTuple

import numpy as np

from charllm.layout.grid import Grid
from charllm.layout.nodes import node_kinds
from charllm.layout.placement import place_ranks
from charllm.spec.hardware import Gpu
from charllm.spec.run import RunSpec
from charllm.units import MIB
from charllm.workload.cache_memory import stage_cache_bytes
from charllm.workload.liveness import Passage, in_flight, live_bytes, pass_through, rank_chunks
from charllm.workload.memory_kinds import KINDS
from charllm.workload.op import Module
from charllm.workload.step import Step, Weights
from charllm.workload.sync import (
    cast_weight_bytes,
    gathers_in_forward,
    gathers_once,
    gradient_bytes,
    optimizer_bytes,
    shards_weights,
    stored_bytes,
    update_copy_bytes,
)

FRAGMENTATION = 0.02
"""Assumed: share of its use that an allocator cannot avoid to waste, whatever it gives back."""

WORKSPACE_BYTES = 64 * MIB
"""Measured: workspaces of cuBLAS and cuBLASLt, which PyTorch allocates at the first product (32 MiB each on Hopper);
22 dense loops on an H200 report 50 to 80 MiB more than their tensors (evaluate/h200/readings/loops.csv)."""

COMMUNICATOR_BYTES = 400 * MIB
"""Assumed: 24 channels x two directions x 8 MiB, NCCL's buffers of all three protocols for one communicator."""


class StageMemory(NamedTuple):
    """Bytes on one rank of a stage at its worst moment."""

    stage: int
    rank: int
    """The lowest of the stage on this kind of node."""
    node_kind: int
    """Place of its node among the kinds of the cluster."""
    gpu_bytes: float
    """Memory of its GPU."""
    weights: float
    gradients: float
    optimizer: float
    activations: float
    """Kept on the GPU from forward to backward by all microbatches in flight; of a generation, its key-value cache."""
    scratch: float
    """On top, while a block runs: recomputed activations, gradients of activations, gathered weights."""
    reserve: float
    """Freed memory that the allocator holds: cached blocks, holes, and pools of streams that are not at their peak."""
    communication: float
    context: float

    @property
    def allocated_bytes(self) -> float:
        """What the framework's allocator reports as its peak use (torch.cuda.max_memory_allocated)."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.scratch

    @property
    def reserved_bytes(self) -> float:
        """What the allocator holds from the driver (torch.cuda.max_memory_reserved)."""
        return self.allocated_bytes + self.reserve

    @property
    def total_bytes(self) -> float:
        """What the device has in use (nvidia-smi)."""
        return self.reserved_bytes + self.communication + self.context

    @property
    def need_bytes(self) -> float:
        """What the device must have: cached blocks can be given back, fragmentation cannot."""
        return self.allocated_bytes * (1 + FRAGMENTATION) + self.communication + self.context

    @property
    def margin_fraction(self) -> float:
        """Share of its GPU's memory that it does not need; negative where it does not fit."""
        return 1 - self.need_bytes / self.gpu_bytes

    def by_kind(self) -> dict[str, float]:
        """Return the bytes of each kind."""
        return {kind: getattr(self, kind) for kind in KINDS}


def rank_memories(step: Step) -> list[StageMemory]:
    """Return the memory of one rank of every stage, in a mixed cluster on every kind of node that the stage runs on.

    Stages with the same chunks differ in what is in flight.
    """
    run = step.run
    passages: dict[int, Passage] = {}
    for chunk in step.chunks:
        if id(chunk.blocks) not in passages:
            passages[id(chunk.blocks)] = pass_through(step, chunk, lambda weights: _fresh_gradient(step, weights))
    states: dict[tuple[int, ...], _States] = {}
    communication = communication_bytes(run)
    memories = []
    for stage, kind, rank in _stage_ranks(run):
        key = tuple(id(chunk.blocks) for chunk in rank_chunks(step, stage))
        if key not in states:
            states[key] = _stage_states(step, stage, [passages[chunk] for chunk in key])
        memories.append(_rank_memory(run, (stage, rank, kind), states[key], communication))
    return memories


def _stage_ranks(run: RunSpec) -> list[tuple[int, int, int]]:
    """List stages, the kinds of node that each runs on, and its first rank there."""
    if not run.cluster.mixed:
        return [(stage, 0, first_rank(run, stage)) for stage in range(run.parallelism.pp)]
    stages = Grid(run.parallelism).stage(np.arange(run.parallelism.world))
    kinds = node_kinds(run.cluster)[place_ranks(run) // run.cluster.node.gpus]
    pairs, ranks = np.unique(np.stack([stages, kinds]), axis=1, return_index=True)
    return [(stage, kind, rank) for (stage, kind), rank in zip(pairs.T.tolist(), ranks.tolist(), strict=True)]


def first_rank(run: RunSpec, stage: int) -> int:
    """Return the lowest rank of a stage."""
    return int(Grid(run.parallelism).rank(0, stage))


def context_bytes(run: RunSpec, gpu: Gpu) -> float:
    """Return what the driver and the loaded kernels keep of a GPU's memory."""
    return gpu.context_bytes + run.framework.kernel_bytes


def communication_bytes(run: RunSpec) -> float:
    """Return the buffers of the communicators a rank belongs to, and of gradient buckets where these are copies."""
    degrees = run.parallelism
    groups = sum(degree > 1 for degree in (degrees.tp, degrees.cp, degrees.data_ranks, degrees.pp, degrees.ep))
    # One more spans all ranks, for the norm of the gradients.
    communicators = groups + 1 if groups else 0
    copied = run.framework.copied_buckets and degrees.data_ranks > 1 and degrees.trains
    buckets = 2 * run.framework.bucket_bytes if copied else 0.0
    return COMMUNICATOR_BYTES * communicators + buckets


class _States(NamedTuple):
    """What a stage holds whatever is in flight, and the passages that tell what is."""

    weights: float
    gradients: float
    optimizer: float
    standing_scratch: float
    update_scratch: float
    passages: list[Passage]


def _stage_states(step: Step, stage: int, passages: list[Passage]) -> _States:
    run = step.run
    weights = Weights()
    for passage in passages:
        weights = weights.plus(passage.weights)
    # Both ranks that hold a stage in a DualPipe share its optimizer's states.
    holders = len(passages) // run.parallelism.vpp if run.parallelism.zero else 1
    shard = _sharded(run, weights, 1) / holders
    on_gpu = 1 - run.training.optimizer_offload_fraction
    frozen_shard = run.parallelism.shard_ranks if run.parallelism.zero == 3 else 1
    held = _sharded(run, weights, 2 if shards_weights(run) else 3) + weights.frozen / frozen_shard
    weight_bytes = held * stored_bytes(step)
    if step.cut.cast and weights.total:
        narrow_fraction = sum(passage.narrow_weights for passage in passages) / weights.total
        weight_bytes += held * narrow_fraction * cast_weight_bytes(step)
    return _States(
        weights=weight_bytes,
        gradients=_sharded(run, weights, 2) * gradient_bytes(step) if _keeps_gradients(run) else 0.0,
        optimizer=shard * on_gpu * optimizer_bytes(step),
        standing_scratch=WORKSPACE_BYTES + _placeholders(step, stage) + _gathered_for_a_step(step, weights),
        update_scratch=shard * on_gpu * update_copy_bytes(step),
        passages=passages,
    )


def _rank_memory(run: RunSpec, place: tuple[int, int, int], states: _States, communication: float) -> StageMemory:
    stage, _rank, kind = place
    gpu, passages = run.cluster.kinds[kind].gpu, states.passages
    context = context_bytes(run, gpu)
    activations = live_bytes(passages, in_flight(run, stage)) + stage_cache_bytes(run, stage)
    on_top = max(passage.peak - passage.kept for passage in passages) + states.standing_scratch
    # The update runs when activations are gone; it then needs an fp32 copy of 16-bit gradients.
    scratch = max(0.0, on_top, states.update_scratch - activations)
    allocated = states.weights + states.gradients + states.optimizer + activations + scratch
    apart = max(0.0, _pools_apart(passages) + states.standing_scratch - scratch)
    free = gpu.memory_bytes - allocated - communication - context
    # Freed blocks stay cached only while there is room; what fragmentation costs cannot be given back.
    reserve = max(FRAGMENTATION * allocated, min(apart + run.framework.reserve_fraction * allocated, free))
    return StageMemory(
        *place,
        gpu.memory_bytes,
        states.weights,
        states.gradients,
        states.optimizer,
        activations,
        scratch,
        reserve,
        communication,
        context,
    )


def _pools_apart(passages: list[Passage]) -> float:
    """Return what is held on top when every pool is at its own peak: the allocator keeps one for each stream."""
    return max(passage.pool_peak - passage.kept for passage in passages) + sum(one.side_pools for one in passages)


def _sharded(run: RunSpec, weights: Weights, zero: int) -> float:
    """Trained elements on this rank when ZeRO stages from `zero` on shard them."""
    degrees = run.parallelism
    if degrees.zero < zero:
        return weights.trained
    return weights.dense / degrees.shard_ranks + weights.expert / degrees.expert_shard_ranks


def _keeps_gradients(run: RunSpec) -> bool:
    """Tell whether gradients live through all of a step: in buffers, or because microbatches add to them."""
    return run.framework.persistent_gradients or (run.microbatches > 1 and not gathers_once(run))


def _fresh_gradient(step: Step, weights: Weights) -> float:
    """Gradient that is allocated during backward, where none is there already."""
    if _keeps_gradients(step.run):
        return 0.0
    return _sharded(step.run, weights, 2) * gradient_bytes(step)


def _gathered_for_a_step(step: Step, weights: Weights) -> float:
    """Weights that stay gathered for a whole step, and their gradients, whole until the last microbatch."""
    size = step.cut.gathered_bytes
    if gathers_in_forward(step.run):
        return weights.total * size
    copy_ranks = step.run.parallelism.regather_size
    if copy_ranks and not gathers_once(step.run):
        return (weights.dense + weights.frozen) / copy_ranks * size
    if not gathers_once(step.run):
        return 0.0
    return weights.total * size + (weights.trained * step.cut.reduced_bytes if step.run.parallelism.trains else 0.0)


def _placeholders(step: Step, stage: int) -> float:
    """One empty gradient for each shape of weight, where gradients are really added elsewhere in place."""
    if not (step.run.framework.fused_gradients and step.run.parallelism.trains):
        return 0.0
    each = {block.name: block for block in step.stage_blocks(stage) if block.name != "embedding"}
    elements = sum(module.weights / _copies(step.run, module) for block in each.values() for module in block.modules)
    return elements * step.cut.element_bytes


def _copies(run: RunSpec, module: Module) -> int:
    """Weights of one shape in a module: its experts."""
    return run.model.experts_on_rank(run.parallelism.ep) if module.expert else 1
