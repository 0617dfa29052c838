"""A gated short convolution in place of attention: projections to two gates and values, a filter for each channel.

Equation: y = W_out (c * conv(b * x)) with b, c, x = W_in u, of the model's width; a filter sees `ssm_conv` tokens.
Source: LFM2 technical report (arXiv:2511.23404), section 2; transformers' Lfm2ShortConv.
Ignores: the few tokens that context-parallel ranks exchange; biases.
"""

from charllm.workload.cut import Cut
from charllm.workload.linear import linear
from charllm.workload.op import Kept, Module, elementwise


def short_convolution(cut: Cut) -> tuple[Module, ...]:
    """Describe the block between a norm and a residual addition; tp ranks share its channels."""
    model, size = cut.model, cut.operand_bytes
    width, name = model.hidden, "short convolution"
    normed = Kept(f"{name} input", cut.shard_tokens * width * size, ("layernorm",))
    gated = Kept(f"{name} out input", cut.tokens * width // cut.tp * size)
    return (
        linear(cut, f"{name} in", width, 3 * width, split="column", input_kept=(normed,)),
        _gated_filter(cut, name),
        linear(cut, f"{name} out", width, width, split="row", input_kept=(gated,)),
    )


def _gated_filter(cut: Cut, name: str) -> Module:
    """Gate, filter and gate again, a kernel each; both gates and the filter's input are kept."""
    channels = cut.model.hidden // cut.tp
    moved = cut.tokens * channels * cut.element_bytes
    trained = cut.training.lora_rank == 0
    weights = float(channels * cut.model.ssm_conv)
    gate = elementwise(f"{name} gate", "elementwise", 2 * moved, moved)
    ungate = elementwise(f"{name} gate", "elementwise", 3 * moved, 2 * moved, "backward")
    return Module(
        name,
        (gate, elementwise(name, "convolution", moved, moved), gate),
        (ungate, elementwise(name, "convolution", 2 * moved, moved, "backward"), ungate),
        (Kept(f"{name} gates", 3 * moved), Kept(f"{name} filtered", 2 * moved)),
        weights=weights if trained else 0.0,
        frozen_weights=0.0 if trained else weights,
        tensors=((channels, cut.model.ssm_conv),),
        forward_scratch_bytes=2 * moved,
        backward_scratch_bytes=3 * moved,
    )
