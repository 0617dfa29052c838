"""The sparse feed-forward block: router, dispatch, experts, combine, and shared experts beside them.

Equation: a rank sends tokens x topk x width x bytes to the experts' ranks and as much back; its experts work on tokens
x topk x etp copies times the skew of the busiest rank (workload/routing.py), or on their padded capacity.
Source: Megatron-Core's MoELayer and token dispatchers.
Ignores: experts of one rank that differ in their load.
"""

from math import ceil

from charllm.spec.framework import groups_experts
from charllm.workload.cut import Cut
from charllm.workload.feedforward import activation, feedforward
from charllm.workload.linear import add_gradients, linear, quantise
from charllm.workload.op import Kept, Module, Op, collective, elementwise
from charllm.workload.routing import skew, visited

ROUTER_BYTES = 4.0
"""Scores are fp32; the product that gives them takes 16-bit operands."""
COUNT_BYTES = 8.0
"""Counts of tokens are 64-bit integers."""


def moe(cut: Cut) -> tuple[Module, ...]:
    """Describe a sparse block: every token visits `topk` of the experts, which are spread over ep ranks."""
    shared: tuple[Module, ...] = ()
    if cut.model.shared_ffn:
        # Without a cast copy, its input is the one that the router keeps.
        shared = feedforward(cut, cut.model.shared_ffn, "shared ", ("shared_experts", "moe"), input_kept=cut.cast)
    down, up = _latent(cut)
    return (*shared, _router(cut), *down, _dispatch(cut), *_experts(cut), _combine(cut), *up)


