"""Single values of a Hugging Face config, under any of the names that families give them."""

from collections.abc import Mapping
from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers.values import MAX_COUNT, MAX_ENTRIES, read_count, read_flag, read_number, shown

Config = Mapping[str, Any]
Table = dict[str, Any]

LONGEST_SEQUENCE = 8192
"""What goes beyond it in a config is a context extended after training."""

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
FFN = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "dff")
VOCAB = ("vocab_size", "padded_vocab_size")
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length", "n_ctx")
DROPOUT = ("resid_pdrop", "hidden_dropout", "residual_dropout", "resid_dropout", "dropout")
ACTIVATION = ("hidden_activation", "hidden_act", "activation_function", "activation", "mlp_hidden_act")


def first_of(config: Config, keys: tuple[str, ...]) -> tuple[str, Any]:
    """Return the first of several keys that is stated, as the field of an error, and its value."""
    for key in keys:
        if key in config:
            return f"model.{key}", config[key]
    others = f" (or as {', '.join(keys[1:])})" if len(keys) > 1 else ""
    raise SpecError(f"model.{keys[0]}", None, f"a value{others}")


def count_of(config: Config, keys: tuple[str, ...], otherwise: int | None = None, high: int = MAX_COUNT) -> int:
    """Return the whole number under the first of several keys that is stated; further names for it count as read."""
    stated = [(f"model.{key}", config[key]) for key in keys if key in config]
    if not stated:
        if otherwise is None:
            first_of(config, keys)
        return otherwise or 0
    name, value = stated[0]
    return read_count(name, value, high=high)


def same_count_of(config: Config, keys: tuple[str, ...], otherwise: int | None = None, high: int = MAX_COUNT) -> int:
    """Return a whole number that may be written as a list with the same number for all layers."""
    single = {
        key: config[key][0] if isinstance(config[key], list) and _all_equal(config[key]) else config[key]
        for key in keys
        if key in config
    }
    return count_of(single, keys, otherwise, high)


def _all_equal(values: list[Any]) -> bool:
    return bool(values) and all(value == values[0] for value in values)


def flag_of(config: Config, key: str, otherwise: bool) -> bool:
    """Return the yes or no under a key."""
    return read_flag(f"model.{key}", config.get(key, otherwise))


def layers_of(config: Config) -> int:
    """Return how many layers there are: the number stated, else the length of the list of them."""
    key = "layers_block_type" if "layers_block_type" in config else "layer_types"
    listed = config.get(key) if LAYERS[0] not in config or key == "layers_block_type" else None
    known = len(listed) if isinstance(listed, list) else None
    return count_of(config, LAYERS, otherwise=known, high=MAX_ENTRIES)


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


def text_of(config: Config, key: str, otherwise: str) -> str:
    """Return the word under a key."""
    value = config.get(key, otherwise)
    if not isinstance(value, str):
        raise SpecError(f"model.{key}", shown(value), "a word")
    return value
