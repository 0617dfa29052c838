"""Models of 2025 and 2026 whose layers differ in kind or in heads: LFM2, Falcon-H1, MiMo-V2 and Gemma 4."""

from charllm.errors import SpecError
from charllm.spec.readers.huggingface.layers import ATTENTIONS, read_words
from charllm.spec.readers.huggingface.parts import EXPERT_FFN, EXPERTS
from charllm.spec.readers.huggingface.values import (
    FFN,
    HEADS,
    HIDDEN,
    KV_HEADS,
    VOCAB,
    Config,
    Table,
    count_of,
    flag_of,
    layers_of,
)
from charllm.spec.readers.patterns import describe_mixers
from charllm.spec.readers.values import read_count, read_counts, read_number, read_table


def read_short_convolutions(config: Config) -> Table:
    """Read LFM2: gated short convolutions in place of attention, and the width that its block rounds to."""
    layers = layers_of(config)
    if "layer_types" in config:
        config.get("full_attn_idxs")
        letters = read_words(config, "layer_types", {**ATTENTIONS, "conv": "C"})
    else:
        full = set(read_counts("model.full_attn_idxs", config.get("full_attn_idxs", list(range(layers)))))
        letters = "".join("*" if index in full else "C" for index in range(layers))
    if flag_of(config, "conv_bias", False):
        raise SpecError("model.conv_bias", True, "false: biases of short convolutions are not modelled")
    table = {**describe_mixers(letters), "ssm_conv": count_of(config, ("conv_L_cache",), otherwise=3)}
    width = count_of(config, ("block_ff_dim", *FFN))
    if flag_of(config, "block_auto_adjust_ff_dim", False):
        multiple = max(1, count_of(config, ("block_multiple_of",), otherwise=256))
        factor = read_number("model.block_ffn_dim_multiplier", config.get("block_ffn_dim_multiplier", 1.0))
        width = -(-int(factor * (2 * width // 3)) // multiple) * multiple
    return {**table, "ffn": width}


def read_side_by_side(config: Config) -> Table:
    """Read Falcon-H1: attention and Mamba-2 of the same input in each layer."""
    heads = count_of(config, ("mamba_n_heads",))
    wide = count_of(config, ("mamba_expand",), otherwise=2) * count_of(config, HIDDEN)
    inner = count_of(config, ("mamba_d_ssm",), otherwise=wide)
    for key in ("layer_types", "layers_block_type", "mamba_d_head"):
        config.get(key)
    normed = flag_of(config, "mamba_rms_norm", False)
    return {
        "mixers": "H",
        "ssm_heads": heads,
        "ssm_head_dim": inner // max(1, heads),
        "ssm_groups": count_of(config, ("mamba_n_groups",)),
        "ssm_state": count_of(config, ("mamba_d_state",)),
        "ssm_conv": count_of(config, ("mamba_d_conv",)),
        "layer_vectors": inner if normed else 0,
    }


def read_mimo_windows(config: Config) -> Table:
    """Read MiMo-V2: windowed layers have twice the key-value heads and sinks; values are narrower than keys."""
    layers = layers_of(config)
    listed = config.get("hybrid_layer_pattern")
    if "layer_types" in config:
        letters = read_words(config, "layer_types", ATTENTIONS)
    elif isinstance(listed, list):
        letters = "".join("w" if kind else "*" for kind in read_counts("model.hybrid_layer_pattern", listed))
    else:
        letters = "".join("*" if index == 0 or not (index + 1) % 6 else "w" for index in range(layers))
    window = count_of(config, ("sliding_window", "sliding_window_size"))
    wide, heads = count_of(config, ("head_dim",)), count_of(config, HEADS)
    values = count_of(config, ("v_head_dim",))
    for key, same in (("swa_head_dim", wide), ("swa_num_attention_heads", heads), ("swa_v_head_dim", values)):
        if count_of(config, (key,), otherwise=same) != same:
            raise SpecError(f"model.{key}", config[key], f"{same}, as in the layers without a window")
    if config.get("add_full_attention_sink_bias"):
        raise SpecError("model.add_full_attention_sink_bias", True, "false: sinks belong to windowed layers")
    return {
        **describe_mixers(letters, window),
        "v_head_dim": values,
        "window_kv_heads": count_of(config, ("swa_num_key_value_heads",), otherwise=2 * count_of(config, KV_HEADS)),
        "attention_sinks": flag_of(config, "add_swa_attention_sink_bias", True),
        "window_sinks": True,
    }


def read_gemma4(config: Config) -> Table:
    """Read Gemma 4: other heads in layers without a window, and experts beside the dense block where it has them."""
    full = _full_layers(config)
    same = flag_of(config, "attention_k_eq_v", False)
    shared = count_of(config, ("num_kv_shared_layers",), otherwise=0)
    if count_of(config, ("vocab_size_per_layer_input",), otherwise=count_of(config, VOCAB)) != count_of(config, VOCAB):
        raise SpecError("model.vocab_size_per_layer_input", config["vocab_size_per_layer_input"], "as vocab_size")
    window_kv_heads = count_of(config, KV_HEADS)
    table = {
        "head_dim": full.get("head_dim", 512),
        "kv_heads": full.get("num_key_value_heads", window_kv_heads),
        "window_kv_heads": window_kv_heads,
        "window_head_dim": count_of(config, ("head_dim",)),
        "shared_values": same,
        "layer_input": count_of(config, ("hidden_size_per_layer_input",), otherwise=0),
        "shared_kv_layers": shared,
        "shared_kv_ffn": 2 * count_of(config, FFN) if shared and flag_of(config, "use_double_wide_mlp", False) else 0,
    }
    if not flag_of(config, "enable_moe_block", False):
        return table
    hidden, experts = count_of(config, HIDDEN), count_of(config, EXPERTS)
    return {
        **table,
        "norms_per_layer": 7,
        "experts": experts,
        "topk": count_of(config, ("top_k_experts",)),
        "expert_ffn": count_of(config, EXPERT_FFN),
        "shared_ffn": count_of(config, FFN),
        "sparse_vectors": hidden + experts,
    }


def _full_layers(config: Config) -> dict[str, int]:
    """Return what a Gemma 4 says of its layers without a window: in a table of layers, or in keys of their own."""
    listed = config.get("per_layer_config")
    names = {"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"}
    own = {name: count_of(config, (key,)) for name, key in names.items() if key in config}
    if not flag_of(config, "attention_k_eq_v", False):
        own.pop("num_key_value_heads", None)
    tables = [dict(read_table("model.per_layer_config", one)) for one in (listed or {}).values()]
    if any(table != tables[0] or not set(table) <= set(names) for table in tables):
        raise SpecError("model.per_layer_config", "layers that differ", f"{' and '.join(names)} of full layers, alike")
    return {name: read_count(f"model.{name}", value) for name, value in tables[0].items()} if tables else own
