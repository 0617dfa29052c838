"""A Hugging Face ``config.json`` as a model table."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from charllm.errors import SpecError, unknown_name
from charllm.spec.readers.huggingface.families import FAMILIES, GATED, HYBRIDS, PLAIN, Family
from charllm.spec.readers.huggingface.parts import (
    ACTIVATION,
    FFN,
    HEADS,
    HIDDEN,
    KV_HEADS,
    Config,
    Table,
    count_of,
    first_of,
    flag_of,
    layers_of,
    read_dropout,
    read_sequence,
)
from charllm.spec.readers.values import MAX_TEXT, read_choice, read_table, shown


def read_hf_config(config: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the model table that a config.json describes, or raise SpecError naming the wrong key."""
    stated = _text_part(config)
    family = _find_family(stated)
    config = {**family.defaults, **stated}
    hidden, heads = count_of(config, HIDDEN), count_of(config, HEADS)
    table = {
        "name": _name(config, path),
        "layers": layers_of(config),
        "hidden": hidden,
        "ffn": count_of(config, FFN, otherwise=hidden * family.ffn_over_hidden or None),
        "heads": heads,
        "kv_heads": count_of(config, KV_HEADS, otherwise=heads),
        "vocab": count_of(config, ("vocab_size",)),
        "activation": read_choice(*first_of(config, ACTIVATION), GATED if family.gated else PLAIN),
        **family.features,
    }
    if "head_dim" in config:
        table["head_dim"] = count_of(config, ("head_dim",))
    for part in family.parts:
        table.update(part(config))
    table["tied_embeddings"] = flag_of(config, "tie_word_embeddings", table["tied_embeddings"])
    return {**table, **read_dropout(config), **read_sequence(config, table["position"])}


def _text_part(config: Any) -> Table:
    """Return what is stated about the language model; in a multimodal config that is a part of it."""
    whole = read_table("model", config)
    text = read_table("model.text_config", whole.get("text_config"))
    shared = ("model_type", "tie_word_embeddings", "_name_or_path")
    part = {**{key: whole.get(key) for key in shared}, **text} if text else whole
    return {key: value for key, value in part.items() if value is not None}


def _find_family(config: Config) -> Family:
    asked = config.get("model_type")
    if not isinstance(asked, str):
        raise SpecError("model.model_type", asked and shown(asked), f"one of {', '.join(FAMILIES)}")
    if asked in HYBRIDS:
        possible = "a transformer or nemotron_h: other recurrent and linear-attention layers are not modelled"
        raise SpecError("model.model_type", asked, possible)
    if asked not in FAMILIES:
        raise unknown_name("model.model_type", asked[:MAX_TEXT], FAMILIES)
    return FAMILIES[asked]


def _name(config: Config, path: str) -> str:
    """Name the model as its config does, else after its file, or its folder when the file says nothing."""
    stated = config.get("_name_or_path")
    file = PurePath(path)
    candidates = (
        PurePath(stated).name if isinstance(stated, str) else "",
        file.parent.name if file.stem == "config" else file.stem,
        config["model_type"],
    )
    return next(name[:MAX_TEXT] for name in candidates if name)
