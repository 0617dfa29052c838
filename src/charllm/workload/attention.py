"""Attention: grouped queries or DeepSeek's latent form, in one kernel or unfused, over tp and cp ranks.

Equation: 2 x pairs x (query + value width) FLOP a head forward, 2 x pairs x (3 query + 2 value width) backward of a
flash kernel, which computes scores again; pairs as `attention_pairs` counts them.
Source: Dao 2023, Korthikanti 2022, DeepSeek-V2 report; others beside the functions.
Ignores: arithmetic of the softmax; diagonal blocks that a tiled kernel computes whole.
"""

from charllm.workload.cache import cached_attention, write_cache
from charllm.workload.context import exchange_context
from charllm.workload.cut import Cut
from charllm.workload.linear import linear
from charllm.workload.op import Kept, Module, Op, elementwise
from charllm.workload.projections import grouped_projections, latent_projections

MAX_FUSED_KEYS = 4096
"""Longest row that Megatron's fused softmax takes; batch x heads and queries must be multiples of four."""


def attention_pairs(queries: int, causal: bool, window: int) -> float:
    """Count the query-key pairs of one sequence and head that a kernel works on.

    All ``s^2``; ``s^2 / 2`` when causal; ``s w - w^2 / 2`` when a token sees only the last w < s.
    """
    if window and window < queries:
        return float(queries * window) - window * window / 2
    return queries * queries / 2 if causal else float(queries * queries)


def attention(cut: Cut, window: int, *, borrows: bool = False) -> tuple[Module, ...]:
    """Describe the attention block between two residual additions.

    `borrows` where keys and values are a layer's before it. Ignores: the addition of their gradients to that layer's.
    """
    model = cut.model
    projections = latent_projections(cut) if model.attention == "mla" else grouped_projections(cut, borrows=borrows)
    indexer = _indexer(cut) if model.index_heads else ()
    gate = (_gate(cut),) if model.attention_gate else ()
    # A query that chooses its keys has as many as one that looks back over a window of that length.
    written = (write_cache(cut),) if cut.generates and not borrows else ()
    core = _core(cut, model.index_topk or window)
    if borrows:
        core = core._replace(kept=tuple(kept for kept in core.kept if kept.name != "key and value"))
    return (*projections, *written, *indexer, core, *gate, _output(cut))


def _indexer(cut: Cut) -> tuple[Module, ...]:
    """Describe DeepSeek sparse attention's indexer: a light score of all earlier tokens, of which the best are kept.

    Source: DeepSeek-V3.2 report, section 2.1: heads of queries from the compressed query, one key for all heads, and
    a weight for each head. Backward has two products for the one of forward.
    Ignores: the loss that teaches it; that its scores may be 8-bit.
    """
    model, size = cut.model, cut.element_bytes
    inputs = model.q_lora_rank or model.hidden
    keys = cut.seq * cut.cp
    pairs = cut.batch * attention_pairs(keys, model.causal, 0) / cut.cp
    flop = 2.0 * pairs * model.index_heads * model.index_head_dim
    shape = (cut.batch, cut.seq * model.index_heads, max(1, round(keys * pairs / (cut.batch * cut.seq * keys))),
             model.index_head_dim)  # fmt: skip
    operands = cut.tokens * (model.index_heads + 1) * model.index_head_dim * size
    scores = pairs * 4.0
    forward = Op("index scores", "gemm", flop, operands, scores, shape=shape)
    backward = Op("index scores dgrad", "gemm", flop, scores + operands, operands, shape=shape, direction="dgrad")
    choose = elementwise("index choice", "elementwise", scores, cut.tokens * model.index_topk * 4.0)
    chosen = Kept("chosen tokens", cut.tokens * model.index_topk * 4.0, ("core_attn",))
    scoring = Module(
        "index scores", (forward, choose), (backward, backward), (chosen,), forward_scratch_bytes=scores,
        backward_scratch_bytes=scores, recomputed_by=("core_attn",),
    )  # fmt: skip
    return (
        linear(cut, "index q", inputs, model.index_heads * model.index_head_dim),
        linear(cut, "index k", model.hidden, model.index_head_dim),
        linear(cut, "index weights", model.hidden, model.index_heads),
        scoring,
    )


def _gate(cut: Cut) -> Module:
    """Describe output times sigmoid(gate), a kernel each way, as in Qwen3-Next."""
    moved = cut.tokens * cut.heads * cut.model.value_head_dim * cut.element_bytes
    forward = elementwise("attention gate", "activation", 2 * moved, moved)
    backward = elementwise("attention gate", "activation", 3 * moved, 2 * moved, "backward")
    return Module(
        "attention gate",
        (forward,),
        (backward,),
        (Kept("attention gate", 2 * moved),),
        forward_scratch_bytes=moved,
        backward_scratch_bytes=2 * moved,
    )


