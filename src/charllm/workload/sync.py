"""What happens once per step, or once per layer when weights are sharded: gradients, weights, optimizer.

Equation: a rank sends weights x bytes x (n - 1) / n for each gather or reduce-scatter over n ranks, twice that for an
all-reduce (workload/op.py); an update reads gradient and states and writes states and weight.
Source: ZeRO (Rajbhandari 2020), FSDP (Zhao 2023), Megatron-Core's DistributedDataParallel.
Ignores: gradients of different dtypes in one bucket; padding of buckets unless every message is described.
"""

from math import ceil
from typing import NamedTuple

from charllm.layout.grid import ENDS, WORLD, Grid
from charllm.spec.run import RunSpec
from charllm.workload.op import Op, collective, elementwise
from charllm.workload.step import Block, Step, Weights

MIN_BUCKET_PART = 1e6
"""Elements of a bucket for each replica, at least. Published: Megatron-Core, DistributedDataParallel."""

WEIGHT_EXCHANGES = ("all_gather", "broadcast")
"""Collectives that hand weights on, and not gradients."""
BUCKETED = ("data", "shard", "replicate", "regather", "edp")
"""Groups whose exchanges are cut into buckets."""
NUMBER_BYTES, LOGGED_NUMBERS = 8.0, 3
"""Of the numbers that all ranks add up at the end of a step: loss, squared norm of the gradients, whether to stop."""


def stage_weights(step: Step, stage: int) -> Weights:
    """Count the weights of a stage on one of its ranks."""
    total = Weights()
    for block in step.stage_blocks(stage):
        total = total.plus(block.weights, block.repeats)
    return total


def stored_bytes(step: Step) -> float:
    """Return the bytes of one weight as it is stored."""
    return 4.0 if step.run.framework.weight_precision == "fp32" else step.cut.element_bytes


def cast_weight_bytes(step: Step) -> float:
    """Return the bytes a weight costs beyond its stored form when products run in a narrower format.

    A cast weight is held row-wise for one product and column-wise for the other.
    """
    how = cast_weights(step.run)
    if not step.cut.cast or how == "each-use":
        return 0.0
    both = (2 if step.run.parallelism.trains else 1) * step.cut.operand_bytes
    return both if how == "cached" else both - stored_bytes(step)


def cast_weights(run: RunSpec) -> str:
    """Tell how products in 8 or 4 bits get their weights: cast for each use, cached beside, or stored so."""
    asked = run.training.narrow_weights
    if asked is None:
        return run.framework.cast_weights
    if asked:
        return "stored"
    return "cached" if run.framework.cast_weights == "stored" else run.framework.cast_weights


def gradient_bytes(step: Step) -> float:
    """Return the bytes of gradient that a rank keeps for one element."""
    if not step.run.parallelism.trains:
        return 0.0
    accumulated, size = step.cut.gradient_bytes, step.cut.element_bytes
    return accumulated + (size if step.run.framework.gradient_copies and accumulated > size else 0.0)


STATE_BYTES = {"fp32": 4.0, "16bit": 2.0, "8bit": 1.0, "none": 0.0}
"""Format of an optimizer's state: bytes. Ignores: the scales of 8-bit ones, one for some hundred values."""


def optimizer_bytes(step: Step) -> float:
    """Return the optimizer state of one element: Adam's moments, and the optimizer's own copy of the weight."""
    optimizer = step.run.training.optimizer
    if optimizer == "none":
        return 0.0
    return _main_weight_bytes(step) + (sum(_moment_bytes(step)) if optimizer == "adam" else 0.0)


def _main_weight_bytes(step: Step) -> float:
    """Return the bytes of the optimizer's own copy; weights stored in fp32 need none."""
    asked = step.run.training.main_weight_precision
    if asked is not None:
        return STATE_BYTES[asked]
    return 4.0 if step.run.framework.master_weights and stored_bytes(step) < 4.0 else 0.0


def _moment_bytes(step: Step) -> tuple[float, float]:
    training = step.run.training
    default = 4.0 if step.run.framework.moment_precision == "fp32" else step.cut.element_bytes
    asked = (training.first_moment_precision, training.second_moment_precision)
    first, second = (STATE_BYTES[one] if one else default for one in asked)
    return first, second


def update_copy_bytes(step: Step) -> float:
    """Return the bytes of the temporary fp32 copy of one gradient that the update reads."""
    training = step.run.training
    copied = step.run.framework.master_weights and gradient_bytes(step) < 4.0
    return 4.0 if copied and training.optimizer != "none" and training.main_gradient_precision == "fp32" else 0.0


def updated_elements(step: Step, stage: int) -> float:
    """Count the weights whose update falls to one rank of a stage, on its GPU or on the host."""
    weights, degrees = stage_weights(step, stage), step.run.parallelism
    return weights.dense / degrees.shard_ranks + weights.expert / degrees.expert_shard_ranks


def trained_tensors(step: Step, stage: int) -> int:
    """Count the tensors of weights that a rank of a stage trains; each expert has its own."""
    local = step.run.model.experts_on_rank(step.run.parallelism.ep)
    return sum(
        block.repeats * sum(local if module.expert else 1 for module in block.modules if module.weights)
        for block in step.stage_blocks(stage)
    )


