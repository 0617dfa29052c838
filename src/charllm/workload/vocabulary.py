"""The two ends of the model: embedding before the first layer; last norm, LM head and loss after the last."""

from dataclasses import replace

from charllm.workload.cut import Cut, in_16_bits
from charllm.workload.linear import linear
from charllm.workload.norm import norm, vectors
from charllm.workload.op import Kept, Module, collective, elementwise

LOSS_BYTES = {
    "fused": (2.0, 0.0, 0.0, 2.0, 0.0),
    "vocab-parallel": (0.0, 4.0, 2.0, 2.0, 0.0),
    "fp32": (0.0, 4.0, 6.0, 8.0, 2.0),
    "compiled": (2.0, 0.0, 0.0, 6.0, 0.0),
}
"""Bytes of a logit: kept by the head and by the loss, on top while the loss runs forward and backward, and freed in
between in a block too small for the gradients.

fused: 16-bit logits whose gradient overwrites them, then its scaled copy (Transformer Engine). vocab-parallel: an
fp32 softmax kept, 16-bit logits beside it (Megatron). fp32: the log-softmax kept, 16-bit logits and their fp32 copy
beside it, then two fp32 gradients; the 16-bit logits' block is free by then, and fits neither (F.cross_entropy on float
logits). compiled: 16-bit logits kept, then an fp32 gradient and its 16-bit copy (torch.compile of the same)."""

LOSS_MOVED_BYTES = {"fused": (6.0, 4.0), "vocab-parallel": (38.0, 14.0), "fp32": (14.0, 22.0), "compiled": (4.0, 12.0)}
"""Bytes of a logit that the loss reads and writes forward and backward.

fused: read for the sum, read and overwritten by the gradient; then scaled. vocab-parallel: cast, largest, difference,
exponential, sum and quotient, a kernel each; then scaled and cast back. fp32: cast, log-softmax; then filled, its
gradient, cast back. compiled: read twice; then read, written in fp32, cast back."""


def embedding(cut: Cut) -> tuple[Module, ...]:
    """Describe looking tokens up: rows of this rank's share, added over tp ranks."""
    model, size = cut.model, cut.element_bytes
    if not model.vocab:
        return ()
    looked_up, rows = cut.tokens * model.hidden * size, (cut.tokens, model.hidden)
    combine = collective("reduce_scatter" if cut.sp else "all_reduce", "tp", looked_up, cut.tp)
    spread = collective("all_gather", "tp", looked_up, cut.tp) if cut.sp else ()
    trained = cut.training.lora_rank == 0
    places = max(model.seq_length, cut.training.seq_length) if model.position == "learned" else 0
    positions = places * model.hidden
    weights = float(cut.vocab * model.hidden + positions)
    scatter = (
        (elementwise("embedding grad", "embedding", looked_up, 2 * looked_up, "backward", rows),) if trained else ()
    )
    dropped = model.dropout_fraction > 0
    mask = (Kept("embedding dropout mask", float(cut.shard_tokens * model.hidden)),) if dropped else ()
    return (
        Module(
            "embedding",
            (elementwise("embedding", "embedding", looked_up, looked_up, shape=rows), *combine),
            (*spread, *scatter),
            mask,
            weights=weights if trained else 0.0,
            frozen_weights=0.0 if trained else weights,
            tensors=((cut.vocab, model.hidden), *(((places, model.hidden),) if places else ())),
            partial_weights=float(positions) if trained and cut.sp else 0.0,
            forward_scratch_bytes=looked_up,
            # Its gradient is dense before it is added to the others'.
            backward_scratch_bytes=looked_up + (weights * size if trained else 0.0),
        ),
        *vectors(cut, "end vectors", model.end_vectors),
        *_layer_inputs(cut),
    )


def _layer_inputs(cut: Cut) -> tuple[Module, ...]:
    """Describe the embedding that layers have of their own: looked up for all, and a share of the model's own added.

    Source: transformers' Gemma4TextModel: a table of all layers, a projection of the embedding, a norm of each layer's.
    """
    model, size = cut.model, cut.element_bytes
    width = model.layers * model.layer_input
    if not width:
        return ()
    moved, rows = cut.tokens * width * size, (cut.tokens, width)
    trained = cut.training.lora_rank == 0
    weights = float(cut.vocab * width)
    scatter = (elementwise("embedding grad", "embedding", moved, 2 * moved, "backward", rows),) if trained else ()
    looked_up = Module(
        "layer inputs",
        (elementwise("layer inputs", "embedding", moved, moved, shape=rows),),
        scatter,
        weights=weights if trained else 0.0,
        frozen_weights=0.0 if trained else weights,
        tensors=((cut.vocab, width),),
        forward_scratch_bytes=moved,
        backward_scratch_bytes=moved + (weights * size if trained else 0.0),
    )
    return (
        looked_up,
        linear(cut, "layer inputs proj", model.hidden, width),
        norm(cut, "layer inputs norm", cut.shard_tokens * width, model.layer_input),
    )


