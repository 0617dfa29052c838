"""Mamba-2: a projection, a short convolution, the chunked scan, a gated norm and a projection back.

Equation (Dao & Gu 2024, section 6): a head of width P has a state of P x N that decays and takes in x B; with chunks of
Q tokens, G groups and D = H P, T tokens take
states of chunks 2 T D N, outputs from states 2 T D N, scores C B 2 T Q G N, scores times x T Q D (causal half).
Backward computes states and scores again, needs four products with states (gradients of state, x, B, C), three inside
chunks (of x, scores and decays) and two for the scores' factors.
Traffic: x and outputs once for each kernel, states between kernels in fp32 and then in 16 bits, scores in fp32.

Source: kernels of state-spaces/mamba (ssd_combined.py), which Megatron-Core's MambaMixer calls, in chunks of 128.
Ignores: decays and steps (one number for each head and token); causal halves a tiled kernel computes whole.
"""

from typing import NamedTuple

from charllm.workload.cut import Cut
from charllm.workload.linear import linear
from charllm.workload.op import Kept, Module, Op, collective, elementwise

CHUNK = 128
"""Tokens of a chunk, inside which the scan is a product."""


class ScanFlop(NamedTuple):
    """Arithmetic of one scan."""

    forward: float
    backward: float


def mamba(cut: Cut) -> tuple[Module, ...]:
    """Describe the Mamba-2 block between a norm and a residual addition; tp ranks share its heads."""
    model, size = cut.model, cut.operand_bytes
    norm_output = Kept("mamba input", cut.shard_tokens * model.hidden * size, ("layernorm",))
    inner = model.ssm_heads * model.ssm_head_dim
    groups = max(model.ssm_groups, cut.tp)
    widths = 2 * inner + 2 * groups * model.ssm_state + model.ssm_heads
    normed = Kept("mamba out input", cut.tokens * inner // cut.tp * size)
    return (
        linear(cut, "mamba in", model.hidden, widths, split="column", input_kept=(norm_output,)),
        _convolution(cut),
        _scan(cut),
        _gated_norm(cut),
        linear(cut, "mamba out", inner, model.hidden, split="row", input_kept=(normed,)),
    )


def _inner(cut: Cut) -> int:
    """Channels of this rank's heads."""
    return cut.model.ssm_heads * cut.model.ssm_head_dim // cut.tp


def _groups(cut: Cut) -> int:
    return max(1, cut.model.ssm_groups // cut.tp)


def _convolution(cut: Cut) -> Module:
    """A causal convolution over x, B and C, one filter for each channel; its output is computed again in backward.

    What was projected is kept here for all that follows. cp ranks exchange tokens for channels before it and back
    after the scan (Megatron-Core's MambaContextParallel).
    """
    model, size = cut.model, cut.element_bytes
    channels = _inner(cut) + 2 * _groups(cut) * model.ssm_state
    moved = cut.tokens * channels * size
    projected = cut.tokens * (_inner(cut) + channels + model.ssm_heads // cut.tp) * size
    exchange = collective("all_to_all", "cp", projected, cut.cp)
    forward = elementwise("mamba convolution", "convolution", moved, moved)
    trained = cut.training.lora_rank == 0
    weights = float(channels * (model.ssm_conv + 1))
    return Module(
        "mamba convolution",
        (*exchange, forward),
        (forward, elementwise("mamba convolution", "convolution", 2 * moved, moved, "backward"), *exchange),
        (Kept("mamba projected", projected),),
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


def _scan(cut: Cut) -> Module:
    model, size = cut.model, cut.element_bytes
    heads, groups, inner = model.ssm_heads // cut.tp, _groups(cut), _inner(cut)
    shape = (cut.tokens, heads, groups, model.ssm_head_dim, model.ssm_state)
    flop = scan_flop(shape)
    stream = cut.tokens * inner * size
    states = cut.tokens / CHUNK * inner * model.ssm_state
    scores = cut.tokens * CHUNK * groups * 4.0
    factors = cut.tokens * groups * model.ssm_state * size
    forward = Op(
        "mamba scan",
        "scan",
        flop.forward,
        2 * stream + (4 + size) * states + scores + 4 * factors,
        stream + (4 + size) * states + scores,
        shape=shape,
    )
    backward = Op(
        "mamba scan backward",
        "scan",
        flop.backward,
        10 * stream + (4 + 5 * size) * states + 5 * scores + 8 * factors,
        stream + (4 + 4 * size) * states + 2 * scores + 4 * factors,
        shape=shape,
        direction="backward",
    )
    exchange = collective("all_to_all", "cp", stream, cut.cp)
    trained = cut.training.lora_rank == 0
    # Decay, skip and the step's bias of each head.
    weights = 3.0 * heads
    return Module(
        "mamba scan",
        (forward, *exchange),
        (*exchange, backward),
        (Kept("mamba scan output", stream),),
        weights=weights if trained else 0.0,
        frozen_weights=0.0 if trained else weights,
        forward_scratch_bytes=(4 + size) * states + scores,
        backward_scratch_bytes=2 * stream + (4 + 2 * size) * states + 2 * scores,
    )


def _gated_norm(cut: Cut) -> Module:
    """An RMSNorm of the output times silu(z), in groups of channels; backward reads both factors again."""
    stream = cut.tokens * _inner(cut) * cut.element_bytes
    trained = cut.training.lora_rank == 0
    weights = float(_inner(cut))
    return Module(
        "mamba norm",
        (elementwise("mamba norm", "norm", 2 * stream, stream, shape=(cut.tokens, _inner(cut))),),
        (elementwise("mamba norm", "norm", 3 * stream, 2 * stream, "backward", (cut.tokens, _inner(cut))),),
        (Kept("mamba norm statistics", cut.tokens * _groups(cut) * 4.0),),
        weights=weights if trained else 0.0,
        frozen_weights=0.0 if trained else weights,
        forward_scratch_bytes=stream,
        backward_scratch_bytes=2 * stream,
    )