def _core(cut: Cut, window: int) -> Module:
    """Softmax(QK)V: as one flash kernel, as two products around a materialised score matrix, or over a cache."""
    if cut.context:
        return cached_attention(cut, window)
    return _flash(cut, window) if cut.framework.attention == "flash" else _unfused(cut)


def _widths(cut: Cut) -> tuple[float, float, float]:
    """Elements of query, of key and value, and of output on this rank."""
    model = cut.model
    kv_heads = cut.heads if model.attention == "mla" else cut.kv_heads
    query = cut.tokens * cut.heads * model.query_head_dim
    key_value = cut.tokens * kv_heads * (model.query_head_dim + model.value_head_dim)
    return float(query), float(key_value), float(cut.tokens * cut.heads * model.value_head_dim)


def _flash(cut: Cut, window: int) -> Module:
    """Attention that never writes the score matrix (Dao 2023): backward computes it again, 5 products for 2.

    Ignores: the softmax's own arithmetic.
    """
    model, size = cut.model, cut.element_bytes
    query, key_value, output = _widths(cut)
    # Packed documents are a batch of short sequences.
    document = min(cut.training.document_tokens or cut.seq * cut.cp, cut.seq * cut.cp)
    if window and model.window_kind == "chunked":
        document, window = min(document, window), 0
    documents = cut.seq * cut.cp / document
    pairs = documents * attention_pairs(document, model.causal, window) / cut.cp
    products = cut.batch * cut.heads * pairs
    qk, pv = model.query_head_dim, model.value_head_dim
    batch = max(1, round(cut.batch * documents))
    shape = (batch, cut.heads, cut.kv_heads, min(cut.seq, document), document, qk, pv)
    log_sum = cut.tokens * cut.heads * 4.0
    forward = Op(
        "flash attention",
        "attention",
        2.0 * products * (qk + pv),
        (query + key_value) * size,
        output * size + log_sum,
        shape=shape,
    )
    backward = Op(
        "flash attention backward",
        "attention",
        2.0 * products * (3 * qk + 2 * pv),
        (query + key_value + 2 * output) * size + log_sum,
        (query + key_value) * size,
        shape=shape,
        direction="backward",
    )
    up_projected = ("mla_up_proj",) if model.attention == "mla" else ()
    kept = (
        Kept("query", query * size, up_projected, returned=_returns_queries(cut)),
        Kept("key and value", key_value * size, up_projected, returned=cut.framework.returns_outputs),
        Kept("attention output", output * size),
        Kept("log-sum-exp", log_sum, ("core_attn",)),
    )
    exchange = exchange_context(cut, query, key_value, output)
    return Module(
        "core attention",
        (*exchange.before_forward, forward, *_merge(cut, "forward", output), *exchange.after_forward),
        (
            *exchange.before_backward,
            backward,
            *_merge(cut, "backward", query + key_value),
            *exchange.after_backward,
        ),
        kept,
        recomputed_by=("core_attn",),
        weights=float(cut.heads) if model.attention_sinks else 0.0,
        backward_scratch_bytes=(query + key_value + output) * size,
    )


def _returns_queries(cut: Cut) -> bool:
    """Keys and values that are handed back hold queries, too, where all three are views of one tensor."""
    return cut.framework.returns_outputs and cut.framework.packed_qkv


def _merge(cut: Cut, direction: str, elements: float) -> tuple[Op, ...]:
    """Add a block's result to those before it, in fp32: once for each further rank of a ring."""
    sent_round = cut.cp_kind == "ring" and cut.framework.ring_exchange == "sends"
    blocks = cut.cp - 1 if sent_round else 0
    size = cut.element_bytes
    if not blocks:
        return ()
    moved = (blocks * elements * (4 + size), blocks * elements * 4)
    return (elementwise("attention merge", "merge", *moved, direction, (blocks,)),)


