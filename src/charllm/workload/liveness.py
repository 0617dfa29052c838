"""What lives between forward and backward: microbatches in flight, and the high-water marks of one passing through.

Equation: activations = sum over chunks of kept bytes x microbatches in flight; on top of them one microbatch is walked
forward and backward through the blocks of a chunk, each adding what it keeps and holding its scratch, and the highest
level counts.
Source: schedules as named beside FLIGHTS; what modules keep is beside each module.
Ignores: the order of allocations within a module; tensors of a microbatch that are freed early between two blocks.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from charllm.spec.run import RunSpec
from charllm.spec.schedules import SCHEDULES
from charllm.workload.step import Block, Chunk, Step, Weights
from charllm.workload.sync import gathers_once


class Passage(NamedTuple):
    """One microbatch passing through one chunk."""

    kept: float
    """Bytes kept on the GPU from forward to backward."""
    put_off: float
    """Bytes that its weight gradients need, where these are put off."""
    peak: float
    """Most bytes held while it passes, counted from before it, gradients that appear on the way included."""
    pool_peak: float
    """The same in the memory pool of the compute stream alone, with the holes that nothing fits in."""
    side_pools: float
    """Most bytes in pools of other streams: weights gathered and gradients reduced beside the computation."""
    weights: Weights
    narrow_weights: float
    """Weights whose products run in the run's precision."""


class Flight(NamedTuple):
    """Microbatches of one chunk that a rank holds at once."""

    whole: int
    """Those whose backward pass is still to come."""
    put_off: int = 0
    """Those of which only what weight gradients need is left."""


def pass_through(step: Step, chunk: Chunk, fresh_gradient_bytes: Callable[[Weights], float]) -> Passage:
    """Walk one microbatch forward and backward through a chunk and note the high-water marks.

    `fresh_gradient_bytes` gives the gradient of a block that is allocated only now, where no buffer is kept for it.
    """
    level = peak = pool_peak = narrow = put_off = freed = 0.0
    # Sharded weights are gathered, and their gradients reduced, on streams of their own (FSDP, ZeRO-3).
    beside = step.run.parallelism.zero == 3
    weights = Weights()
    gathered = _gathered(step, chunk.blocks)
    for block, unsharded in zip(chunk.blocks, gathered, strict=True):
        here, moving = _resident(step, block)
        level += block.repeats * here
        computing = level - here + block.forward_high + moving
        # What layers freed on their way is in blocks too small for logits.
        pool_peak = max(pool_peak, computing + (0.0 if block.is_layer else freed))
        peak = max(peak, computing + unsharded)
        freed = max(freed, block.forward_high - block.replay.kept_bytes) if block.is_layer else freed
        weights = weights.plus(block.weights, block.repeats)
        narrow += block.repeats * block.weights.total if block.narrow else 0.0
        put_off += block.repeats * _put_off(block)
    kept = level
    stream_gradient = fresh = 0.0
    for block, unsharded in zip(reversed(chunk.blocks), reversed(gathered), strict=True):
        here, moving = _resident(step, block)
        working = block.backward_high - here + stream_gradient + _unsharded_gradient(step, block)
        gradient = fresh_gradient_bytes(block.weights)
        computing = level + working + moving
        holes = 0.0 if block.is_layer else freed + block.hole
        pool_peak = max(pool_peak, computing + holes + (0.0 if beside else fresh))
        peak = max(peak, computing + unsharded + fresh)
        level -= block.repeats * here
        fresh += block.repeats * gradient
        # Where gradients grow faster than activations shrink, the last of equal layers is the worst.
        peak = max(peak, level + here + working + unsharded + fresh - gradient)
        stream_gradient = step.cut.shard_tokens * step.run.model.hidden * step.cut.stream_bytes
    side_pools = max(gathered) + fresh if beside else 0.0
    return Passage(kept, put_off, max(peak, fresh), pool_peak, side_pools, weights, narrow)


def _resident(step: Step, block: Block) -> tuple[float, float]:
    """Return what one repeat of a block keeps on the GPU, and what the copy to or from the host still holds there."""
    kept = block.replay.kept_bytes
    away = kept * step.run.training.activation_offload_fraction if block.is_layer else 0.0
    return kept - away, away if block.repeats > 1 else 0.0


def _put_off(block: Block) -> float:
    """Operands of weight gradients that are put off; that of the head follows the loss, whose logits are large.

    Where recomputation leaves less than these operands, weight gradients are assumed to need no more than it leaves.
    """
    if not block.is_layer:
        return 0.0
    operands = sum(op.read_bytes for module in block.modules for op in module.backward if op.direction == "wgrad")
    return min(operands, block.replay.kept_bytes)


