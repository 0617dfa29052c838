"""What happens once per step, or once per layer when weights are sharded: gradients, weights, optimizer."""

from charllm.spec.run import RunSpec
from charllm.workload.op import Op, collective, elementwise
from charllm.workload.step import Block, Step, Weights

MIN_BUCKET_PART = 1e6
"""Elements of a bucket for each replica, at least. Published: Megatron-Core, DistributedDataParallel."""

WEIGHT_EXCHANGES = ("all_gather", "broadcast")
"""Collectives that hand weights on, and not gradients."""


def stage_weights(step: Step, stage: int) -> Weights:
    """Count the weights of a stage on one of its ranks."""
    total = Weights()
    for block in step.stage_blocks(stage):
        total = total.plus(block.weights, block.repeats)
    return total


def reduce_bytes(step: Step) -> float:
    """Return the bytes of one gradient element on the wire.

    With fp16's loss scaling gradients are reduced as they accumulate, in 16 bits, unless asked otherwise. Source:
    Megatron-LM sets accumulate_allreduce_grads_in_fp32 by itself with bf16 only.
    """
    training = step.run.training
    default = "fp16" if training.precision == "fp16" else step.run.framework.reduce_precision
    return 4.0 if (training.reduce_precision or default) == "fp32" else 2.0


def stored_bytes(step: Step) -> float:
    """Return the bytes of one weight as it is stored."""
    return 4.0 if step.run.framework.weight_precision == "fp32" else step.cut.element_bytes


def cast_weight_bytes(step: Step) -> float:
    """Return the bytes a weight costs beyond its stored form when products run in a narrower format.

    A cast weight is held row-wise for one product and column-wise for the other.
    """
    how = step.run.framework.cast_weights
    if not step.cut.cast or how == "each-use":
        return 0.0
    both = 2 * step.cut.operand_bytes
    return both if how == "cached" else both - stored_bytes(step)


def gradient_bytes(step: Step) -> float:
    """Return the bytes of gradient for one element; with fp16's loss scaling gradients accumulate in 16 bits."""
    framework, size = step.run.framework, step.cut.element_bytes
    in_fp32 = framework.gradient_precision == "fp32" and step.run.training.precision != "fp16"
    accumulated = 4.0 if in_fp32 else size
    return accumulated + (size if framework.gradient_copies and accumulated > size else 0.0)


def optimizer_bytes(step: Step) -> float:
    """Return the optimizer state of one element: moments, and an fp32 copy where weights are stored in 16 bits."""
    framework, optimizer = step.run.framework, step.run.training.optimizer
    if optimizer == "none":
        return 0.0
    master = 4.0 if framework.master_weights and stored_bytes(step) < 4.0 else 0.0
    moment = 4.0 if framework.moment_precision == "fp32" else step.cut.element_bytes
    return master + (2 * moment if optimizer == "adam" else 0.0)


