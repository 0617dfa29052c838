"""The parts of a Hugging Face config that families of models share, each as fields of a model table."""

from collections.abc import Callable

from charllm.errors import SpecError
from charllm.spec.readers.huggingface.layers import read_sparse_layers
from charllm.spec.readers.huggingface.values import (
    FFN,
    HEADS,
    HIDDEN,
    KV_HEADS,
    Config,
    Table,
    count_of,
    first_of,
    flag_of,
    same_count_of,
    text_of,
)
from charllm.spec.readers.values import (
    MAX_ENTRIES,
    read_choice,
    read_table,
    shown,
)

EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
TOPK = ("num_experts_per_tok", "experts_per_token", "moe_k", "moe_top_k", "moe_topk", "num_experts_per_token")
EXPERT_FFN = ("moe_intermediate_size", "expert_ffn_hidden_size")
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
SHARED_FFN = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
)
PREDICTION = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")
BIASES = {(False, False): "none", (True, False): "attention", (False, True): "mlp", (True, True): "all"}
"""Whether attention has a bias, whether the feed-forward block has one: the word for it."""
BLOCKS = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-", "moe": "E"}


def read_biases(config: Config) -> Table:
    """Read biases that reach the output projection of the attention, or the feed-forward block too."""
    if flag_of(config, "mlp_bias", False) and count_of(config, EXPERTS, otherwise=0):
        raise SpecError("model.mlp_bias", True, "false: biases beside experts without any are not modelled")
    attention, mlp = flag_of(config, "attention_bias", False), flag_of(config, "mlp_bias", False)
    return {"bias": BIASES[attention, mlp]}


def read_qkv_bias(config: Config) -> Table:
    """Read biases that stop at queries, keys and values."""
    stated = flag_of(config, "attention_bias", False) or flag_of(config, "qkv_bias", False)
    return {"bias": "attention" if stated and flag_of(config, "attention_out_bias", False) else _named_bias(stated)}


def _named_bias(stated: bool) -> str:
    return "qkv" if stated else "none"


def read_all_bias(config: Config) -> Table:
    """Read biases of all linear layers, there unless switched off."""
    return {"bias": "all" if flag_of(config, "use_bias", True) else "none"}


def read_stated_bias(config: Config) -> Table:
    """Require the biases of attention that a type always has."""
    if not flag_of(config, "attention_bias", True):
        raise SpecError("model.attention_bias", False, "true: this type has biases")
    return {}


def read_no_bias(config: Config) -> Table:
    """Read biases of all linear layers, absent unless switched on."""
    if flag_of(config, "use_bias", False) and count_of(config, EXPERTS, otherwise=0):
        raise SpecError("model.use_bias", True, "false: biases beside experts without any are not modelled")
    return {
        "bias": "all" if flag_of(config, "use_bias", False) else _named_bias(flag_of(config, "use_qkv_bias", False))
    }


def read_plain_bias(config: Config) -> Table:
    """Read InternLM's one switch for the biases of attention, and its later one for queries, keys and values."""
    if flag_of(config, "bias", False):
        return {"bias": "attention"}
    return {"bias": _named_bias(flag_of(config, "qkv_bias", False))}


def read_experts(config: Config) -> Table:
    """Read the routed and shared experts; a config without any is dense."""
    experts = count_of(config, EXPERTS, otherwise=0)
    if not experts:
        return {}
    width = same_count_of(config, (*EXPERT_FFN, *FFN))
    shared = same_count_of(config, SHARED, otherwise=0, high=MAX_ENTRIES) * width
    return {
        "experts": experts,
        "topk": same_count_of(config, TOPK),
        "expert_groups": max(1, count_of(config, ("n_group",), otherwise=1)),
        "groups_per_token": max(1, count_of(config, ("topk_group",), otherwise=1)),
        "expert_ffn": width,
        "shared_ffn": count_of(config, SHARED_FFN, otherwise=shared),
        **read_sparse_layers(config),
    }


def read_granite_experts(config: Config) -> Table:
    """Read Granite's experts beside a shared block; without experts that block is the whole feed-forward."""
    table = read_experts(config)
    return table or {"ffn": count_of(config, (*SHARED_FFN, *FFN))}


def read_llama4_experts(config: Config) -> Table:
    """Read Llama 4: experts and a shared one of the same width, dense layers of another."""
    width = count_of(config, ("intermediate_size",))
    table = read_experts(config)
    dense = count_of(config, ("intermediate_size_mlp",), otherwise=width)
    return {**table, "shared_ffn": width, "ffn": dense} if table else {"ffn": dense}