def layer_gather(step: Step, block: Block, direction: str = "forward") -> tuple[Op, ...]:
    """Describe gathering a block's weights before use, when they are sharded (ZeRO-3, FSDP).

    FSDP's second stage (SHARD_GRAD_OP) gathers them in forward and keeps them until its backward is done. ZeRO++ (hpZ)
    gathers them in backward from a second copy that fewer ranks share; experts have none here.
    """
    degrees, size = step.run.parallelism, step.cut.gathered_bytes
    weights = _unit(step, block)
    if direction == "backward" and (weights.in_forward_alone or degrees.zero < 3):
        return ()
    if not shards_weights(step.run):
        return ()
    group, ranks = "shard", degrees.shard_ranks
    if direction == "backward" and not degrees.trains:
        return ()
    if degrees.regather_size and direction == "backward":
        group, ranks = "regather", degrees.regather_size
    return (
        *collective("all_gather", group, (weights.dense + weights.frozen) * size, ranks),
        *collective("all_gather", "edp", weights.expert * size, degrees.expert_shard_ranks),
    )


def layer_reduce(step: Step, block: Block) -> tuple[Op, ...]:
    """Describe reducing a block's gradients as soon as they are known (ZeRO-2 and -3)."""
    degrees = step.run.parallelism
    return _shard_gradients(step, _unit(step, block)) if degrees.zero >= 2 and degrees.trains else ()


class _Unit(NamedTuple):
    """Weights that are sharded together."""

    dense: float
    frozen: float
    expert: float
    in_forward_alone: bool
    """Whether they stay gathered from forward to backward."""


def _unit(step: Step, block: Block) -> _Unit:
    """Return the weights that are sharded together with a block's; message by message, each is padded to equal rows."""
    run = step.run
    lent = not block.is_layer and run.model.tied_embeddings and run.parallelism.pp == 1 and run.framework.tied_unit
    first, last = step.chunks[0].blocks[0], step.chunks[-1].blocks[-1]
    blocks = ([first, last] if block is first else []) if lent else [block]
    dense = sum(_padded(step, one) for one in blocks)
    frozen, expert = (sum(getattr(one.weights, kind) for one in blocks) for kind in ("frozen", "expert"))
    return _Unit(dense, frozen, expert, lent)


def _padded(step: Step, block: Block) -> float:
    """Count a block's dense weights when every rank of a shard has as many rows of each."""
    if not step.run.framework.every_message or step.run.training.lora_rank:
        return block.weights.dense
    ranks = step.run.parallelism.shard_ranks
    return sum(
        sum(ceil(rows / ranks) * ranks * width for rows, width in module.tensors) or module.weights
        for module in block.modules
        if not module.expert
    )


def gather_times(step: Step) -> int:
    """Count how often a step gathers sharded weights for one pass: each microbatch, or once in a pipeline."""
    return 1 if gathers_once(step.run) else step.run.microbatches


def gathers_once(run: RunSpec) -> bool:
    """Tell whether sharded weights stay gathered for a step: in a pipeline, where each microbatch would pay again."""
    return shards_weights(run) and run.parallelism.pp > 1


def gathers_in_forward(run: RunSpec) -> bool:
    """Tell whether weights are gathered layer by layer in forward alone: FSDP's second stage, without a pipeline."""
    return run.parallelism.zero == 2 and run.parallelism.pp == 1 and run.framework.unit_gather


def shards_weights(run: RunSpec) -> bool:
    """Tell whether weights are gathered unit by unit: ZeRO-3, and FSDP's second stage unless a pipeline forbids."""
    once = run.parallelism.zero == 2 and run.parallelism.pp > 1 and run.framework.reduces_once
    return run.parallelism.zero == 3 or gathers_in_forward(run) or once


def step_sync(step: Step, stage: int) -> tuple[Op, ...]:
    """Describe the gradient and weight exchange at the end of a step, for one rank of a stage."""
    degrees, weights = step.run.parallelism, stage_weights(step, stage)
    if not degrees.trains:
        return ()
    ops = _partial_gradients(step, weights) + _tied_embedding(step, stage) + _logged(step)
    if degrees.zero == 3:
        return ops
    if degrees.zero == 0:
        return ops + _whole_gradients(step, weights)
    if degrees.zero == 1 and step.run.framework.whole_gradients:
        ops += _whole_gradients(step, weights)
    elif degrees.zero == 1:
        ops += _shard_gradients(step, weights)
    if shards_weights(step.run):
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
    if not bucketed or op.group not in BUCKETED or not run.framework.bucket_bytes:
        return 1
    bucket_bytes = run.framework.bucket_bytes
    if run.framework.growing_buckets:
        # So that each replica's part of a bucket stays long enough to use the network.
        bucket_bytes = max(bucket_bytes, MIN_BUCKET_PART * run.parallelism.data_ranks * step.cut.reduced_bytes)
    return max(1, round(op.message_bytes / bucket_bytes))


