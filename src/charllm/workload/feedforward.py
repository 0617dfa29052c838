"""The dense feed-forward block: two linear layers around a non-linearity."""

from charllm.workload.cut import Cut
from charllm.workload.linear import linear
from charllm.workload.op import Kept, Module, elementwise


def feedforward(
    cut: Cut, width: int, prefix: str = "", tags: tuple[str, ...] = ("mlp",), *, input_kept: bool = True
) -> tuple[Module, ...]:
    """Describe fc1, activation, fc2; `tags` are the recompute modules that cover the block."""
    model, size = cut.model, cut.operand_bytes
    norm_output = Kept(f"{prefix}mlp input", cut.shard_tokens * model.hidden * size, ("layernorm",))
    inner = cut.tokens * (width // cut.tp)
    fc1 = linear(
        cut,
        f"{prefix}fc1",
        model.hidden,
        width * (2 if model.gated else 1),
        split="column",
        bias=model.bias in ("mlp", "all"),
        input_kept=(norm_output,) if input_kept else (),
        recomputed_by=tags,
        target="fc1",
        parts=(width, width) if model.gated else (),
    )
    fc2 = linear(
        cut,
        f"{prefix}fc2",
        width,
        model.hidden,
        split="row",
        bias=model.bias in ("mlp", "all"),
        input_kept=(Kept(f"{prefix}fc2 input", inner * size, (*tags, "mlp_act")),),
        recomputed_by=tags,
        target="fc2",
    )
    return fc1, activation(cut, f"{prefix}activation", inner, tags, (*tags, "mlp_act")), fc2


def activation(
    cut: Cut, name: str, outputs: float, dropped_by: tuple[str, ...], recomputed_by: tuple[str, ...],
    *, expert: bool = False,
) -> Module:  # fmt: skip
    """Describe the non-linearity: backward needs its input; unfused and gated, also the inner product's factor."""
    size = cut.element_bytes
    inputs = outputs * (2 if cut.model.gated else 1)
    kept_bytes = 1.0 if cut.training.narrow_activation_input else size
    kept = [Kept(f"{name} input", inputs * kept_bytes, dropped_by)]
    extra = 0.0
    if cut.model.gated and not cut.framework.fused_activation:
        kept.append(Kept(f"{name} gate", outputs * size, recomputed_by))
        extra = outputs * size
    return Module(
        name,
        (elementwise(name, "activation", inputs * size + extra, outputs * size + extra, expert=expert),),
        (
            elementwise(
                name, "activation", (inputs + outputs) * size + extra, inputs * size + extra, "backward", expert=expert
            ),
        ),
        tuple(kept),
        recomputed_by=recomputed_by,
        forward_scratch_bytes=outputs * size,
        backward_scratch_bytes=(inputs + outputs) * size,
    )