def read_latent_attention(config: Config) -> Table:
    """Read the ranks and widths of DeepSeek's latent attention, and of its indexer where it has one."""
    table = {
        "attention": "mla",
        "kv_heads": count_of(config, HEADS),
        "head_dim": count_of(config, ("qk_nope_head_dim",)),
        "rope_head_dim": count_of(config, ("qk_rope_head_dim",)),
        "v_head_dim": count_of(config, ("v_head_dim",)),
        "kv_lora_rank": count_of(config, ("kv_lora_rank",)),
        "q_lora_rank": count_of(config, ("q_lora_rank",), otherwise=0),
    }
    for key in ("layer_types", "qk_head_dim", "head_dim", "indexer_rope_interleave"):
        config.get(key)
    if "index_topk" not in config:
        return table
    kinds = config.get("indexer_types", [])
    if isinstance(kinds, list) and any(kind != "full" for kind in kinds):
        raise SpecError("model.indexer_types", "shared indexers", "full for each layer: others are not modelled")
    return {
        **table,
        "index_heads": count_of(config, ("index_n_heads",)),
        "index_head_dim": count_of(config, ("index_head_dim",)),
        # Scale and shift of its keys' norm.
        "layer_vectors": 2 * count_of(config, ("index_head_dim",)),
        "index_topk": count_of(config, ("index_topk",)),
    }


def read_token_prediction(config: Config) -> Table:
    """Read the multi-token-prediction layers."""
    return {"mtp_layers": count_of(config, PREDICTION, otherwise=0)}


def read_hybrid(config: Config) -> Table:
    """Read Nemotron-H: which layers are Mamba-2, attention, feed-forward or experts, and their widths."""
    pattern = _pattern(config, "hybrid_override_pattern", "layers_block_type", "layer_types")
    table = {
        "pattern": pattern,
        "ssm_heads": count_of(config, ("mamba_num_heads",)),
        "ssm_head_dim": count_of(config, ("mamba_head_dim",)),
        "ssm_state": count_of(config, ("ssm_state_size",)),
        "ssm_groups": count_of(config, ("n_groups",)),
        "ssm_conv": count_of(config, ("conv_kernel",)),
        **read_token_prediction(config),
    }
    if table["mtp_layers"]:
        keys = ("mtp_hybrid_override_pattern", "mtp_layers_block_type")
        # Transformers' own default is attention and experts.
        table["mtp_pattern"] = _pattern(config, *keys) if any(key in config for key in keys) else "*E"
    if "E" not in pattern:
        for key in (*EXPERTS, *TOPK, *EXPERT_FFN, *SHARED, *SHARED_FFN, "n_group", "topk_group"):
            config.get(key)
        return table
    # All shared experts are one of the width stated.
    count_of(config, SHARED, otherwise=1, high=MAX_ENTRIES)
    width = count_of(config, ("moe_shared_expert_intermediate_size",), otherwise=0)
    latent = count_of(config, ("moe_latent_size",), otherwise=0)
    experts = {key: value for key, value in read_experts(config).items() if key != "dense_layers"}
    return {**table, **experts, "shared_ffn": width, "expert_latent": latent}


def _pattern(config: Config, text: str, *lists: str) -> str:
    """Return a pattern of layers, spelled in letters or as a list of words."""
    words = next((key for key in lists if key in config), "")
    if not words:
        name, letters = first_of(config, (text, *lists))
        if not isinstance(letters, str):
            raise SpecError(name, shown(letters), "a text with one letter for each layer")
        return letters
    listed = config[words]
    config.get(text)
    if not isinstance(listed, list):
        raise SpecError(f"model.{words}", shown(listed), "a list of words, one for each layer")
    return "".join(read_choice(f"model.{words}", word, BLOCKS) for word in listed)


def vectors(field: str, size: tuple[str, ...], times: int = 1) -> Callable[[Config], Table]:
    """Make a reader that counts weights in vectors: a bias of the head, of the router, of attention's output."""

    def read(config: Config) -> Table:
        return {field: times * count_of(config, size, otherwise=0)}

    return read


def read_shared_gate(config: Config) -> Table:
    """Count the vector that weighs the shared experts of a token."""
    return {"sparse_vectors": count_of(config, HIDDEN)} if count_of(config, EXPERTS, otherwise=0) else {}


def read_qkv_switch(config: Config) -> Table:
    """Read biases of queries, keys and values that are there unless switched off."""
    return {"bias": _named_bias(flag_of(config, "qkv_bias", True))}


def read_japanese_neox(config: Config) -> Table:
    """Read GPT-NeoX Japanese: one bias, after the attention of its last layer."""
    hidden = count_of(config, HIDDEN)
    return {"ffn": count_of(config, ("intermediate_multiple_size",), otherwise=4) * hidden, "end_vectors": hidden}


def read_post_norms(config: Config) -> Table:
    """Read norms after each block beside those before it."""
    return {"norms_per_layer": 4 if flag_of(config, "use_post_norm", False) else 2}


def read_qk_norm(config: Config) -> Table:
    """Read whether queries and keys are normalised."""
    return {"qk_norm": flag_of(config, "use_qk_norm", False) or flag_of(config, "qk_layernorm", False)}


def read_bigcode(config: Config) -> Table:
    """Read the key-value heads of GPT BigCode, one unless switched off."""
    return {"kv_heads": 1} if flag_of(config, "multi_query", True) else {}


