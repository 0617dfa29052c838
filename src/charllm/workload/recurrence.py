"""Layers with a state instead of attention: Mamba-2, the gated delta rule and lightning attention.

All are a projection, a short convolution (but for lightning), a chunked scan, a gated norm and a projection back.

Equation of the scan (Dao & Gu 2024, section 6): a head of width P has a state of P x N that decays and takes in x B;
with chunks of Q tokens, G groups and D = H P, T tokens take
states of chunks 2 T D N, outputs from states 2 T D N, scores C B 2 T Q G N, scores times x T Q D (causal half).
Backward computes states and scores again, needs four products with states (gradients of state, x, B, C), three inside
chunks (of x, scores and decays) and two for the scores' factors.
Traffic: x and outputs once for each kernel, states between kernels in fp32 and then in 16 bits, scores in fp32.
Lightning attention (MiniMax-01, section 2.2) is this scan with keys and queries for each head.

Equation of the gated delta rule (Yang 2024, section 3.3): what the state already holds for a key is taken off before a
value is added. With the WY form, in chunks of Q tokens, a head takes three products with its state (2 T P N each: read
for the correction, read for the output, written) and five inside a chunk (T Q N for keys by keys, corrected keys and
scores; T Q P for corrected values and outputs), and the inverse of a triangle (T Q^2 / 3). Backward needs twice that,
and computes corrected keys and values and the states again.

Source: kernels of state-spaces/mamba (ssd_combined.py), which Megatron-Core's MambaMixer calls, in chunks of 128;
of fla-org/flash-linear-attention (ops/gated_delta_rule/chunk.py), in chunks of 64.
Ignores: decays and steps (one number for each head and token); causal halves a tiled kernel computes whole.
"""

from typing import NamedTuple

from charllm.workload.cut import Cut
from charllm.workload.linear import linear
from charllm.workload.op import Kept, Module, Op, collective, elementwise

CHUNK = 128
"""Tokens of a chunk of Mamba-2, inside which the scan is a product."""
DELTA_CHUNK = 64


class Recurrence(NamedTuple):
    """What tells one of these layers from another."""

    name: str
    scalars: int
    """Numbers that are projected for each head and token: steps, decays, strengths."""
    filter_bias: bool
    """Whether the convolution has a bias."""
    head_weights: int
    """Weights for each head: decay, skip, bias of the step."""
    norm: str
    """Whose weight the norm has: each channel's, each head's alike, or none (a gate alone)."""


RECURRENCES = {
    "M": Recurrence("mamba", 1, filter_bias=True, head_weights=3, norm="channels"),
    "D": Recurrence("delta", 2, filter_bias=False, head_weights=2, norm="heads"),
    "H": Recurrence("mamba", 1, filter_bias=True, head_weights=3, norm="none"),
    "L": Recurrence("lightning", 0, filter_bias=False, head_weights=0, norm="channels"),
}
"""Letter in a model's mixers or pattern: which recurrence it is."""


class ScanFlop(NamedTuple):
    """Arithmetic of one scan."""

    forward: float
    backward: float