def trained_tensors(step: Step, stage: int) -> int:
    """Count the tensors of weights that a rank of a stage trains; each expert has its own."""
    local = max(1, step.run.model.experts // step.run.parallelism.ep)
    return sum(
        block.repeats * sum(local if module.expert else 1 for module in block.modules if module.weights)
        for block in step.stage_blocks(stage)
    )


def layer_gather(step: Step, block: Block, direction: str = "forward") -> tuple[Op, ...]:
    """Describe gathering a block's weights before use, when they are sharded (ZeRO-3, FSDP).

    FSDP's second stage (SHARD_GRAD_OP) gathers them in forward and keeps them until its backward is done. ZeRO++ (hpZ)
    gathers them in backward from a second copy that fewer ranks share; experts have none here.
    """
    degrees, weights, size = step.run.parallelism, block.weights, step.cut.element_bytes
    if degrees.zero < 3 and not (gathers_in_forward(step.run) and direction == "forward"):
        return ()
    group, ranks = "shard", degrees.shard_ranks
    if degrees.regather_size and direction == "backward":
        group, ranks = "regather", degrees.regather_size
    return (
        *collective("all_gather", group, (weights.dense + weights.frozen) * size, ranks),
        *collective("all_gather", "edp", weights.expert * size, degrees.expert_shard_ranks),
    )


def layer_reduce(step: Step, block: Block) -> tuple[Op, ...]:
    """Describe reducing a block's gradients as soon as they are known (ZeRO-2 and -3)."""
    return _shard_gradients(step, block.weights) if step.run.parallelism.zero >= 2 else ()


def gather_times(step: Step) -> int:
    """Count how often a step gathers sharded weights for one pass: each microbatch, or once in a pipeline."""
    return 1 if gathers_once(step.run) else step.run.microbatches


def gathers_once(run: RunSpec) -> bool:
    """Tell whether sharded weights stay gathered for a step: in a pipeline, where each microbatch would pay again."""
    return run.parallelism.zero == 3 and run.parallelism.pp > 1


def gathers_in_forward(run: RunSpec) -> bool:
    """Tell whether weights are gathered layer by layer in forward alone: FSDP's second stage, without a pipeline."""
    return run.parallelism.zero == 2 and run.parallelism.pp == 1 and run.framework.unit_gather


def step_sync(step: Step, stage: int) -> tuple[Op, ...]:
    """Describe the gradient and weight exchange at the end of a step, for one rank of a stage."""
    degrees, weights = step.run.parallelism, stage_weights(step, stage)
    ops = _tied_embedding(step, stage)
    if degrees.zero == 3:
        return ops
    if degrees.zero == 0:
        return ops + _whole_gradients(step, weights)
    if degrees.zero == 1 and step.run.framework.whole_gradients:
        ops += _whole_gradients(step, weights)
    elif degrees.zero == 1:
        ops += _shard_gradients(step, weights)
    if gathers_in_forward(step.run):
        return ops
    kind, weight = step.run.framework.weight_exchange.replace("-", "_"), step.cut.element_bytes
    ops += collective(kind, "shard", weights.dense * weight, degrees.shard_ranks)
    return ops + collective(kind, "edp", weights.expert * weight, degrees.expert_shard_ranks)


def count_buckets(step: Step, op: Op) -> int:
    """Count the buckets a gradient or weight exchange is cut into, so that it can begin before all is known."""
    run = step.run
    if op.kind == "broadcast":
        # Whole tensors have owners, and each owner sends once.
        ranks = run.parallelism.shard_ranks if op.group == "shard" else run.parallelism.expert_shard_ranks
        return min(ranks, max(trained_tensors(step, stage) for stage in range(run.parallelism.pp)))
    bucketed = run.framework.buckets == "always" or "dp" in run.parallelism.overlap
    if not bucketed or op.group == "pp" or not run.framework.bucket_bytes:
        return 1
    bucket_bytes = run.framework.bucket_bytes
    if run.framework.growing_buckets:
        # So that each replica's part of a bucket stays long enough to use the network.
        bucket_bytes = max(bucket_bytes, MIN_BUCKET_PART * run.parallelism.data_ranks * reduce_bytes(step))
    return max(1, round(op.message_bytes / bucket_bytes))


def _whole_gradients(step: Step, weights: Weights) -> tuple[Op, ...]:
    """Add up gradients on every replica."""
    degrees, size = step.run.parallelism, reduce_bytes(step)
    return (
        *collective("all_reduce", "data", weights.dense * size, degrees.data_ranks),
        *collective("all_reduce", "edp", weights.expert * size, degrees.expert_data_ranks),
    )


def _shard_gradients(step: Step, weights: Weights) -> tuple[Op, ...]:
    """Reduce gradients to this rank's shard, then over the other copies when only some ranks share one."""
    degrees, size = step.run.parallelism, reduce_bytes(step)
    copies = degrees.data_ranks // degrees.shard_ranks
    return (
        *collective("reduce_scatter", "shard", weights.dense * size, degrees.shard_ranks),
        *collective("all_reduce", "replicate", weights.dense / degrees.shard_ranks * size, copies),
        *collective("reduce_scatter", "edp", weights.expert * size, degrees.expert_shard_ranks),
    )


def _tied_embedding(step: Step, stage: int) -> tuple[Op, ...]:
    """First and last stage add up the gradients of the embedding they share."""
    run = step.run
    pp = run.parallelism.pp
    if (
        not (run.model.tied_embeddings and run.model.vocab and pp > 1 and stage in (0, pp - 1))
        or run.training.lora_rank
    ):
        return ()
    return collective("all_reduce", "pp", step.cut.vocab * run.model.hidden * reduce_bytes(step), 2)


def optimizer_ops(step: Step, stage: int) -> tuple[Op, ...]:
    """Describe the update of this rank's shard: gradient and states read, states and weight written."""
    run = step.run
    if run.training.optimizer == "none":
        return ()
    weights, degrees = stage_weights(step, stage), run.parallelism
    elements = weights.dense / degrees.shard_ranks + weights.expert / degrees.expert_shard_ranks
    if not elements:
        return ()
    states = optimizer_bytes(step)
    read = elements * (gradient_bytes(step) + max(states, stored_bytes(step)))
    update = elementwise("optimizer", "optimizer", read, elements * (states + stored_bytes(step)), "step")
    if not run.training.clip_gradients:
        return (update,)
    gradients = elements * gradient_bytes(step)
    return (elementwise("clip gradients", "clip", 2 * gradients, gradients, "step"), update)
