"""Which kernels a framework launches for an op: one fused kernel, or a chain of several.

A framework differs from another by this list, not by factors on the time of its kernels. What a chain moves beyond the
least is counted from the sources named beside it, or read from a profile of the software.
"""

from collections.abc import Callable
from functools import partial

from charllm.gpu.shape import TILED, UNTUNED, KernelShape
from charllm.spec.run import RunSpec
from charllm.workload import expert_launches as experts
from charllm.workload import plain_launches as plain
from charllm.workload.kernel_calls import ELEMENT_BYTES, Launched, chain, moving, rows_of, sized, tiny
from charllm.workload.launch_counts import attention_events, gemm_events
from charllm.workload.op import Op

MAX_HEAD_DIM = 256
GEMM_CALLS, ATTENTION_CALLS, NORM_BACKWARD_CALLS = 1.7, (2.0, 5.0), 2.0
"""Measured: kernels and memory clears of one GEMM, of attention forward and backward, and of a norm's backward, in a
profile of eager PyTorch on an H200."""
CAST_KERNELS = 3
"""Published: kernels that quantise one expert's operand: the cast and two layouts of scales. Python makes a tensor
object for each expert first."""


def launched(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    """List the kernels of an op, and the traffic of those around it that are not described."""
    found = LAUNCHES[op.kind](op, run)
    if run.framework.plain_modules:
        found = plain.weigh(found)
    extra = run.framework.undescribed_fraction
    if extra and op.kind in DESCRIBED_IN_PART:
        return (*found, moving(extra * (op.read_bytes + op.written_bytes))._replace(calls=0.0, small=1.0))
    return found


def _product_format(op: Op, run: RunSpec) -> str:
    """Return the format that a product runs in; ops of 16 bits are named bf16, whichever of the two they are in."""
    gpu = run.cluster.gpu
    if op.precision == "fp32" and run.framework.tf32 and gpu.peak_tf32_flop_per_s:
        return "tf32"
    if run.training.precision == op.precision == "bf16" and not gpu.peak_bf16_flop_per_s:
        return "fp32"
    return op.precision


def _gemm(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    batch, m, n, k = (max(1, size) for size in op.shape)
    variant = "best"
    if op.direction == "wgrad":
        variant = "accumulated" if run.framework.fused_gradients else "wgrad"
    shaped = partial(
        KernelShape, precision=_product_format(op, run), variant=variant, rate=run.framework.library_fraction
    )
    if op.kind == "grouped_gemm" and run.framework.expert_kernels != "grouped":
        variant, rate = _engine_tiles(op, run)
        product = Launched(shaped("gemm", (batch, m, n, k), variant=variant, rate=rate), calls=GEMM_CALLS)
    elif op.kind == "grouped_gemm":
        kind = "grouped_wgrad" if op.direction == "wgrad" else "grouped_gemm"
        looped = 0 if run.framework.grouped_launch else batch
        product = Launched(shaped(kind, (batch, m, n, k)), calls=2.0, looped=looped, events=looped or 2)
    elif op.expert:
        # A loop over experts is as many launches as experts.
        product = Launched(shaped("gemm", (1, m, n, k)), batch, GEMM_CALLS)
    else:
        product = Launched(shaped("gemm", (batch, m, n, k)), calls=GEMM_CALLS)
    if op.kind == "gemm":
        product = product._replace(events=gemm_events(m, n, k, run.cluster.gpu.multiprocessors))
    return (product, *_accumulated(op, run)) if op.direction == "wgrad" else (product,)


UNTUNED_RATE = 0.7
"""Published: rate of Triton's default tiles over tuned ones where tokens outnumber experts: 1/1.26 on an A100 (vLLM,
pull request 37814), 1/1.60 on an H20 (44152)."""


def _engine_tiles(op: Op, run: RunSpec) -> tuple[str, float]:
    """Return the variant and rate of an engine's product of experts.

    Triton scales blocks of 8 bits beside the matrix units of a GPU that does not do so itself (those that know 4 bits
    do). vLLM ships tuned tiles for whole sets of experts; a part of them decodes with tiles that do not suit more
    tokens than experts (assumed: in full from twice as many).
    """
    framework, training = run.framework, run.training
    if framework.expert_kernels != "triton":
        return "best", 1.0
    if op.precision == "fp8":
        apart = framework.fp8_scaling == "tensor" and not run.cluster.gpu.peak_fp4_flop_per_s
        return (TILED if apart else "best"), 1.0
    if run.parallelism.ep == 1 or not (run.generation and run.generation.context_tokens):
        return "best", 1.0
    over = training.micro_batch_size / run.model.experts_on_rank(run.parallelism.ep) - 1
    return UNTUNED, 1 - (1 - UNTUNED_RATE) * min(1.0, max(0.0, over))


def _accumulated(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    """Add a weight's gradient to what earlier microbatches left, where no product does it in place.

    The first microbatch has nothing to add to.
    """
    share = plain.later_share(run)
    if run.framework.fused_gradients or not share:
        return ()
    batch, m, n, _k = (max(1, size) for size in op.shape)
    added = moving(share * (2.0 * batch * m * n + 2 * op.written_bytes), "add")
    tensors = batch if op.expert and op.kind == "gemm" else 1
    return (added._replace(events=share * tensors),)


def _attention(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    """A causal kernel with as many query-key pairs; windows, full squares and context parallelism change its length.

    Ignores: that latent attention's queries are wider than its values; both get the mean width over its products.
    """
    batch, heads, kv_heads, queries, keys, qk, pv = op.shape
    backward = op.direction == "backward"
    widths, products = (3 * qk + 2 * pv, 5) if backward else (qk + pv, 2)
    pairs = op.flop / (2 * batch * heads * widths)
    if run.model.attention_sinks:
        # Assumed: kernels with sinks compute the blocks outside a window, too.
        pairs = max(pairs, queries * keys / 2)
    # Kernels exist for head widths up to 256 in steps of 8.
    width = min(MAX_HEAD_DIM, -(-widths // (8 * products)) * 8)
    kind = "attention_backward" if backward else "attention"
    length = max(1, round((2 * pairs) ** 0.5))
    shape = KernelShape(kind, (batch, heads, kv_heads, length, width), variant=run.framework.attention_kernel)
    events = attention_events(op.direction, grouped=heads != kv_heads)
    return (Launched(shape, calls=ATTENTION_CALLS[backward], events=events),)


def _norm(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    kind = "norm" if run.model.norm.startswith("layernorm") else "rmsnorm"
    backward = op.direction == "backward"
    if run.framework.norm == "chain":
        # Cast, square, mean, product with the inverse root, cast and weight, each a kernel through fp32.
        elements = op.shape[0] * op.shape[1]
        return tuple(moving(elements * size, "add") for size in ((6, 8, 8, 6, 8, 8) if backward else (6, 8, 8, 6)))
    one = rows_of(f"{kind}_backward" if backward else kind, op)
    if not backward:
        return (one,)
    gradients = plain.accumulate_small(run, 2 if kind == "norm" else 1) if run.framework.plain_modules else ()
    return (one._replace(calls=NORM_BACKWARD_CALLS, events=2), *gradients)


def _cached_attention(op: Op, _run: RunSpec) -> tuple[Launched, ...]:
    """A kernel over a cache, whose parts a second one adds up; heads stand for the arithmetic of each key."""
    batch, _heads, kv_heads, keys, width = (max(1, size) for size in op.shape)
    heads = max(kv_heads, round(op.flop / (4.0 * batch * keys * width)))
    shape = KernelShape("cached_attention", (batch, heads, kv_heads, keys, width), precision=op.precision)
    return (Launched(shape, calls=ATTENTION_CALLS[0]),)


SORTED_LOGIT_BYTES = 390.0
"""Published: PyTorch's sort, mask and scatter of 64 to 128 x 131,072 logits take 1.07 to 2.40 ms (vLLM, pull request
40376), as copies of so many bytes each do on an H100 (assumed; 512 sequences take 0.7 of that)."""


def _sampling(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    """Cast, softmax and draw; from the most likely tokens after a sort, where the engine sorts."""
    drawn = Launched(moving((op.read_bytes + op.written_bytes) / 3).shape, 3)
    if not (run.generation and run.generation.top_p and run.framework.sorts_vocabulary):
        return (drawn,)
    sequences, vocabulary = op.shape
    return drawn, moving(SORTED_LOGIT_BYTES * sequences * vocabulary)


def _softmax(op: Op, _run: RunSpec) -> tuple[Launched, ...]:
    return (rows_of("softmax", op),)


def _rope(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    """Rotate in one kernel, or multiply, negate, join, multiply and add on strided views.

    Source: torch.profiler on an H200, x cos + rotate_half(x) sin in eager PyTorch.
    """
    elements = op.written_bytes / ELEMENT_BYTES
    if run.framework.plain_modules:
        heads, kv_heads = run.model.heads, run.model.kv_heads
        shares = (heads / (heads + kv_heads), kv_heads / (heads + kv_heads))
        halves = (one for share in shares for one in plain.turn_halves(share * elements, op.direction))
        return (*halves, *plain.lay_out_heads(elements, shares, op.direction))
    if run.framework.fused_rope:
        return (moving(op.read_bytes + op.written_bytes),)
    # Queries and keys have a chain each.
    turned = (("strided_add", 1.0), ("strided", 0.5), ("strided_cat", 1.0), ("strided_add", 1.0), ("strided_add", 1.0))
    return tuple(one for half in (0.8, 0.2) for one in chain(half * elements, turned))


def _latent_rope(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    """Rotate a part of queries and keys, fused or as a chain of kernels.

    Source: kernels counted in Megatron-Core: 13 for each of both forward (cosines, sines, halves, products), and those
    that put them together.
    """
    if run.framework.fused_latent_rope:
        return (moving(op.read_bytes + op.written_bytes),)
    count = 45 if op.direction == "backward" else 30
    return (Launched(moving((op.read_bytes + op.written_bytes) / count).shape, count),)


GATED = {
    "forward": (("silu", 1.0), ("add", 1.0)),
    "backward": (("add", 1.0), ("add", 1.0), ("silu_backward", 1.0)),
}
PACKED_GATED = {
    "forward": (("strided", 1.0), ("strided_add", 1.0)),
    "backward": (("strided_add", 1.0), ("add", 1.0), ("strided_add", 1.0), ("cat", 2.0)),
}
"""A gated activation in eager PyTorch: silu, product; then two products and silu's gradient. Of one product for gate
and up the halves are views whose rows are apart, and their gradients are joined."""
PLAIN = {"forward": (("gelu", 1.0),), "backward": (("gelu_backward", 1.0),)}


def _activation(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    gated, forward = run.model.gated, op.direction == "forward"
    # Forward writes the output, backward gradients of both inputs; in a chain also what lies between two kernels.
    tensors = (1 if forward else 2 if gated else 1) + (gated and not run.framework.fused_activation)
    # A loop over experts has a chain for each of them.
    parts = experts.expert_parts(run) if op.expert else 1
    inner = op.written_bytes / ELEMENT_BYTES / tensors / parts
    kernels = _activated(inner, op.direction, run)
    if op.expert and not forward and run.framework.weighs_in_experts:
        # The gradient of a token's probability: inputs and gradients once more, summed over a row.
        kernels = (*kernels, moving((3 if gated else 2) * ELEMENT_BYTES * inner)._replace(calls=0.0, small=1.0))
    return tuple(one._replace(times=parts) for one in kernels)


def _activated(inner: float, direction: str, run: RunSpec) -> tuple[Launched, ...]:
    """Return the kernels of an activation with so many outputs."""
    if not run.model.gated:
        return chain(inner, PLAIN[direction])
    if run.framework.fused_activation:
        return (moving((6 if direction == "forward" else 10) * inner, "gelu"),)
    return chain(inner, (PACKED_GATED if run.framework.packed_projections else GATED)[direction])


def _stream(op: Op, _run: RunSpec) -> tuple[Launched, ...]:
    """An operation on tensors without a module around it."""
    return (moving(op.read_bytes + op.written_bytes)._replace(calls=0.0, small=1.0),)


def _addition(op: Op, _run: RunSpec) -> tuple[Launched, ...]:
    return (moving(op.read_bytes + op.written_bytes, "add"),)


MERGE_KERNELS = {"forward": (5, 11, 3), "backward": (2, 6, 6)}
"""Counted: kernels of Transformer Engine 1.5 (AttnFuncWithCP): small ones around a ring of attention blocks, small ones
of each further block (its attention's launches, sums of exponentials), and ones that copy, scale or add its tensors."""


def _merge(op: Op, _run: RunSpec) -> tuple[Launched, ...]:
    """Attend to each further block of a ring, and add its result to those before it."""
    (blocks,) = op.shape
    once, small, streams = MERGE_KERNELS[op.direction]
    moved = moving((op.read_bytes + op.written_bytes) / (streams * blocks), "add")
    return moved._replace(times=streams * blocks), tiny(once + small * blocks)


def _dropout(op: Op, _run: RunSpec) -> tuple[Launched, ...]:
    return (moving(op.read_bytes + op.written_bytes, "dropout"),)


def _cast(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    """Quantise an operand at once, or each expert's part of it on its own."""
    size_bytes = op.read_bytes + op.written_bytes
    if not op.expert or run.framework.expert_kernels != "grouped":
        return (moving(size_bytes, "cast"),)
    count = CAST_KERNELS * run.model.experts_on_rank(run.parallelism.ep)
    return (Launched(moving(size_bytes / count, "cast").shape, count, calls=0.0, looped=1.0, small=1 / CAST_KERNELS),)


def _embedding(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    is_plain = run.framework.plain_modules
    if op.direction == "forward":
        rows = rows_of("embedding", op)
        return (rows, *plain.bring_tokens(op, run)) if is_plain else (rows,)
    # A dense gradient of the whole table is cleared first.
    table = run.model.vocab * run.model.hidden // run.parallelism.tp
    added = (moving(2.0 * table, "fill"), moving(6.0 * op.shape[0] * op.shape[1], "embedding_backward"))
    return (*added, *plain.finish_embedding(op, run, table)) if is_plain else added


def _loss(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    if run.framework.cross_entropy == "fp32":
        one = rows_of("loss" if op.direction == "forward" else "loss_backward", op)
        return (one._replace(events=plain.LOSS_KERNELS[op.direction]),)
    return (moving(op.read_bytes + op.written_bytes),)


def _square_loss(op: Op, _run: RunSpec) -> tuple[Launched, ...]:
    elements = op.shape[0] * op.shape[1]
    if op.direction == "forward":
        return (sized("to_fp32", op.shape), moving(8.0 * elements), moving(4.0 * elements))
    return (moving(8.0 * elements), Launched(moving(10.0 * elements).shape, 2), sized("to_16bit", op.shape))


def _clip(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    """Take the norm of all gradients and scale them by it."""
    norm, scaled = moving(op.read_bytes / 2, "norm_of_tensor"), moving(op.read_bytes / 2 + op.written_bytes, "scale")
    elements = op.read_bytes / 2 / ELEMENT_BYTES
    if not run.framework.plain_modules:
        return norm, scaled
    return (*plain.take_norm(norm, elements), plain.cut_to_chunks(scaled, elements))


def _optimizer(op: Op, run: RunSpec) -> tuple[Launched, ...]:
    narrow = run.framework.moment_precision == "16bit" and not run.framework.master_weights
    update = moving(op.read_bytes + op.written_bytes, "optimizer_16bit" if narrow else "optimizer")
    # The gradient, the weight and both moments are read.
    elements = op.read_bytes / (4 * ELEMENT_BYTES)
    return plain.update_in_chunks(update, elements, run) if run.framework.plain_modules else (update,)


def _convolution(op: Op, _run: RunSpec) -> tuple[Launched, ...]:
    kind = "convolution_backward" if op.direction == "backward" else "convolution"
    return (moving(op.read_bytes + op.written_bytes, kind),)


def _scan(op: Op, _run: RunSpec) -> tuple[Launched, ...]:
    """Kernels of mamba_ssm: states of chunks, passed on, and outputs; backward runs the first two again."""
    kind, count = ("scan_backward", 45) if op.direction == "backward" else ("scan", 5)
    return (Launched(moving((op.read_bytes + op.written_bytes) / count, kind).shape, count),)


def _delta(op: Op, _run: RunSpec) -> tuple[Launched, ...]:
    """Kernels of flash-linear-attention: cumulated decays, keys by keys, inverse, correction, states, outputs.

    Assumed: each moves memory at the rate of Mamba-2's scan, of which measurements exist.
    """
    count = 10 if op.direction == "backward" else 6
    return (Launched(moving((op.read_bytes + op.written_bytes) / count, "scan").shape, count),)


DESCRIBED_IN_PART = ("norm", "rope", "activation", "residual", "add")
"""Kinds of op on a layer's stream of tokens beside which frameworks run copies and additions of their own."""
LAUNCHES: dict[str, Callable[[Op, RunSpec], tuple[Launched, ...]]] = {
    "gemm": _gemm,
    "grouped_gemm": _gemm,
    "attention": _attention,
    "cached attention": _cached_attention,
    "sampling": _sampling,
    "norm": _norm,
    "softmax": _softmax,
    "rope": _rope,
    "latent rope": _latent_rope,
    "activation": _activation,
    "residual": _addition,
    "add": _addition,
    "merge": _merge,
    "dropout": _dropout,
    "elementwise": _stream,
    "cast": _cast,
    "router": experts.router,
    "permute": experts.permute,
    "unpermute": experts.unpermute,
    "expert bias": experts.expert_bias,
    "embedding": _embedding,
    "loss": _loss,
    "square loss": _square_loss,
    "bias gradient": plain.sum_bias_gradient,
    "clip": _clip,
    "optimizer": _optimizer,
    "convolution": _convolution,
    "scan": _scan,
    "delta": _delta,
}
"""Kind of op: the kernels that it launches."""
