"""The key-value cache: what it takes, writing to it, and attention of one new token of each sequence over it.

Equation: a token's keys and values take 2 x kv heads x head width x bytes in each layer of attention, a token of latent
attention its compressed form and the part that carries position, on every tp rank. Attention of a step reads all of it.
Source: DeepSeek-V2 report, section 2.1.2, for latent caches: their projections are absorbed by those of queries and
outputs, whose arithmetic and weights are those of the projection itself.
Ignores: pages that are not full; states of recurrent layers, which do not grow.
"""

from charllm.workload.cut import Cut
from charllm.workload.op import Module, Op, elementwise


def token_width(cut: Cut) -> int:
    """Return the elements that one token takes in the cache of one layer on this rank."""
    model = cut.model
    if model.attention == "mla":
        return model.kv_lora_rank + model.rope_head_dim
    return cut.kv_heads * (model.query_head_dim + model.value_head_dim)


def cached_attention(cut: Cut, window: int) -> Module:
    """Attend from one token of each sequence to all that the cache holds of it, or to the last of them."""
    model = cut.model
    keys = min(cut.context, window) if window else cut.context
    if model.attention == "mla":
        # Scores are over the whole compressed width, outputs over the part without position.
        kv_heads, width, flop_width = 1, token_width(cut) / 2, token_width(cut) + model.kv_lora_rank
    else:
        kv_heads, width = cut.kv_heads, (model.query_head_dim + model.value_head_dim) / 2
        flop_width = model.query_head_dim + model.value_head_dim
        kv_heads = kv_heads if cut.framework.shared_cache_reads else cut.heads
    flop = 2.0 * cut.batch * cut.heads * keys * flop_width
    read = cut.batch * keys * 2 * kv_heads * width * cut.cache_element_bytes
    queries = cut.batch * cut.heads * model.query_head_dim * cut.element_bytes
    op = Op("cached attention", "cached attention", flop, read + queries, queries,
            shape=(cut.batch, cut.heads, kv_heads, keys, round(width)),
            precision="fp8" if cut.cache_element_bytes == 1 else "bf16")  # fmt: skip
    return Module("core attention", (op,), forward_scratch_bytes=2 * queries,
                  weights=float(cut.heads) if model.attention_sinks else 0.0)  # fmt: skip


def write_cache(cut: Cut) -> Module:
    """Copy keys and values of this step's tokens to the cache."""
    elements = cut.tokens * token_width(cut)
    moved = elementwise("cache write", "elementwise", elements * cut.element_bytes, elements * cut.cache_element_bytes)
    return Module("cache write", (moved,))
