"""Which layers of a Hugging Face config attend to all, have a window, a state instead of attention, or experts."""

from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers.huggingface.values import Config, Table, count_of, first_of, flag_of, layers_of
from charllm.spec.readers.patterns import describe_mixers, describe_sparse
from charllm.spec.readers.values import read_choice, read_count, read_counts, shown

PATTERN = ("sliding_window_pattern", "_sliding_window_pattern", "layer_switch", "global_attn_every_n_layers")
ATTENTIONS = {
    "full_attention": "*",
    "attention": "*",
    "global": "*",
    "deepseek_sparse_attention": "*",
    "sliding_attention": "w",
    "chunked_attention": "w",
    "local": "w",
}
"""Word for a layer in a config: its letter in a model's mixers."""


def read_window(config: Config) -> Table:
    """Read a sliding window and which layers have it."""
    window = count_of(config, ("sliding_window", "window_size"), otherwise=0)
    used = flag_of(config, "use_sliding_window", True)
    if not window or not used:
        for key in ("layer_types", "max_window_layers", *PATTERN):
            config.get(key)
        return {}
    return describe_mixers(_window_letters(config), window)


def _window_letters(config: Config) -> str:
    layers = layers_of(config)
    if "layer_types" in config:
        for key in ("max_window_layers", *PATTERN):
            config.get(key)
        return read_words(config, "layer_types", ATTENTIONS)
    if any(key in config for key in PATTERN):
        return _repeat_pattern(config, layers)
    first = count_of(config, ("max_window_layers",), otherwise=0)
    return "".join("w" if index >= first else "*" for index in range(layers))


def _repeat_pattern(config: Config, layers: int) -> str:
    """Read a period with one full layer at its end, or letters: L local, G global."""
    name, pattern = first_of(config, PATTERN)
    for key in PATTERN:
        config.get(key)
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
        letters = pattern.replace("L", "w").replace("G", "*")
    else:
        letters = "w" * (min(max(1, read_count(name, pattern)), layers + 1) - 1) + "*"
    return "".join(letters[index % len(letters)] for index in range(layers))


def read_window_after_first(config: Config) -> Table:
    """Read windows where one layer in four, the first of them, has none."""
    window = count_of(config, ("sliding_window",), otherwise=0)
    letters = "".join("w" if index % 4 else "*" for index in range(layers_of(config)))
    if "layer_types" in config:
        letters = read_words(config, "layer_types", ATTENTIONS)
    return describe_mixers(letters, window) if window else {}


def read_gpt_neo_layers(config: Config) -> Table:
    """Read GPT-Neo's layers, which take turns: all tokens, the last ones."""
    layers = layers_of(config)
    config.get("attention_layers")
    turns = config.get("attention_types", [[["global", "local"], layers]])
    letters = ""
    for turn in turns if isinstance(turns, list) else ():
        if not (isinstance(turn, list) and len(turn) == 2 and isinstance(turn[0], list) and isinstance(turn[1], int)):
            raise SpecError("model.attention_types", shown(turn), "pairs of a list of kinds and a count")
        kinds = "".join(read_choice("model.attention_types", word, ATTENTIONS) for word in turn[0][:layers])
        letters += kinds * min(turn[1], layers)
    window = count_of(config, ("window_size",), otherwise=256)
    return describe_mixers((letters or "*" * layers)[:layers], window)


def read_words(config: Config, key: str, letters: dict[str, str]) -> str:
    """Read a list with one word for each layer, as letters."""
    words, layers = config[key], layers_of(config)
    if not isinstance(words, list) or len(words) != layers:
        raise SpecError(f"model.{key}", shown(words), f"a list of {layers} words, one for each layer")
    return "".join(read_choice(f"model.{key}", word, letters) for word in words)


def read_delta_layers(config: Config) -> Table:
    """Read layers of the gated delta rule between those of attention (Qwen3-Next, Qwen3.5)."""
    return {
        **describe_mixers(_linear_letters(config, "D")),
        "ssm_heads": count_of(config, ("linear_num_value_heads",)),
        "ssm_head_dim": count_of(config, ("linear_value_head_dim",)),
        "ssm_groups": count_of(config, ("linear_num_key_heads",)),
        "ssm_state": count_of(config, ("linear_key_head_dim",)),
        "ssm_conv": count_of(config, ("linear_conv_kernel_dim",)),
        "attention_gate": flag_of(config, "attn_output_gate", True),
    }