def _unfused(cut: Cut) -> Module:
    """Attention through a written score matrix: product, masked softmax, dropout, product.

    Keeps softmax output (2 bytes), dropout mask (1) and its output (2) for each score (Korthikanti 2022).
    """
    model, size = cut.model, cut.element_bytes
    query, key_value, output = _widths(cut)
    keys = cut.seq * cut.cp
    scores = float(cut.batch * cut.heads * cut.seq) * keys
    batches, qk, pv = cut.batch * cut.heads, model.query_head_dim, model.value_head_dim
    key, value = key_value * qk / (qk + pv), key_value * pv / (qk + pv)

    def product(name: str, m: int, n: int, k: int, read: float, written: float, direction: str = "forward") -> Op:
        flop = 2.0 * batches * m * n * k
        shape = (batches, m, n, k)
        return Op(name, "gemm", flop, read * size, written * size, shape=shape, direction=direction)

    softmax = _softmax(cut, keys, scores)
    dropped = model.dropout_fraction > 0
    dropout = (elementwise("attention dropout", "dropout", scores * size, scores * (size + 1)),) if dropped else ()
    forward = (
        product("scores", cut.seq, keys, qk, query + key, scores),
        *softmax,
        *dropout,
        product("context", cut.seq, pv, keys, scores + value, output),
    )
    backward = (
        product("context dgrad", cut.seq, keys, pv, output + value, scores, "dgrad"),
        product("value grad", keys, pv, cut.seq, scores + output, value, "dgrad"),
        *(
            (elementwise("attention dropout", "dropout", scores * (size + 1), scores * size, "backward"),)
            if dropped
            else ()
        ),
        *_softmax_backward(cut, keys, scores),
        product("query grad", cut.seq, qk, keys, scores + key, query, "dgrad"),
        product("key grad", keys, qk, cut.seq, scores + query, key, "dgrad"),
    )
    kept = [
        Kept("query", query * size, returned=_returns_queries(cut)),
        Kept("key and value", key_value * size, returned=cut.framework.returns_outputs),
        Kept("softmax", scores * size, ("core_attn",)),
        Kept("attention output", output * size),
    ]
    if dropped:
        kept += [
            Kept("attention dropout", scores * size, ("core_attn",)),
            Kept("attention dropout mask", scores, ("core_attn",)),
        ]
    exchange = exchange_context(cut, query, key_value, output)
    return Module(
        "core attention",
        (*exchange.before_forward, *forward, *exchange.after_forward),
        (*exchange.before_backward, *backward, *exchange.after_backward),
        tuple(kept),
        recomputed_by=("core_attn",),
        weights=float(cut.heads) if model.attention_sinks else 0.0,
        forward_scratch_bytes=scores * size,
        backward_scratch_bytes=2 * scores * size,
    )


def _softmax(cut: Cut, keys: int, scores: float) -> tuple[Op, ...]:
    """Scale, mask and softmax as one kernel where Megatron has one (`fused_softmax.py`), else a chain through fp32."""
    size = cut.element_bytes
    if _fuses_softmax(cut, keys):
        return (elementwise("softmax", "softmax", scores * size, scores * size, shape=_rows(scores, keys)),)
    return (
        elementwise("softmax upcast", "elementwise", scores * size, scores * 4),
        elementwise("softmax scale", "elementwise", scores * 4, scores * 4),
        elementwise("softmax mask", "elementwise", scores * 4, scores * 4),
        elementwise("softmax", "softmax", scores * 4, scores * 4, shape=_rows(scores, keys)),
        elementwise("softmax downcast", "elementwise", scores * 4, scores * size),
    )


def _softmax_backward(cut: Cut, keys: int, scores: float) -> tuple[Op, ...]:
    """The same chain backwards: what forward casts, scales and masks, backward does to the gradient."""
    size = cut.element_bytes
    if _fuses_softmax(cut, keys):
        return (elementwise("softmax", "softmax", 2 * scores * size, scores * size, "backward", _rows(scores, keys)),)
    return (
        elementwise("softmax downcast", "elementwise", scores * size, scores * 4, "backward"),
        elementwise("softmax", "softmax", 2 * scores * 4, scores * 4, "backward", _rows(scores, keys)),
        elementwise("softmax mask", "elementwise", scores * 4, scores * 4, "backward"),
        elementwise("softmax scale", "elementwise", scores * 4, scores * 4, "backward"),
        elementwise("softmax upcast", "elementwise", scores * 4, scores * size, "backward"),
    )


def _rows(scores: float, keys: int) -> tuple[int, int]:
    return round(scores / keys), keys


def _fuses_softmax(cut: Cut, keys: int) -> bool:
    """Tell whether Megatron's fused kernel takes these scores."""
    return keys <= MAX_FUSED_KEYS and cut.seq % 4 == 0 and cut.batch * cut.heads % 4 == 0


def _output(cut: Cut) -> Module:
    model = cut.model
    width = model.heads * model.value_head_dim
    cast_copy = Kept("proj input", cut.tokens * width // cut.tp * cut.operand_bytes)
    return linear(
        cut,
        "proj",
        width,
        model.hidden,
        split="row",
        bias=model.bias in ("attention", "all"),
        # In bf16 the input is the attention output, which the core keeps already.
        input_kept=(cast_copy,) if cut.cast else (),
        target="proj",
    )
