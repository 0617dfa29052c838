"""Settings that a software profile supplies where a request leaves them open. Explicit settings always win.

The profile `megatron` supplies one of them: plain Megatron-LM hides sends where stages are interleaved, and overlaps,
interleaves, recomputes and drops nothing else unless it is told to.
"""

from collections.abc import Mapping
from typing import Any

from charllm.spec.framework import Framework
from charllm.spec.model import Model
from charllm.spec.parallelism import OVERLAPS, Parallelism
from charllm.spec.training import RECOMPUTES
from charllm.spec.validity import hideable

DEFAULT_BATCH = 128

MAX_CHUNKS = 8
"""Most chunks of a stage that a default takes: public recipes go up to 8 with equal chunks, and rarely further."""


def default_overlap(framework: Framework, degrees: Parallelism, *, sparse: bool) -> list[str]:
    """List the axes that the profile overlaps and that have something to hide at these degrees."""
    usual = (
        framework.default_sparse_overlap if sparse and framework.default_sparse_overlap else framework.default_overlap
    )
    able = hideable(degrees)
    return [axis for axis in OVERLAPS if axis in usual and able[axis]]


def default_chunks(layers: int, pp: int, microbatches: int) -> tuple[int, tuple[int, ...]]:
    """Return vpp and layers of each chunk of an interleaved schedule, or (1, ()) where none is possible.

    Takes the most chunks up to MAX_CHUNKS that are equal; where stages do not divide the layers, embedding and head
    count as one layer each. The interleaved schedule needs whole rounds of pp microbatches.
    """
    if pp < 2 or microbatches < 1 or microbatches % pp:
        return 1, ()
    counted = layers if layers % pp == 0 else layers + 2
    vpp = max((count for count in range(2, MAX_CHUNKS + 1) if counted % (pp * count) == 0), default=1)
    return (vpp, split_layers(layers, pp * vpp)) if vpp > 1 else (1, ())


def split_layers(layers: int, chunks: int) -> tuple[int, ...]:
    """Spread layers over chunks as public recipes do.

    Evenly where that is possible; else with embedding and head counted as a layer each; else chunks are filled and the
    last, which has the head, is short, then the first (Megatron-Bridge, DeepSeek-V3 and Kimi K2: 61 layers as
    4 x 15 + 1, or 1 + 2 x 30 + 0).
    """
    if layers % chunks == 0:
        return (layers // chunks,) * chunks
    if (layers + 2) % chunks == 0:
        even = (layers + 2) // chunks
        return (even - 1, *[even] * (chunks - 2), even - 1)
    most = -(-layers // chunks)
    short = most * chunks - layers
    at_end = min(most, short)
    at_start = short - at_end
    if at_start >= most:
        low, more = divmod(layers, chunks)
        return (low + 1,) * more + (low,) * (chunks - more)
    return (most - at_start, *[most] * (chunks - 2), most - at_end)


def split_by_products(model: Model, stages: int) -> tuple[int, ...]:
    """Return the layers of each stage as nanotron's build_model places them.

    A block goes to the stage at hand, which ends once the products so far exceed its even share of all, the head's
    among them: a model with a large vocabulary has few layers in its last stage, or none.
    """
    layer = 4 * model.heads * model.head_dim * model.hidden + 3 * model.ffn * model.hidden
    total = model.layers * layer + model.vocab * model.hidden
    counts, place = [0] * stages, 0
    for number in range(1, model.layers + 1):
        counts[place] += 1
        place += number * layer * stages > total * (place + 1) and place < stages - 1
    return tuple(counts)


def training_defaults(framework: Framework, training: Mapping[str, Any], *, sparse: bool) -> dict[str, Any]:
    """Return recomputation and expert capacity of the profile, where the request gives neither."""
    found: dict[str, Any] = {}
    says_recompute = any(key.startswith("recompute") for key in training)
    if not says_recompute and framework.default_recompute in RECOMPUTES and framework.default_recompute != "none":
        found["recompute"] = framework.default_recompute
    if sparse and framework.drops_tokens and not {"capacity_factor", "routing_skew"} & set(training):
        found["capacity_factor"] = 1.0
    return found


def default_batch(dp: int, micro_batch_size: int) -> int:
    """Return a batch of 128, rounded up to whole microbatches of all ranks."""
    per_round = dp * micro_batch_size
    return -(-DEFAULT_BATCH // per_round) * per_round


def describe_defaults(taken: Mapping[str, Any]) -> tuple[str, ...]:
    """Say each default that was taken in words: ``overlap tp,dp,pp``, ``vpp 4``."""
    return tuple(
        f"{name} {','.join(value) if isinstance(value, list) else f'{value:g}' if isinstance(value, float) else value}"
        for name, value in taken.items()
    )