def read_lightning_layers(config: Config) -> Table:
    """Read layers of lightning attention between those of softmax attention (MiniMax)."""
    heads = count_of(config, ("num_attention_heads",))
    width = count_of(config, ("head_dim",), otherwise=count_of(config, ("hidden_size",)) // max(1, heads))
    return {
        **describe_mixers(_linear_letters(config, "L")),
        "ssm_heads": heads,
        "ssm_head_dim": width,
        "ssm_groups": heads,
        "ssm_state": width,
        "ssm_conv": 1,
    }


def _linear_letters(config: Config, letter: str) -> str:
    layers = layers_of(config)
    if "layer_types" in config:
        config.get("full_attention_interval")
        return read_words(config, "layer_types", {**ATTENTIONS, "linear_attention": letter})
    if "attn_type_list" in config:
        kinds = read_counts("model.attn_type_list", config["attn_type_list"])
        if len(kinds) != layers:
            raise SpecError("model.attn_type_list", f"{len(kinds)} entries", f"{layers}, one for each layer")
        return "".join("*" if kind else letter for kind in kinds)
    period = max(1, count_of(config, ("full_attention_interval",), otherwise=4))
    return "".join(letter if (index + 1) % period else "*" for index in range(layers))


def read_softmax_layers(config: Config) -> Table:
    """Read a list that may name layers of lightning attention, and names none as a rule (MiniMax-M2)."""
    kinds = config.get("attn_type_list", [])
    return {} if isinstance(kinds, list) and 0 not in kinds else read_lightning_layers(config)


def read_mamba_layers(config: Config) -> Table:
    """Read layers of Mamba-2 between those of attention, each with a feed-forward block (Bamba, Granite 4)."""
    layers = layers_of(config)
    words = {**ATTENTIONS, "mamba": "M", "linear_attention": "M"}
    listed = next((key for key in ("layer_types", "layers_block_type") if key in config), None)
    if listed:
        letters = read_words(config, listed, words)
    else:
        full = set(read_counts("model.attn_layer_indices", config.get("attn_layer_indices", [])))
        letters = "".join("*" if index in full else "M" for index in range(layers))
    heads = count_of(config, ("mamba_n_heads",))
    inner = count_of(config, ("mamba_expand",), otherwise=2) * count_of(config, ("hidden_size",))
    width: Any = config.get("mamba_d_head", "auto")
    return {
        **describe_mixers(letters),
        "ssm_heads": heads,
        "ssm_head_dim": inner // max(1, heads) if width == "auto" else read_count("model.mamba_d_head", width),
        "ssm_groups": count_of(config, ("mamba_n_groups",)),
        "ssm_state": count_of(config, ("mamba_d_state",)),
        "ssm_conv": count_of(config, ("mamba_d_conv",)),
    }


def read_chunked_layers(config: Config) -> Table:
    """Read Llama 4's layers: chunks where positions are rotated, all tokens where they are not."""
    layers = layers_of(config)
    chunk = count_of(config, ("attention_chunk_size",), otherwise=0)
    rotated = read_counts("model.no_rope_layers", config.get("no_rope_layers", []))
    every = max(1, count_of(config, ("no_rope_layer_interval",), otherwise=4))
    if "layer_types" in config:
        letters = read_words(config, "layer_types", ATTENTIONS)
    elif rotated:
        letters = "".join("w" if one else "*" for one in rotated[:layers])
    else:
        letters = "".join("w" if (index + 1) % every else "*" for index in range(layers))
    if not chunk or len(letters) != layers:
        return {}
    return {**describe_mixers(letters, chunk), "window_kind": "chunked"}


def read_sparse_layers(config: Config) -> Table:
    """Read which layers have experts."""
    return describe_sparse(_sparse_letters(config))


def _sparse_letters(config: Config) -> str:
    """Apply each rule that a config states; they are written as transformers and the models' own code apply them."""
    layers = layers_of(config)
    if "mlp_layer_types" in config:
        config.get("first_k_dense_replace"), config.get("moe_layer_freq")
        return read_words(config, "mlp_layer_types", {"dense": "-", "sparse": "E"})
    listed = _listed_layers(config)
    if listed is not None:
        config.get("interleave_moe_layer_step")
        return "".join("E" if index in listed else "-" for index in range(layers))
    dense = set(read_counts("model.mlp_only_layers", config.get("mlp_only_layers", [])))
    first = count_of(config, ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"), otherwise=0)
    last = config.get("moe_layer_end_index", -1)
    end = layers - 1 if last == -1 else read_count("model.moe_layer_end_index", last)
    step = count_of(config, ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"), otherwise=1)
    frequency = _frequency(config, layers)
    return "".join(
        "E" if first <= index <= end and index not in dense and step and not (index + 1) % step and frequency[index]
        else "-"
        for index in range(layers)
    )  # fmt: skip


def _listed_layers(config: Config) -> set[int] | None:
    if "moe_layers" in config:
        return set(read_counts("model.moe_layers", config["moe_layers"]))
    text = config.get("moe_layers_enum")
    if not isinstance(text, str) or not text.replace(",", "").replace(" ", "").isdigit() or len(text) > 20_000:
        return None
    return {int(part) for part in text.split(",") if part.strip()}


def _frequency(config: Config, layers: int) -> list[bool]:
    """Read `moe_layer_freq`: a period that begins with a sparse layer, or a list of all layers."""
    value = config.get("moe_layer_freq", 1)
    if isinstance(value, list):
        listed = read_counts("model.moe_layer_freq", value)
        if len(listed) != layers:
            raise SpecError("model.moe_layer_freq", f"{len(listed)} entries", f"{layers}, one for each layer")
        return [bool(one) for one in listed]
    period = max(1, read_count("model.moe_layer_freq", value))
    return [index % period == 0 for index in range(layers)]