def _gathered(step: Step, blocks: tuple[Block, ...]) -> list[float]:
    """Weights gathered for use when they are sharded: each block's, and those of the larger neighbour prefetched.

    DeepSpeed lets more of them stay, up to a count.
    """
    if step.run.parallelism.zero < 3 or gathers_once(step.run):
        return [0.0] * len(blocks)
    sizes = [block.weights.total * step.cut.gathered_bytes for block in blocks]
    beside = [size if block.repeats > 1 else 0.0 for size, block in zip(sizes, blocks, strict=True)]
    for place, (size, following) in enumerate(pairwise(sizes)):
        beside[place] = max(beside[place], following)
        beside[place + 1] = max(beside[place + 1], size)
    whole = sum(block.repeats * size for block, size in zip(blocks, sizes, strict=True))
    staying = min(whole, step.run.framework.live_parameters * step.cut.gathered_bytes)
    return [max(staying, size + other) for size, other in zip(sizes, beside, strict=True)]


def _unsharded_gradient(step: Step, block: Block) -> float:
    """One layer's whole gradient before it is reduced to this rank's shard; a head's appears after its logits' peak."""
    if step.run.parallelism.zero < 2 or gathers_once(step.run) or not block.is_layer:
        return 0.0
    return block.weights.trained * step.cut.reduced_bytes


def live_bytes(passages: list[Passage], flights: tuple[Flight, ...]) -> float:
    """Return what the microbatches in flight keep."""
    return sum(
        passage.kept * flight.whole + passage.put_off * flight.put_off
        for passage, flight in zip(passages, flights, strict=True)
    )


def rank_chunks(step: Step, stage: int) -> tuple[Chunk, ...]:
    """List the chunks a rank of a stage holds; DualPipe's also hold the stage as far from the other end."""
    chunks, degrees = step.stage_chunks(stage), step.run.parallelism
    if not SCHEDULES[degrees.schedule].both_ends or degrees.pp == 1:
        return chunks
    return (*chunks, *step.stage_chunks(degrees.pp - 1 - stage))


def in_flight(run: RunSpec, stage: int) -> tuple[Flight, ...]:
    """Count the microbatches whose activations a rank of a stage holds at once, for each chunk of `rank_chunks`."""
    return FLIGHTS[run.parallelism.schedule](run, stage)


def _one_f_one_b(run: RunSpec, stage: int) -> tuple[Flight, ...]:
    """Stage i of p runs p - i microbatches ahead of their backward."""
    return (Flight(min(run.microbatches, run.parallelism.pp - stage)),)


def _zero_bubble(run: RunSpec, stage: int) -> tuple[Flight, ...]:
    """Later stages of ZB-H1 run fewer microbatches ahead, and put off as many more weight passes (Qi et al. 2023)."""
    ((whole, _),) = _one_f_one_b(run, stage)
    return (Flight(whole, min(stage, run.microbatches - whole)),)


def _dualpipe(run: RunSpec, stage: int) -> tuple[Flight, ...]:
    """Half of the microbatches enter at either end: p - i are in flight on stage i, i + 1 on stage p - 1 - i.

    Source: DeepSeek-V3 report, table 2: activations of p + 1 microbatches.
    """
    entering, pp = -(-run.microbatches // 2), run.parallelism.pp
    if pp == 1:
        return _one_f_one_b(run, stage)
    return Flight(min(entering, pp - stage)), Flight(min(entering, stage + 1))


def _gpipe(run: RunSpec, _stage: int) -> tuple[Flight, ...]:
    return (Flight(run.microbatches),)


def _interleaved(run: RunSpec, stage: int) -> tuple[Flight, ...]:
    """Megatron's interleaved 1F1B: 2 (p - i - 1) + (v - 1) p chunk passes of warm-up, in rounds of p microbatches."""
    pp, vpp = run.parallelism.pp, run.parallelism.vpp
    passes = min(2 * (pp - stage - 1) + (vpp - 1) * pp + 1, run.microbatches * vpp)
    full_rounds, rest = divmod(passes, pp * vpp)
    counts = [full_rounds * pp + min(pp, max(0, rest - chunk * pp)) for chunk in range(vpp)]
    return tuple(Flight(min(count, run.microbatches)) for count in counts)


def _forward_only(run: RunSpec, _stage: int) -> tuple[Flight, ...]:
    """Nothing waits for a backward pass."""
    return (Flight(0),) * run.parallelism.vpp


FLIGHTS: dict[str, Callable[[RunSpec, int], tuple[Flight, ...]]] = {
    "1f1b": _one_f_one_b,
    "zero-bubble": _zero_bubble,
    "dualpipe": _dualpipe,
    "gpipe": _gpipe,
    "interleaved": _interleaved,
    "forward-only": _forward_only,
}
"""Schedule: microbatches in flight."""
