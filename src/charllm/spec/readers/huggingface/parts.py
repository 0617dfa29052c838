"""The parts of a Hugging Face config that families of models share, each as fields of a model table."""

from collections.abc import Mapping
from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers.values import (
    MAX_COUNT,
    MAX_ENTRIES,
    read_choice,
    read_count,
    read_counts,
    read_flag,
    read_number,
    read_table,
    shown,
)

Config = Mapping[str, Any]
Table = dict[str, Any]

LONGEST_SEQUENCE = 8192
"""What goes beyond it in a config is a context extended after training."""

LAYERS = ("num_hidden_layers", "n_layer", "n_layers")
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
FFN = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
DROPOUT = ("resid_pdrop", "hidden_dropout", "residual_dropout", "dropout")
ACTIVATION = ("hidden_activation", "hidden_act", "activation_function", "activation", "mlp_hidden_act")
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
TOPK = ("num_experts_per_tok", "experts_per_token")
PATTERN = ("sliding_window_pattern", "_sliding_window_pattern")

BLOCKS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
WINDOWED = {"full_attention": False, "sliding_attention": True}


def first_of(config: Config, keys: tuple[str, ...]) -> tuple[str, Any]:
    """Return the first of several keys that is stated, as the field of an error, and its value."""
    for key in keys:
        if key in config:
            return f"model.{key}", config[key]
    others = f" (or as {', '.join(keys[1:])})" if len(keys) > 1 else ""
    raise SpecError(f"model.{keys[0]}", None, f"a value{others}")


def count_of(config: Config, keys: tuple[str, ...], otherwise: int | None = None, high: int = MAX_COUNT) -> int:
    """Return the whole number under the first of several keys that is stated."""
    if otherwise is not None and not any(key in config for key in keys):
        return otherwise
    name, value = first_of(config, keys)
    return read_count(name, value, high=high)


def flag_of(config: Config, key: str, otherwise: bool) -> bool:
    """Return the yes or no under a key."""
    return read_flag(f"model.{key}", config.get(key, otherwise))


def layers_of(config: Config) -> int:
    """Return how many layers there are."""
    return count_of(config, LAYERS, high=MAX_ENTRIES)


def read_dropout(config: Config) -> Table:
    """Read the dropout after attention and feed-forward, under any of its names."""
    if not any(key in config for key in DROPOUT):
        return {}
    return {"dropout_fraction": read_number(*first_of(config, DROPOUT))}


def read_sequence(config: Config, position: str) -> Table:
    """Read the sequence length; longer contexts than usual are taken as extended after training."""
    length = count_of(config, POSITIONS, otherwise=0)
    if not length:
        return {}
    # A learned table holds weights for every position, so its length is a dimension of the model.
    return {"seq_length": length if position == "learned" else min(length, LONGEST_SEQUENCE)}


def read_biases(config: Config) -> Table:
    """Read biases that reach the output projection of the attention, or the feed-forward block too."""
    if flag_of(config, "mlp_bias", False):
        return {"bias": "all"}
    return {"bias": "attention" if flag_of(config, "attention_bias", False) else "none"}


def read_qkv_bias(config: Config) -> Table:
    """Read biases that stop at queries, keys and values."""
    return {"bias": "qkv" if flag_of(config, "attention_bias", False) else "none"}


def read_all_bias(config: Config) -> Table:
    """Read biases of all linear layers, there unless switched off."""
    return {"bias": "all" if flag_of(config, "use_bias", True) else "none"}


def read_window(config: Config) -> Table:
    """Read a sliding window and which layers have it."""
    window = count_of(config, ("sliding_window",), otherwise=0)
    if not window or not flag_of(config, "use_sliding_window", True):
        return {}
    windowed = _windowed_layers(config)
    full = [index for index, has_window in enumerate(windowed) if not has_window]
    if not full:
        return {"window": window}
    every = full[0] + 1
    if full != list(range(every - 1, len(windowed), every)):
        every = round(len(windowed) / len(full))
    # Mostly full layers have no period; counting all of them as full is the safe side.
    return {"window": window, "full_attention_every": every} if every > 1 else {}


def _windowed_layers(config: Config) -> list[bool]:
    layers = layers_of(config)
    if "layer_types" in config:
        types = config["layer_types"]
        if not isinstance(types, list) or len(types) != layers:
            raise SpecError("model.layer_types", shown(types), f"a list of {layers} words, one for each layer")
        return [read_choice("model.layer_types", word, WINDOWED) for word in types]
    if any(key in config for key in PATTERN):
        period = max(1, count_of(config, PATTERN))
        return [bool((index + 1) % period) for index in range(layers)]
    first = count_of(config, ("max_window_layers",), otherwise=0)
    return [index >= first for index in range(layers)]