def read_falcon(config: Config) -> Table:
    """Read Falcon's two architectures."""
    heads, new = count_of(config, HEADS), flag_of(config, "new_decoder_architecture", False)
    old_kv_heads = 1 if flag_of(config, "multi_query", True) else heads
    stated_kv_heads = count_of(config, KV_HEADS, otherwise=heads)
    norms = count_of(config, ("num_ln_in_parallel_attn",), otherwise=2) if new else 1
    return {
        "kv_heads": stated_kv_heads if new else old_kv_heads,
        "norms_per_layer": norms if flag_of(config, "parallel_attn", True) else 2,
        "position": "alibi" if flag_of(config, "alibi", False) else "rope",
        "bias": "all" if flag_of(config, "bias", False) else "none",
    }


def read_mpt(config: Config) -> Table:
    """Read MPT, which keeps its attention in a table of its own."""
    attention = read_table("model.attn_config", config.get("attn_config"))
    heads = count_of(config, HEADS)
    multi_query = attention.get("attn_type") == "multiquery_attention"
    learned = "learned" if flag_of(config, "learned_pos_emb", True) else "none"
    if not flag_of(config, "no_bias", True):
        raise SpecError("model.no_bias", False, "true: transformers builds no biases, LLM Foundry does")
    return {
        "ffn": count_of(config, ("expansion_ratio",), otherwise=4, high=MAX_ENTRIES) * count_of(config, HIDDEN),
        "kv_heads": 1 if multi_query else count_of(attention, ("kv_n_heads",), otherwise=heads),
        "qk_norm": flag_of(attention, "qk_ln", False),
        "position": "alibi" if flag_of(attention, "alibi", True) else learned,
    }


def read_dbrx(config: Config) -> Table:
    """Read DBRX, which keeps its attention and its experts in tables of their own."""
    attention = read_table("model.attn_config", config.get("attn_config"))
    experts = read_table("model.ffn_config", config.get("ffn_config"))
    function = read_table("model.ffn_config.ffn_act_fn", experts.get("ffn_act_fn"))
    read_choice("model.ffn_config.ffn_act_fn.name", function.get("name", "silu"), {"silu": "swiglu"})
    width = count_of(experts, ("ffn_hidden_size",))
    return {
        "ffn": width,
        "kv_heads": count_of(attention, ("kv_n_heads",), otherwise=1),
        "experts": count_of(experts, ("moe_num_experts",)),
        "topk": count_of(experts, ("moe_top_k",)),
        "expert_ffn": width,
    }


def read_opt(config: Config) -> Table:
    """Read OPT; a variant that projects its embedding is refused."""
    hidden = count_of(config, HIDDEN)
    if count_of(config, ("word_embed_proj_dim",), otherwise=hidden) != hidden:
        raise SpecError("model.word_embed_proj_dim", config["word_embed_proj_dim"], f"hidden_size ({hidden})")
    return {"bias": "all" if flag_of(config, "enable_bias", True) else "none"}


def read_stablelm(config: Config) -> Table:
    """Read StableLM's switches."""
    normed, heads = flag_of(config, "qk_layernorm", False), count_of(config, HEADS)
    width = count_of(config, HIDDEN) // max(1, heads)
    return {
        "bias": "qkv" if flag_of(config, "use_qkv_bias", False) else "none",
        "norms_per_layer": 1 if flag_of(config, "use_parallel_residual", False) else 2,
        "qk_norm": normed,
        # Of each head its own, without a shift.
        "layer_vectors": normed * (heads + count_of(config, KV_HEADS, otherwise=heads)) * width,
    }


def read_chatglm(config: Config) -> Table:
    """Read ChatGLM 2 and 3 and GLM-4's first release."""
    groups = count_of(config, ("multi_query_group_num",), otherwise=0)
    bias = flag_of(config, "add_bias_linear", False)
    return {
        "kv_heads": groups if groups and flag_of(config, "multi_query_attention", False) else count_of(config, HEADS),
        "vocab": count_of(config, ("padded_vocab_size", "vocab_size")),
        "bias": "all" if bias else _named_bias(flag_of(config, "add_qkv_bias", False)),
    }


def read_qwen1(config: Config) -> Table:
    """Read the first Qwen, which counts both halves of its gated block as one width."""
    return {"ffn": count_of(config, FFN) // 2, "bias": "qkv"}


def read_baichuan(config: Config) -> Table:
    """Read Baichuan: the smaller one has positions to rotate, the larger one has ALiBi and so no limit of them."""
    return {"position": "rope" if "max_position_embeddings" in config else "alibi"}


def read_granite_position(config: Config) -> Table:
    """Read whether positions enter at all."""
    rotated = text_of(config, "position_embedding_type", "nope") == "rope"
    return {"position": "rope" if rotated else "none"}


def read_minimax_prediction(config: Config) -> Table:
    """Read MiniMax-M2's modules of multi-token prediction."""
    each = count_of(config, ("mtp_transformer_layers",), otherwise=1)
    modules = count_of(config, ("num_mtp_modules",), otherwise=0)
    return {"mtp_layers": modules * each if flag_of(config, "use_mtp", bool(modules)) else 0}
