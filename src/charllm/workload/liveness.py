"""What lives between forward and backward: microbatches in flight, and the high-water marks of one passing through."""

from collections.abc import Callable
from typing import NamedTuple

from charllm.spec.run import RunSpec
from charllm.workload.step import Block, Chunk, Step, Weights
from charllm.workload.sync import gathers_once, reduce_bytes


class Passage(NamedTuple):
    """One microbatch passing through one chunk."""

    kept: float
    """Bytes kept from forward to backward."""
    forward_peak: float
    """Most bytes held while it goes forward, counted from before it."""
    backward_peak: float
    """Most bytes held while it goes backward, gradients that appear on the way included."""
    weights: Weights
    narrow_weights: float
    """Weights whose products run in the run's precision."""


def pass_through(step: Step, chunk: Chunk, fresh_gradient_bytes: Callable[[Weights], float]) -> Passage:
    """Walk one microbatch forward and backward through a chunk and note the high-water marks.

    `fresh_gradient_bytes` gives the gradient of a block that is allocated only now, where no buffer is kept for it.
    """
    level = forward_peak = narrow = 0.0
    weights = Weights()
    for block in chunk.blocks:
        level += block.repeats * block.replay.kept_bytes
        forward_peak = max(forward_peak, level - block.replay.kept_bytes + block.forward_high + _gathered(step, block))
        weights = weights.plus(block.weights, block.repeats)
        narrow += block.repeats * block.weights.total if block.narrow else 0.0
    kept = level
    stream_gradient = backward_peak = fresh = 0.0
    for block in reversed(chunk.blocks):
        working = block.backward_high - block.replay.kept_bytes + stream_gradient + _gathered(step, block)
        working += _unsharded_gradient(step, block)
        gradient = fresh_gradient_bytes(block.weights)
        backward_peak = max(backward_peak, level + working + fresh)
        level -= block.repeats * block.replay.kept_bytes
        fresh += block.repeats * gradient
        # Where gradients grow faster than activations shrink, the last of equal layers is the worst.
        backward_peak = max(backward_peak, level + block.replay.kept_bytes + working + fresh - gradient)
        stream_gradient = step.cut.shard_tokens * step.run.model.hidden * step.cut.element_bytes
    return Passage(kept, forward_peak, max(backward_peak, fresh), weights, narrow)


def _gathered(step: Step, block: Block) -> float:
    """Weights gathered for use when they are sharded: this block's and the prefetched next one's."""
    if step.run.parallelism.zero < 3 or gathers_once(step.run):
        return 0.0
    return 2 * block.weights.total * step.cut.element_bytes


def _unsharded_gradient(step: Step, block: Block) -> float:
    """One block's whole gradient before it is reduced to this rank's shard."""
    if step.run.parallelism.zero < 2 or gathers_once(step.run):
        return 0.0
    return block.weights.trained * reduce_bytes(step)


def live_bytes(passages: list[Passage], flights: tuple[int, ...]) -> tuple[float, float]:
    """Return what the microbatches in flight keep, and what the running one needs on top."""
    kept = sum(passage.kept * flight for passage, flight in zip(passages, flights, strict=True))
    on_top = max(max(passage.forward_peak, passage.backward_peak) - passage.kept for passage in passages)
    return kept, max(0.0, on_top)


def in_flight(run: RunSpec, stage: int) -> tuple[int, ...]:
    """Count the microbatches whose activations each chunk of a stage holds at once."""
    return FLIGHTS[run.parallelism.schedule](run, stage)


def _one_f_one_b(run: RunSpec, stage: int) -> tuple[int, ...]:
    """Stage i of p runs p - i microbatches ahead of their backward."""
    return (min(run.microbatches, run.parallelism.pp - stage),)


def _zero_bubble(run: RunSpec, _stage: int) -> tuple[int, ...]:
    """Every stage of ZB-H1 keeps p microbatches: later ones run fewer ahead, and put off as many more weight passes.

    Ignores: what a microbatch needs for its input's gradient only, and could give back before its weight pass.
    """
    return (min(run.microbatches, run.parallelism.pp),)


def _gpipe(run: RunSpec, _stage: int) -> tuple[int, ...]:
    return (run.microbatches,)


def _interleaved(run: RunSpec, stage: int) -> tuple[int, ...]:
    """Megatron's interleaved 1F1B: 2 (p - i - 1) + (v - 1) p chunk passes of warm-up, in rounds of p microbatches."""
    pp, vpp = run.parallelism.pp, run.parallelism.vpp
    passes = min(2 * (pp - stage - 1) + (vpp - 1) * pp + 1, run.microbatches * vpp)
    full_rounds, rest = divmod(passes, pp * vpp)
    counts = [full_rounds * pp + min(pp, max(0, rest - chunk * pp)) for chunk in range(vpp)]
    return tuple(min(count, run.microbatches) for count in counts)


FLIGHTS: dict[str, Callable[[RunSpec, int], tuple[int, ...]]] = {
    "1f1b": _one_f_one_b,
    "zero-bubble": _zero_bubble,
    "dualpipe": _zero_bubble,
    "gpipe": _gpipe,
    "interleaved": _interleaved,
}
"""Schedule: microbatches in flight. zero-bubble is ZB-H1, which keeps 1F1B's peak, on every stage (Qi et al. 2023)."""