def expert_tokens(cut: Cut) -> int:
    """Count the token copies this rank's experts work on, on the busiest rank.

    Dropless: its share of tokens x topk, times the routing skew, as many for each expert. With a capacity factor: the
    padded capacity.
    """
    copies = cut.shard_tokens * cut.model.topk * cut.etp
    if cut.generates:
        copies = max(1, copies // cut.tp)
    factor = cut.training.capacity_factor
    if factor is not None:
        return round(copies * factor)
    more, local = skew(cut), cut.model.experts_on_rank(cut.ep)
    if cut.generates:
        return ceil(copies * more)
    return local * ceil(copies * more / local) if more > 1 else copies


def _router(cut: Cut) -> Module:
    model, size = cut.model, cut.element_bytes
    tokens, experts = cut.shard_tokens, model.experts
    logits = tokens * experts * ROUTER_BYTES

    def product(name: str, m: int, n: int, k: int, direction: str = "forward") -> Op:
        read, written = (m * k + k * n) * size, m * n * ROUTER_BYTES
        flop, shape = 2.0 * m * n * k, (1, m, n, k)
        return Op(name, "gemm", flop, read, written, shape=shape, direction=direction)

    trained = cut.training.lora_rank == 0
    weights = float(model.hidden * experts)
    wgrad = (product("router wgrad", experts, model.hidden, tokens, "wgrad"),) if trained else ()
    input_kept = Kept("router input", tokens * model.hidden * size, ("layernorm",))
    return Module(
        "router",
        (
            product("router", tokens, experts, model.hidden),
            elementwise("routing", "router", logits, logits, shape=(tokens, experts)),
        ),
        (
            elementwise("routing", "router", logits, logits, "backward", (tokens, experts)),
            product("router dgrad", tokens, model.hidden, experts, "dgrad"),
            *wgrad,
        ),
        (input_kept, Kept("router probabilities", 2 * logits, ("moe",))),
        weights=weights if trained else 0.0,
        frozen_weights=0.0 if trained else weights,
        tensors=((experts, model.hidden),),
        partial_weights=weights if trained and cut.sp else 0.0,
        recomputed_by=("moe",),
    )


def _expert_width(cut: Cut) -> int:
    """Width of what is sent to experts: the model's, or the latent one."""
    return cut.model.expert_latent or cut.model.hidden


def _latent(cut: Cut) -> tuple[tuple[Module, ...], tuple[Module, ...]]:
    """Describe the projections to the width experts work in and back, of each rank's own tokens.

    Source: Nemotron 3 white paper (LatentMoE); Megatron-Core's MoELayer, fc1_latent_proj and fc2_latent_proj.
    """
    model, size = cut.model, cut.operand_bytes
    if not model.expert_latent:
        return (), ()
    # Without a cast copy, the input is the one that the router keeps.
    wide = Kept("latent input", cut.shard_tokens * model.hidden * size, ("layernorm", "moe"))
    narrow = Kept("latent output", cut.shard_tokens * model.expert_latent * size, ("moe",))
    kept = (wide,) if cut.cast else ()
    down = linear(cut, "latent down", model.hidden, model.expert_latent, input_kept=kept, recomputed_by=("moe",))
    up = linear(cut, "latent up", model.expert_latent, model.hidden, input_kept=(narrow,), recomputed_by=("moe",))
    return (down,), (up,)


def _moved(name: str, cut: Cut, moved_bytes: tuple[float, float], direction: str = "forward") -> Op:
    """Describe sorting rows of tokens by expert, or back: bytes that it reads and writes."""
    width = _expert_width(cut)
    rows = max(1, round(sum(moved_bytes) / (2 * width * cut.element_bytes)))
    return elementwise(name, name, *moved_bytes, direction, (rows, width), expert=True)


def _sorted_bytes(cut: Cut, sent: float, received: float) -> tuple[float, float]:
    """Return what sorting tokens by expert on their way to the experts reads and writes.

    NCCL's all-to-all: a rank copies each token for each of its experts before the exchange, sorts what arrives by
    expert unless it holds only one, and with narrow formats copies it once more so that each expert's rows are a
    multiple of 16 or 32 (as a fixed capacity is). DeepEP and HybridEP copy while they send: only what arrived, one copy
    for each rank that a token visits, is written out for each expert.
    Source: Megatron-Core, token_dispatcher.py; experts.py, quantization_padding.
    """
    if cut.framework.dispatcher == "alltoall" or cut.ep == 1:
        times = (cut.model.experts > cut.ep) + (cut.cast and cut.training.capacity_factor is None)
        return sent / max(1, cut.model.topk) + times * received, sent + times * received
    arrived = received * visited(cut.model, cut.training, cut.framework, cut.ep) / max(1, cut.model.topk)
    return min(arrived, received), received


def _copies(cut: Cut) -> float:
    """Token copies this rank sends out to experts; of tokens that tp ranks all hold, each sends its part."""
    factor = cut.training.capacity_factor
    copies = cut.shard_tokens * cut.model.topk * (factor if factor is not None else 1.0)
    return copies / cut.tp if cut.generates else copies


def _among_holders(cut: Cut) -> bool:
    """Tell whether tp ranks hold all tokens and all experts of each other, so that none of them is sent.

    Source: vLLM's FusedMoE: each rank works on its experts, or its part of all, and results are added up.
    """
    return cut.generates and cut.ep * cut.etp <= cut.tp


def _dispatch(cut: Cut) -> Module:
    """Sort tokens by expert, send them to their ranks, gather them over etp."""
    width = _expert_width(cut) * cut.element_bytes
    sent, received = _copies(cut) * width, expert_tokens(cut) * width
    way_out = _sorted_bytes(cut, sent, received)
    exchange = () if _among_holders(cut) else collective("all_to_all", "ep", sent, cut.ep)
    probabilities = _probabilities(cut)
    forward = (
        _moved("permute", cut, way_out),
        *_counts(cut),
        *exchange,
        *probabilities,
        *(() if cut.generates else collective("all_gather", "etp", received, cut.etp)),
    )
    backward = (
        *collective("reduce_scatter", "etp", received, cut.etp),
        *probabilities,
        *exchange,
        _moved("permute", cut, way_out[::-1], "backward"),
    )
    return Module(
        "dispatch",
        forward,
        backward,
        recomputed_by=("moe",),
        forward_scratch_bytes=sent + received,
        backward_scratch_bytes=sent + received,
    )


def _counts(cut: Cut) -> tuple[Op, ...]:
    """Tell the ranks of experts which tokens each will get: an integer for each expert, or the map of all tokens.

    DeepEP sends its counts with the tokens.
    Source: HybridEP gathers a byte for each token and expert from all ranks (metadata_preprocessing); Megatron-Core's
    all-to-all gathers counts.
    """
    if cut.framework.dispatcher == "hybridep":
        return collective("all_gather", "ep", float(cut.ep * cut.shard_tokens * cut.model.experts), cut.ep)
    if cut.training.capacity_factor is not None or cut.framework.dispatcher == "deepep":
        return ()
    if cut.framework.weighs_in_experts:
        return collective("all_gather", "ep", cut.ep * cut.model.experts * COUNT_BYTES, cut.ep)
    if not cut.framework.every_message:
        return ()
    counts_bytes = cut.model.experts * COUNT_BYTES
    return (
        *collective("all_to_all", "ep", counts_bytes, cut.ep),
        *collective("all_gather", "etp", cut.etp * counts_bytes, cut.etp),
    )


def _probabilities(cut: Cut) -> tuple[Op, ...]:
    """Send a token's probability after it, where experts weigh their outputs and the dispatcher does not carry it."""
    if not cut.framework.weighs_in_experts or cut.framework.dispatcher != "alltoall":
        return ()
    return collective("all_to_all", "ep", _copies(cut) * ROUTER_BYTES, cut.ep)


def _combine(cut: Cut) -> Module:
    """Bring expert outputs home, weigh them by the router's probabilities and add them up."""
    width = _expert_width(cut) * cut.element_bytes
    sent, received = _copies(cut) * width, expert_tokens(cut) * width
    way_out = _sorted_bytes(cut, sent, received)
    exchange = () if _among_holders(cut) else collective("all_to_all", "ep", sent, cut.ep)
    added = collective("all_reduce", "tp", cut.tokens * _expert_width(cut) * cut.element_bytes, cut.tp)
    forward = (
        *(() if cut.generates else collective("reduce_scatter", "etp", received, cut.etp)),
        *exchange,
        _moved("unpermute", cut, way_out[::-1]),
        *(added if cut.generates else ()),
    )
    backward = (
        _moved("unpermute", cut, way_out, "backward"),
        *exchange,
        *collective("all_gather", "etp", received, cut.etp),
    )
    return Module(
        "combine",
        forward,
        backward,
        recomputed_by=("moe",),
        forward_scratch_bytes=sent + received,
        backward_scratch_bytes=sent + received,
    )


def _experts(cut: Cut) -> tuple[Module, ...]:
    """The experts of this rank: one grouped GEMM, or a loop of small ones."""
    model = cut.model
    width = model.expert_ffn // cut.etp
    tokens = expert_tokens(cut)
    parts = 2 if model.gated else 1
    fc1 = _expert_linear(cut, "expert fc1", _expert_width(cut), width * parts, ("moe",), parts)
    fc2 = _expert_linear(cut, "expert fc2", width, _expert_width(cut), ("moe", "moe_act"))
    act = activation(cut, "expert activation", tokens * width, ("moe",), ("moe", "moe_act"), expert=True)
    if cut.framework.fused_experts and cut.cast:
        return _fused(fc1, act, fc2)
    return fc1, act, _with_bias(cut, fc2)


def _with_bias(cut: Cut, fc2: Module) -> Module:
    """Add experts' output bias, weighed by the router's probability, where a model has one: expert by expert, in fp32.

    Source: Megatron-Core's `_apply_bias`; fused experts add it in their products.
    """
    if cut.model.bias not in ("mlp", "all"):
        return fc2
    size = (round(expert_tokens(cut)), _expert_width(cut))
    elements = float(size[0] * size[1])
    forward, backward = (
        elementwise("expert bias", "expert bias", read * elements, written * elements, direction, size, expert=True)
        for direction, read, written in (("forward", 14.0, 14.0), ("backward", 26.0, 18.0))
    )
    return fc2._replace(forward=(*fc2.forward, forward), backward=(backward, *fc2.backward))


def _fused(fc1: Module, act: Module, fc2: Module) -> tuple[Module, ...]:
    """Let products end in what follows them: fc1 in the activation cast for fc2, fc2's gradient in its backward.

    Source: Transformer Engine's fused grouped MLP (NVTE_CUTEDSL_FUSED_GROUPED_MLP).
    """
    return (
        fc1._replace(backward=tuple(op for op in fc1.backward if op.kind != "cast")),
        act._replace(forward=(), backward=()),
        fc2._replace(forward=tuple(op for op in fc2.forward if op.kind != "cast")),
    )


def _busy_experts(experts: int, tokens: int) -> int:
    """Return how many experts get any of a few tokens: only their weights are read."""
    return max(1, round(experts * (1 - (1 - 1 / experts) ** tokens)))


def _expert_linear(
    cut: Cut, name: str, inputs: int, outputs: int, dropped_by: tuple[str, ...], parts: int = 1
) -> Module:
    model, size = cut.model, cut.element_bytes
    local = model.experts_on_rank(cut.ep)
    tokens = expert_tokens(cut)
    local = _busy_experts(local, tokens) if cut.generates else local
    rows = tokens / local
    grouped = groups_experts(cut.framework, cut.training)

    def product(label: str, m: float, n: float, k: float, written_bytes: float, direction: str = "forward") -> Op:
        flop = 2.0 * local * m * n * k
        read, written = local * (m * k + k * n) * cut.operand_bytes, local * m * n * written_bytes
        shape = (local, round(m), round(n), round(k))
        kind = "grouped_gemm" if grouped else "gemm"
        return Op(label, kind, flop, read, written, shape=shape, precision=cut.precision, direction=direction,
                  expert=True)  # fmt: skip

    trained = cut.training.lora_rank == 0
    weights = float(
        model.experts_on_rank(cut.ep) * (inputs * outputs + (outputs if model.bias in ("mlp", "all") else 0))
    )
    # Gate and up are products of their own where the framework does not pack them.
    widths = [outputs] if cut.framework.packed_projections or parts == 1 else [outputs // parts] * parts
    wgrad = [product(f"{name} wgrad", wide, inputs, rows, cut.gradient_bytes, "wgrad") for wide in widths]
    return Module(
        name,
        (
            *quantise(cut, f"{name} cast", tokens * inputs, expert=True),
            *(product(name, rows, wide, inputs, size) for wide in widths),
        ),
        (
            *quantise(cut, f"{name} grad cast", tokens * outputs, "backward", expert=True),
            *(product(f"{name} dgrad", rows, inputs, wide, size, "dgrad") for wide in widths),
            *(add_gradients(f"{name} grad add", tokens * inputs * size, expert=True),) * (len(widths) - 1),
            *(wgrad if trained else ()),
        ),
        (Kept(f"{name} input", tokens * inputs * cut.operand_bytes, dropped_by),) if trained else (),
        weights=weights if trained else 0.0,
        frozen_weights=0.0 if trained else weights,
        expert=True,
        recomputed_by=("moe",),
        forward_scratch_bytes=tokens * outputs * size,
        backward_scratch_bytes=tokens * (inputs + outputs) * size,
    )
