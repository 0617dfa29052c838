"""What happens once per step, or once per layer when weights are sharded: gradients, weights, optimizer."""

from charllm.workload.op import Op, collective, elementwise
from charllm.workload.step import Block, Step, Weights


def stage_weights(step: Step, stage: int) -> Weights:
    """Count the weights of a stage on one of its ranks."""
    total = Weights()
    for block in step.stage_blocks(stage):
        total = total.plus(block.weights, block.repeats)
    return total


def reduce_bytes(step: Step) -> float:
    """Return the bytes of one gradient element on the wire."""
    asked = step.run.training.reduce_precision or step.run.framework.reduce_precision
    return 4.0 if asked == "fp32" else 2.0


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


def layer_gather(step: Step, block: Block) -> tuple[Op, ...]:
    """Describe gathering a block's weights before use, when they are sharded (ZeRO-3, FSDP)."""
    if step.run.parallelism.zero < 3:
        return ()
    return _exchange(step, "all_gather", block, step.cut.element_bytes, frozen=True)


def layer_reduce(step: Step, block: Block) -> tuple[Op, ...]:
    """Describe reducing a block's gradients as soon as they are known (ZeRO-2 and -3)."""
    if step.run.parallelism.zero < 2:
        return ()
    return _exchange(step, "reduce_scatter", block, reduce_bytes(step), frozen=False) + _replicas(step, block)


def _exchange(step: Step, kind: str, block: Block, width_bytes: float, *, frozen: bool) -> tuple[Op, ...]:
    degrees, weights = step.run.parallelism, block.weights
    dense = weights.dense + (weights.frozen if frozen else 0.0)
    return (
        *collective(kind, "shard", dense * width_bytes, degrees.shard_ranks),
        *collective(kind, "edp", weights.expert * width_bytes, degrees.expert_shard_ranks),
    )


def _replicas(step: Step, block: Block) -> tuple[Op, ...]:
    """Hybrid sharding: each shard is also reduced over the copies."""
    degrees = step.run.parallelism
    copies = degrees.data_ranks // degrees.shard_ranks
    shard = block.weights.dense / degrees.shard_ranks
    return collective("all_reduce", "replicate", shard * reduce_bytes(step), copies)


def step_sync(step: Step, stage: int) -> tuple[Op, ...]:
    """Describe the gradient and weight exchange at the end of a step, for one rank of a stage."""
    degrees = step.run.parallelism
    weights = stage_weights(step, stage)
    tied = _tied_embedding(step, stage)
    if degrees.zero >= 2:
        return tied
    gradient, weight = reduce_bytes(step), step.cut.element_bytes
    parts = (
        ("data", weights.dense, degrees.data_ranks),
        ("edp", weights.expert, degrees.expert_data_ranks),
    )
    ops: tuple[Op, ...] = tied
    for group, elements, ranks in parts:
        if degrees.zero == 0:
            ops += collective("all_reduce", group, elements * gradient, ranks)
        else:
            ops += collective("reduce_scatter", group, elements * gradient, ranks)
            ops += collective("all_gather", group, elements * weight, ranks)
    return ops


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
    return (elementwise("optimizer", read, elements * (states + stored_bytes(step)), "optimizer"),)