def read_experts(config: Config) -> Table:
    """Read the routed and shared experts; a config without any is dense."""
    experts = count_of(config, EXPERTS, otherwise=0)
    if not experts:
        return {}
    for key in ("moe_layer_freq", "decoder_sparse_step"):
        if count_of(config, (key,), otherwise=1) != 1:
            raise SpecError(f"model.{key}", config[key], "1: dense layers may only come before the sparse ones")
    width = count_of(config, ("moe_intermediate_size", *FFN))
    shared = count_of(config, ("n_shared_experts",), otherwise=0, high=MAX_ENTRIES) * width
    return {
        "experts": experts,
        "topk": count_of(config, TOPK),
        "expert_groups": max(1, count_of(config, ("n_group",), otherwise=1)),
        "groups_per_token": max(1, count_of(config, ("topk_group",), otherwise=1)),
        "expert_ffn": width,
        "shared_ffn": count_of(config, ("shared_expert_intermediate_size",), otherwise=shared),
        "dense_layers": _dense_layers(config),
    }


def _dense_layers(config: Config) -> int:
    dense = sorted(read_counts("model.mlp_only_layers", config.get("mlp_only_layers", [])))
    if dense != list(range(len(dense))):
        raise SpecError("model.mlp_only_layers", dense, "the first layers: 0, 1, ... without gaps")
    return len(dense) or count_of(config, ("first_k_dense_replace",), otherwise=0)


def read_latent_attention(config: Config) -> Table:
    """Read the ranks and widths of DeepSeek's latent attention."""
    return {
        "attention": "mla",
        "kv_heads": count_of(config, HEADS),
        "head_dim": count_of(config, ("qk_nope_head_dim",)),
        "rope_head_dim": count_of(config, ("qk_rope_head_dim",)),
        "v_head_dim": count_of(config, ("v_head_dim",)),
        "kv_lora_rank": count_of(config, ("kv_lora_rank",)),
        "q_lora_rank": count_of(config, ("q_lora_rank",), otherwise=0),
    }


def read_token_prediction(config: Config) -> Table:
    """Read the multi-token-prediction layers."""
    return {"mtp_layers": count_of(config, ("num_nextn_predict_layers",), otherwise=0)}


def read_hybrid(config: Config) -> Table:
    """Read Nemotron-H: which layers are Mamba-2, attention, feed-forward or experts, and their widths."""
    pattern = _pattern(config, "hybrid_override_pattern", "layers_block_type")
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
        table["mtp_pattern"] = _pattern(config, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if "E" not in pattern:
        return table
    shared = count_of(config, ("n_shared_experts",), otherwise=1, high=MAX_ENTRIES)
    width = count_of(config, ("moe_shared_expert_intermediate_size",), otherwise=0)
    latent = count_of(config, ("moe_latent_size",), otherwise=0)
    return {**table, **read_experts(config), "shared_ffn": shared * width, "expert_latent": latent}


def _pattern(config: Config, text: str, words: str) -> str:
    """Return a pattern of layers, spelled in letters or as a list of words."""
    if words not in config:
        name, letters = first_of(config, (text, words))
        if not isinstance(letters, str):
            raise SpecError(name, shown(letters), "a text with one letter for each layer")
        return letters
    listed = config[words]
    if not isinstance(listed, list):
        raise SpecError(f"model.{words}", shown(listed), "a list of words, one for each layer")
    return "".join(read_choice(f"model.{words}", word, BLOCKS) for word in listed)


def read_qk_norm(config: Config) -> Table:
    """Read whether queries and keys are normalised."""
    return {"qk_norm": flag_of(config, "use_qk_norm", False)}


def read_bigcode(config: Config) -> Table:
    """Read the key-value heads of GPT BigCode, one unless switched off."""
    return {"kv_heads": 1} if flag_of(config, "multi_query", True) else {}


def read_falcon(config: Config) -> Table:
    """Read Falcon's two architectures."""
    heads, new = count_of(config, HEADS), flag_of(config, "new_decoder_architecture", False)
    old_kv_heads = 1 if flag_of(config, "multi_query", True) else heads
    norms = count_of(config, ("num_ln_in_parallel_attn",), otherwise=2) if new else 1
    return {
        "kv_heads": count_of(config, KV_HEADS, otherwise=heads) if new else old_kv_heads,
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
    return {
        "ffn": count_of(config, ("expansion_ratio",), otherwise=4, high=MAX_ENTRIES) * count_of(config, HIDDEN),
        "kv_heads": 1 if multi_query else count_of(attention, ("kv_n_heads",), otherwise=heads),
        "qk_norm": flag_of(attention, "qk_ln", False),
        "position": "alibi" if flag_of(attention, "alibi", True) else learned,
        "bias": "none" if flag_of(config, "no_bias", True) else "all",
    }


def read_opt(config: Config) -> Table:
    """Read OPT; a variant that projects its embedding is refused."""
    hidden = count_of(config, HIDDEN)
    if count_of(config, ("word_embed_proj_dim",), otherwise=hidden) != hidden:
        raise SpecError("model.word_embed_proj_dim", config["word_embed_proj_dim"], f"hidden_size ({hidden})")
    return {"bias": "all" if flag_of(config, "enable_bias", True) else "none"}


def read_stablelm(config: Config) -> Table:
    """Read StableLM's switches."""
    return {
        "bias": "qkv" if flag_of(config, "use_qkv_bias", False) else "none",
        "norms_per_layer": 1 if flag_of(config, "use_parallel_residual", False) else 2,
        "qk_norm": flag_of(config, "qk_layernorm", False),
    }
