"""Normalisations and the residual stream between blocks."""

from charllm.spec.model import NORMS
from charllm.workload.cut import Cut
from charllm.workload.op import Kept, Module, elementwise


def norm(cut: Cut, name: str, elements: int, width: int, *, copies: int = 1, of_heads: bool = False) -> Module:
    """Describe an RMSNorm or LayerNorm over `elements` values in rows of `width`, with `copies` of its weight.

    Backward reads the input, the gradient and the statistics. `of_heads` when
    rows are this rank's heads of all its tokens, and not the tokens that it holds outside GEMMs.
    """
    size, rows = cut.element_bytes, (max(1, elements // width), width)
    per_channel = NORMS[cut.model.norm]
    statistics = (2 if cut.model.norm.startswith("layernorm") else 1) * 4.0 * elements / width
    trained = cut.training.lora_rank == 0
    weights = float(copies * width * per_channel)
    # A norm as wide as the model reads the residual stream.
    stream = cut.stream_bytes if width == cut.model.hidden else size
    kept = [Kept(f"{name} input", elements * stream + statistics)]
    if cut.framework.norm == "chain":
        # The fp32 copy of the input and the normalised values before their weight.
        kept.append(Kept(f"{name} chain", elements * (4.0 + size)))
    return Module(
        name,
        (elementwise(name, "norm", elements * size, elements * size, shape=rows),),
        (elementwise(name, "norm", 2 * elements * size, elements * size, "backward", rows),),
        kept=tuple(kept),
        weights=weights if trained else 0.0,
        frozen_weights=0.0 if trained else weights,
        tensors=((width, 1),) * (copies * per_channel),
        partial_weights=weights if trained and (cut.sp or (of_heads and cut.tp > 1)) else 0.0,
        recomputed_by=("layernorm",),
        forward_scratch_bytes=elements * size,
        backward_scratch_bytes=2 * elements * size,
    )


def residual(cut: Cut, name: str) -> Module:
    """Describe dropout and addition to the residual stream, one kernel."""
    elements, size = cut.shard_tokens * cut.model.hidden, cut.element_bytes
    dropped = cut.model.dropout_fraction > 0
    mask = (Kept(f"{name} dropout mask", float(elements)),) if dropped else ()
    # Gradients of both ways through the block are added where they meet.
    added = elementwise(name, "add", 2 * elements * size, elements * size, "backward")
    undone = elementwise(name, "dropout", elements * (size + 1), elements * size, "backward")
    backward = (added, undone) if dropped else (added,)
    return Module(
        name,
        (elementwise(name, "residual", 2 * elements * size, elements * (size + (1 if dropped else 0))),),
        backward,
        mask,
        forward_scratch_bytes=elements * size,
        backward_scratch_bytes=elements * size,
    )


def vectors(cut: Cut, name: str, count: int) -> tuple[Module, ...]:
    """Describe weights in vectors that other kernels read on the way: they take memory and updates, no launches."""
    if not count:
        return ()
    trained = cut.training.lora_rank == 0
    weights = float(count)
    return (
        Module(
            name,
            weights=weights if trained else 0.0,
            frozen_weights=0.0 if trained else weights,
            tensors=((count, 1),),
            partial_weights=weights if trained and cut.sp else 0.0,
        ),
    )