def recurrence(cut: Cut, letter: str) -> tuple[Module, ...]:
    """Describe the block between a norm and a residual addition; tp ranks share its heads."""
    model, size, kind = cut.model, cut.operand_bytes, RECURRENCES[letter]
    norm_output = Kept(f"{kind.name} input", cut.shard_tokens * model.hidden * size, ("layernorm",))
    inner = model.ssm_heads * model.ssm_head_dim
    groups = max(model.ssm_groups, cut.tp)
    widths = 2 * inner + 2 * groups * model.ssm_state + kind.scalars * model.ssm_heads
    normed = Kept(f"{kind.name} out input", cut.tokens * inner // cut.tp * size)
    return (
        linear(cut, f"{kind.name} in", model.hidden, widths, split="column", input_kept=(norm_output,)),
        _convolution(cut, kind),
        _delta(cut, kind) if letter == "D" else _scan(cut, kind),
        _gated_norm(cut, kind),
        linear(cut, f"{kind.name} out", inner, model.hidden, split="row", input_kept=(normed,)),
    )


def _inner(cut: Cut) -> int:
    """Channels of this rank's heads."""
    return cut.model.ssm_heads * cut.model.ssm_head_dim // cut.tp


def _groups(cut: Cut) -> int:
    return max(1, cut.model.ssm_groups // cut.tp)


def _convolution(cut: Cut, kind: Recurrence) -> Module:
    """A causal convolution over x, B and C, one filter for each channel; its output is computed again in backward.

    What was projected is kept here for all that follows. cp ranks exchange tokens for channels before it and back
    after the scan (Megatron-Core's MambaContextParallel).
    """
    model, size = cut.model, cut.element_bytes
    channels = _inner(cut) + 2 * _groups(cut) * model.ssm_state
    moved = cut.tokens * channels * size
    projected = cut.tokens * (_inner(cut) + channels + kind.scalars * model.ssm_heads // cut.tp) * size
    exchange = collective("all_to_all", "cp", projected, cut.cp)
    name, kept = f"{kind.name} convolution", (Kept(f"{kind.name} projected", projected),)
    if model.ssm_conv == 1:
        return Module(name, exchange, exchange, kept)
    forward = elementwise(name, "convolution", moved, moved)
    trained = cut.training.lora_rank == 0
    weights = float(channels * (model.ssm_conv + kind.filter_bias))
    return Module(
        name,
        (*exchange, forward),
        (forward, elementwise(name, "convolution", 2 * moved, moved, "backward"), *exchange),
        kept,
        weights=weights if trained else 0.0,
        frozen_weights=0.0 if trained else weights,
        forward_scratch_bytes=moved,
        backward_scratch_bytes=2 * moved,
    )


def scan_flop(shape: tuple[int, ...]) -> ScanFlop:
    """Return the arithmetic of a scan over (tokens, heads, groups, head width, state)."""
    tokens, heads, groups, width, state = shape
    states = 2.0 * tokens * heads * width * state
    inside = float(tokens * CHUNK * heads * width)
    scores = 2.0 * tokens * CHUNK * groups * state
    return ScanFlop(2 * states + inside + scores, 5 * states + 3 * inside + 3 * scores)


def _scan(cut: Cut, kind: Recurrence) -> Module:
    model, size = cut.model, cut.element_bytes
    heads, groups, inner = model.ssm_heads // cut.tp, _groups(cut), _inner(cut)
    shape = (cut.tokens, heads, groups, model.ssm_head_dim, model.ssm_state)
    flop = scan_flop(shape)
    stream = cut.tokens * inner * size
    states = cut.tokens / CHUNK * inner * model.ssm_state
    scores = cut.tokens * CHUNK * groups * 4.0
    factors = cut.tokens * groups * model.ssm_state * size
    forward = Op(
        f"{kind.name} scan",
        "scan",
        flop.forward,
        2 * stream + (4 + size) * states + scores + 4 * factors,
        stream + (4 + size) * states + scores,
        shape=shape,
    )
    backward = Op(
        f"{kind.name} scan backward",
        "scan",
        flop.backward,
        10 * stream + (4 + 5 * size) * states + 5 * scores + 8 * factors,
        stream + (4 + 4 * size) * states + 2 * scores + 4 * factors,
        shape=shape,
        direction="backward",
    )
    scratch = ((4 + size) * states + scores, 2 * stream + (4 + 2 * size) * states + 2 * scores)
    return _scan_module(cut, kind, forward, backward, scratch)


def _scan_module(cut: Cut, kind: Recurrence, forward: Op, backward: Op, scratch_bytes: tuple[float, float]) -> Module:
    """Put a scan's kernels together with its exchange, its weights and the output it keeps."""
    stream = cut.tokens * _inner(cut) * cut.element_bytes
    exchange = collective("all_to_all", "cp", stream, cut.cp)
    trained = cut.training.lora_rank == 0
    weights = float(kind.head_weights * cut.model.ssm_heads // cut.tp)
    return Module(
        f"{kind.name} scan",
        (forward, *exchange),
        (*exchange, backward),
        (Kept(f"{kind.name} scan output", stream),),
        weights=weights if trained else 0.0,
        frozen_weights=0.0 if trained else weights,
        forward_scratch_bytes=scratch_bytes[0],
        backward_scratch_bytes=scratch_bytes[1],
    )


def delta_flop(shape: tuple[int, ...]) -> ScanFlop:
    """Return the arithmetic of a gated delta rule over (tokens, heads, groups, value width, key width)."""
    tokens, heads, _groups, width, state = shape
    with_state = 2.0 * tokens * heads * width * state
    by_keys, by_values = (float(tokens * DELTA_CHUNK * heads * size) for size in (state, width))
    inverse = tokens * heads * DELTA_CHUNK**2 / 3
    forward = 3 * with_state + 3 * by_keys + 2 * by_values + inverse
    return ScanFlop(forward, 2 * forward + 2 * with_state + by_keys + by_values)


def _delta(cut: Cut, kind: Recurrence) -> Module:
    """Describe the delta rule's kernels: correction within chunks, states of chunks, outputs.

    Keys and queries are repeated to the heads of values first, as Megatron-Core and transformers do.
    """
    model, size = cut.model, cut.element_bytes
    heads = model.ssm_heads // cut.tp
    shape = (cut.tokens, heads, _groups(cut), model.ssm_head_dim, model.ssm_state)
    flop = delta_flop(shape)
    values = cut.tokens * _inner(cut) * size
    keys = cut.tokens * heads * model.ssm_state * size
    states = cut.tokens / DELTA_CHUNK * _inner(cut) * model.ssm_state * size
    triangles = cut.tokens * DELTA_CHUNK * heads * size
    forward = Op(
        "delta rule",
        "delta",
        flop.forward,
        6 * keys + 4 * values + states + triangles,
        3 * keys + 3 * values + states + triangles,
        shape=shape,
    )
    backward = Op(
        "delta rule backward",
        "delta",
        flop.backward,
        13 * keys + 9 * values + 3 * states + 2 * triangles,
        5 * keys + 5 * values + 2 * states + triangles,
        shape=shape,
        direction="backward",
    )
    scratch = (2 * keys + 2 * values + states + triangles, 4 * keys + 4 * values + 2 * states + 2 * triangles)
    return _scan_module(cut, kind, forward, backward, scratch)


def _gated_norm(cut: Cut, kind: Recurrence) -> Module:
    """An RMSNorm of the output times silu(z), in groups of channels; backward reads both factors again."""
    stream = cut.tokens * _inner(cut) * cut.element_bytes
    trained = cut.training.lora_rank == 0
    name = f"{kind.name} norm"
    weights = float({"channels": _inner(cut), "heads": cut.model.ssm_head_dim, "none": 0}[kind.norm])
    groups = cut.model.ssm_heads // cut.tp if kind.norm == "heads" else _groups(cut)
    return Module(
        name,
        (elementwise(name, "norm", 2 * stream, stream, shape=(cut.tokens, _inner(cut))),),
        (elementwise(name, "norm", 3 * stream, 2 * stream, "backward", (cut.tokens, _inner(cut))),),
        (Kept(f"{name} statistics", cut.tokens * groups * 4.0),),
        weights=weights if trained else 0.0,
        frozen_weights=0.0 if trained else weights,
        forward_scratch_bytes=stream,
        backward_scratch_bytes=2 * stream,
    )