def cut_buckets(step: Step, op: Op) -> tuple[tuple[Op, int], ...]:
    """Cut a gradient or weight exchange into equal buckets: (bucket, how many of it).

    Message by message, buckets have whole elements: buffers that ranks share evenly are padded, and the last bucket of
    an all-reduce has what is left.
    """
    count, size = count_buckets(step, op), _element_bytes(step, op)
    if not step.run.framework.every_message:
        return ((_share(op, count), count),)
    ranks = Grid(step.run.parallelism).degree(op.group) if op.kind in ("all_gather", "reduce_scatter") else 1
    elements = op.message_bytes / size
    length = ceil(elements / (count * ranks)) * ranks
    last = length if ranks > 1 else elements - (count - 1) * length
    found = ((_share(op, elements / length), count - 1), (_share(op, elements / last), 1))
    return ((found[0][0], count),) if last == length else tuple(entry for entry in found if entry[1])


def _element_bytes(step: Step, op: Op) -> float:
    if op.group == WORLD:
        return NUMBER_BYTES
    return step.cut.element_bytes if op.kind in WEIGHT_EXCHANGES else step.cut.reduced_bytes


def _share(op: Op, parts: float) -> Op:
    """Return one of some parts of a collective."""
    return op._replace(
        read_bytes=op.read_bytes / parts,
        written_bytes=op.written_bytes / parts,
        message_bytes=op.message_bytes / parts,
        sent_bytes=op.sent_bytes / parts,
    )


def _whole_gradients(step: Step, weights: Weights) -> tuple[Op, ...]:
    """Add up gradients on every replica."""
    degrees, size = step.run.parallelism, step.cut.reduced_bytes
    return (
        *collective("all_reduce", "data", weights.dense * size, degrees.data_ranks),
        *collective("all_reduce", "edp", weights.expert * size, degrees.expert_data_ranks),
    )


def _shard_gradients(step: Step, weights: Weights | _Unit) -> tuple[Op, ...]:
    """Reduce gradients to this rank's shard, then over the other copies when only some ranks share one."""
    degrees, size = step.run.parallelism, step.cut.reduced_bytes
    copies = degrees.data_ranks // degrees.shard_ranks
    return (
        *collective("reduce_scatter", "shard", weights.dense * size, degrees.shard_ranks),
        *collective("all_reduce", "replicate", weights.dense / degrees.shard_ranks * size, copies),
        *collective("reduce_scatter", "edp", weights.expert * size, degrees.expert_shard_ranks),
    )


def _partial_gradients(step: Step, weights: Weights) -> tuple[Op, ...]:
    """Add up the gradients of weights that tp ranks copy while each sees only some of the tokens, or of the heads.

    Source: Megatron-Core's `finalize_model_grads` reduces norms' gradients so, in one flat message.
    """
    if not step.run.framework.every_message:
        return ()
    elements = weights.partial / _gradient_shards(step.run)
    return collective("all_reduce", "tp", elements * step.cut.gradient_bytes, step.run.parallelism.tp)


def _gradient_shards(run: RunSpec) -> int:
    """Count the ranks that share the gradients at the end of a step; up to ZeRO-1 each still has all of them."""
    return run.parallelism.shard_ranks if run.parallelism.zero >= 2 else 1


def _logged(step: Step) -> tuple[Op, ...]:
    """Add up the loss and the norm of the gradients over all ranks."""
    if not step.run.framework.every_message:
        return ()
    return collective("all_reduce", WORLD, LOGGED_NUMBERS * NUMBER_BYTES, step.run.parallelism.world)


def _tied_embedding(step: Step, stage: int) -> tuple[Op, ...]:
    """First and last stage add up the gradients of the embedding they share."""
    run = step.run
    pp = run.parallelism.pp
    if (
        not (run.model.tied_embeddings and run.model.vocab and pp > 1 and stage in (0, pp - 1))
        or run.training.lora_rank
    ):
        return ()
    elements = step.cut.vocab * run.model.hidden / _gradient_shards(run)
    return collective("all_reduce", ENDS, elements * step.cut.gradient_bytes, 2)


def optimizer_ops(step: Step, stage: int) -> tuple[Op, ...]:
    """Describe the update of this rank's shard on its GPU: gradient and states read, states and weight written."""
    return update_ops(step, updated_elements(step, stage))


def update_ops(step: Step, elements: float) -> tuple[Op, ...]:
    """Describe the update of some weights on a GPU."""
    training = step.run.training
    if training.optimizer == "none" or not elements:
        return ()
    gradients, states, weight = gradient_bytes(step), optimizer_bytes(step), stored_bytes(step)
    here = elements * (1 - training.optimizer_offload_fraction)
    # The optimizer's own copy of the weight is among its states; without one it reads the weight itself.
    own = 0.0 if _main_weight_bytes(step) else weight
    read, written = here * (gradients + states + own), here * (states + weight)
    update = (elementwise("optimizer", "optimizer", read, written, "step"),) if here else ()
    if not training.clip_gradients:
        return update
    clipped = elements * gradients
    return (elementwise("clip gradients", "clip", 2 * clipped, clipped, "step"), *update)