def head(cut: Cut, *, owns_weight: bool) -> tuple[Module, ...]:
    """Describe last norm, LM head and loss; `owns_weight` when no embedding on this rank lends its weight."""
    model, size = cut.model, cut.element_bytes
    elements = cut.shard_tokens * model.hidden
    modules = [norm(cut, "final norm", elements, model.hidden)]
    if not model.vocab:
        return (*modules, *((_square_loss(cut, elements),) if cut.framework.square_loss else ()))
    # Heads stay in 16 bits when the layers run in fp8.
    head_cut = cut if not cut.cast else in_16_bits(cut)
    if cut.generates:
        head_cut = _last_tokens(head_cut)
    input_kept = (Kept("head input", elements * size),)
    lm_head = linear(head_cut, "lm head", model.hidden, cut.vocab * cut.tp, split="column", input_kept=input_kept)
    returned_bytes = 4.0 if cut.framework.returns_outputs else 0.0
    logit_bytes = max(returned_bytes, LOSS_BYTES[cut.framework.cross_entropy][0])
    logits = Kept("logits", cut.tokens * cut.vocab * logit_bytes, returned=cut.framework.returns_outputs)
    lm_head = lm_head._replace(kept=(*lm_head.kept, logits))
    if not owns_weight:
        lm_head = lm_head._replace(weights=0.0, frozen_weights=0.0, tensors=())
    return (*modules, lm_head, sample(head_cut) if cut.generates else _loss(cut))


def _last_tokens(cut: Cut) -> Cut:
    """Return the share of the last token of each sequence."""
    return replace(cut, seq=1, tokens=cut.batch, shard_tokens=cut.batch, sp=False)


def sample(cut: Cut) -> Module:
    """Gather the logits that tp ranks share and draw a token of each sequence: cast, softmax and draw, or the largest.

    Assumed: three passes over the logits in fp32.
    """
    logits = float(cut.tokens * cut.vocab * cut.tp)
    gather = collective("all_gather", "tp", logits * cut.element_bytes, cut.tp)
    drawn = elementwise("sampling", "sampling", logits * 10.0, logits * 8.0, shape=(cut.tokens, cut.vocab * cut.tp))
    return Module("sampling", (*gather, drawn), forward_scratch_bytes=logits * 8.0)


def _square_loss(cut: Cut, elements: int) -> Module:
    """Describe the mean square of the output, which stands for a loss where a model has no vocabulary.

    Source: torch.profiler on an H200: cast to fp32, square, mean; copy, two products and a cast back.
    """
    rows = (cut.shard_tokens, cut.model.hidden)
    forward = elementwise("square loss", "square loss", 10.0 * elements, 8.0 * elements, shape=rows)
    backward = elementwise("square loss", "square loss", 20.0 * elements, 14.0 * elements, "backward", rows)
    return Module("square loss", (forward,), (backward,), (Kept("square loss input", 4.0 * elements),))


def _loss(cut: Cut) -> Module:
    """Cross entropy over a vocabulary that tp ranks share: small all-reduces and one pass over the logits.

    What is reduced, for each token: the largest logit, the sum of exponentials, the target's logit.
    """
    logits, rows = float(cut.tokens * cut.vocab), (cut.tokens, cut.vocab)
    _, kept, forward_extra, backward_extra, hole = LOSS_BYTES[cut.framework.cross_entropy]
    if cut.framework.cross_entropy == "fp32" and cut.tp > 1:
        # Over a cut vocabulary, shifted logits and their exponentials are written out too.
        forward_extra += 8.0
    calls = 3 if cut.framework.every_message else 1
    reduce = calls * collective("all_reduce", "tp", 3 / calls * cut.tokens * 4.0, cut.tp)
    forward_moved, backward_moved = LOSS_MOVED_BYTES[cut.framework.cross_entropy]
    return Module(
        "loss",
        (
            elementwise("cross entropy", "loss", logits * forward_moved / 2, logits * forward_moved / 2, shape=rows),
            *reduce,
        ),
        (
            elementwise(
                "cross entropy", "loss", logits * backward_moved / 2, logits * backward_moved / 2, "backward", rows
            ),
        ),
        (Kept("softmax", logits * kept),),
        forward_scratch_bytes=logits * forward_extra,
        backward_scratch_bytes=logits * backward_extra,
        hole_bytes=logits * hole,
    )


def mtp_entry(cut: Cut) -> tuple[Module, ...]:
    """Describe how a multi-token-prediction layer begins: two norms and a projection of both inputs joined."""
    model = cut.model
    elements = cut.shard_tokens * model.hidden
    joined = Kept("mtp input", 2 * elements * cut.operand_bytes)
    return (
        norm(cut, "mtp norm", 2 * elements, model.hidden, copies=2),
        linear(cut, "mtp proj", 2 * model.hidden, model.hidden, input_kept=(joined,)),
    )
