"""Queries, keys and values of attention: what makes them out of a layer's input, and turns them by position.

Equation: 2 x tokens x inputs x outputs FLOP a projection; one for all three of grouped queries, and a pair around a
narrow layer for queries, and for keys and values, of the latent form.
Source: DeepSeek-V2 report, section 2.1, for the latent form; others beside the functions.
Ignores: arithmetic of the rotation.
"""

from charllm.workload.cut import Cut
from charllm.workload.linear import linear
from charllm.workload.norm import norm
from charllm.workload.op import Kept, Module, elementwise


def grouped_projections(cut: Cut, *, borrows: bool = False) -> tuple[Module, ...]:
    """Describe one product for queries, keys and values; `borrows`: for queries alone."""
    model = cut.model
    width = model.heads * model.head_dim
    kv_heads = max(model.kv_heads, cut.tp)
    values_width = 0 if model.shared_values else kv_heads * model.value_head_dim
    kv_widths = (0, 0) if borrows else (kv_heads * model.head_dim, values_width)
    query_width = width + (model.heads * model.value_head_dim if model.attention_gate else 0)
    norm_output = Kept("attention input", cut.shard_tokens * model.hidden * cut.operand_bytes, ("layernorm",))
    modules = [
        linear(
            cut,
            "qkv",
            model.hidden,
            query_width + sum(kv_widths),
            split="column",
            bias=model.bias in ("qkv", "attention", "all"),
            input_kept=(norm_output,),
            target="qkv",
            parts=tuple(width for width in (query_width, *kv_widths) if width),
        )
    ]
    heads = cut.tokens * (cut.heads + (0 if borrows else cut.kv_heads)) * model.head_dim
    if model.qk_norm:
        modules.append(_qk_norm(cut, heads, copies=1 if borrows else 2))
    if model.position == "rope":
        unrotated = (Kept("unrotated query and key", heads * cut.element_bytes),) if cut.framework.packed_qkv else ()
        modules.append(_rope(cut, heads, kept=unrotated))
    return tuple(modules)


def _qk_norm(cut: Cut, elements: int, copies: int) -> Module:
    """Normalise queries and keys. Ignores: the sums that tp ranks exchange where a norm runs over all heads."""
    model = cut.model
    both = norm(cut, "qk norm", elements, model.head_dim, copies=copies, of_heads=True)
    each = cut.heads if copies == 1 else (cut.heads + cut.kv_heads) / 2
    scale = {"shared": 1.0, "each": float(each), "none": 0.0}[model.qk_norm_weights]
    return both._replace(
        weights=both.weights * scale,
        frozen_weights=both.frozen_weights * scale,
        partial_weights=both.partial_weights * scale,
        tensors=both.tensors if scale else (),
    )


def latent_projections(cut: Cut) -> tuple[Module, ...]:
    """DeepSeek-V2, section 2.1: queries and keys-values pass through a narrow layer first."""
    model, size = cut.model, cut.operand_bytes
    query_width, bias = model.heads * model.query_head_dim, model.bias in ("attention", "all")
    norm_output = Kept("attention input", cut.shard_tokens * model.hidden * size, ("layernorm",))
    modules = []
    if model.q_lora_rank:
        compressed = Kept("q compressed", cut.shard_tokens * model.q_lora_rank * size)
        modules += [
            linear(cut, "q_down", model.hidden, model.q_lora_rank, bias=bias, input_kept=(norm_output,)),
            norm(cut, "q norm", cut.shard_tokens * model.q_lora_rank, model.q_lora_rank),
            linear(
                cut,
                "q_up",
                model.q_lora_rank,
                query_width,
                split="column",
                input_kept=(compressed,),
                recomputed_by=("mla_up_proj",),
                target="qkv",
            ),
        ]
    else:
        modules.append(
            linear(cut, "q", model.hidden, query_width, split="column", input_kept=(norm_output,), target="qkv")
        )
    compressed = Kept("kv compressed", cut.shard_tokens * model.kv_lora_rank * size)
    modules += [
        # Its input is the one that the query projection keeps.
        linear(cut, "kv_down", model.hidden, model.kv_lora_rank + model.rope_head_dim, bias=bias),
        norm(cut, "kv norm", cut.shard_tokens * model.kv_lora_rank, model.kv_lora_rank),
        linear(
            cut,
            "kv_up",
            model.kv_lora_rank,
            model.heads * (model.head_dim + model.v_head_dim),
            split="column",
            input_kept=(compressed,),
            recomputed_by=("mla_up_proj",),
            target="qkv",
            # The part of keys that carries position is one for all heads.
            carried=model.rope_head_dim if cut.framework.every_message else 0,
        ),
        _latent_rope(cut),
    ]
    return tuple(modules)


def _latent_rope(cut: Cut) -> Module:
    """Turn the part of queries and keys that carries position: in one kernel, or in a chain and a copy of both.

    Source: Megatron-Core's `_apply_rotary_pos_emb_bshd` and MLASelfAttention: six passes over the turned part, then
    queries and keys put together anew.
    """
    model = cut.model
    turned = cut.tokens * 2 * cut.heads * model.rope_head_dim
    if cut.framework.fused_latent_rope:
        return _rope(cut, turned, "latent rope", ("mla_up_proj",))
    joined = cut.tokens * 2 * cut.heads * model.query_head_dim
    return _rope(cut, 6 * turned + joined, "latent rope", ("mla_up_proj",))


def _rope(
    cut: Cut, elements: int, kind: str = "rope", recomputed_by: tuple[str, ...] = (), kept: tuple[Kept, ...] = ()
) -> Module:
    moved = elements * cut.element_bytes
    forward, backward = (elementwise("rope", kind, moved, moved, way) for way in ("forward", "backward"))
    return Module(
        "rope",
        (forward,),
        (backward,),
        kept,
        recomputed_by=recomputed_by,
        forward_scratch_bytes=moved,
        backward_scratch_bytes=moved,
    )
