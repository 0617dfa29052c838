"""A Hugging Face ``config.json`` as a model table."""

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from charllm.errors import SpecError, unknown_name
from charllm.spec.readers.huggingface.defaults import PART_DEFAULTS
from charllm.spec.readers.huggingface.families import FAMILIES, GATED, PLAIN, Family
from charllm.spec.readers.huggingface.keys import KNOWN
from charllm.spec.readers.huggingface.parts import EXPERTS, TOPK
from charllm.spec.readers.huggingface.refused import REFUSED
from charllm.spec.readers.huggingface.values import (
    ACTIVATION,
    FFN,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    VOCAB,
    Config,
    Table,
    count_of,
    first_of,
    flag_of,
    layers_of,
    read_dropout,
    read_sequence,
)
from charllm.spec.readers.json_lines import key_lines
from charllm.spec.readers.ledger import Ledger, sort_unread
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.values import MAX_TEXT, read_choice, read_table, shown

TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where multimodal configs keep their language model."""


def read_hf_config(config: Mapping[str, Any], path: str, text: str = "") -> Reading:
    """Return the model that a config.json describes, or raise SpecError naming the wrong key.

    `text` is the file as it is written, to say on which lines settings stand that are not used.
    """
    whole = Ledger(read_table("model", config))
    part, above = _text_part(whole)
    table = _read_model(part, path, inside=bool(above))
    _check_head(whole)
    lines = key_lines(text)
    found = [sort_unread(part, KNOWN, lines, above)]
    if above:
        found.append(sort_unread(whole, KNOWN, lines))
    unknown, missing = (tuple(setting for unread in found for setting in unread[index]) for index in (0, 1))
    return Reading({"model": table}, unknown, missing)


def _check_head(whole: Ledger) -> None:
    """Refuse an architecture that is no language model: its head, or what it drafts for, has other weights."""
    named = whole.get("architectures", [])
    for name in named if isinstance(named, list) else ():
        if _OTHER_HEAD.search(str(name)):
            raise SpecError("model.architectures", shown(name)[:MAX_TEXT], "a language model with its own head")


_OTHER_HEAD = re.compile(r"Draft|Eagle|Medusa|For(?:Sequence|Token)Classification|ForReward|RewardModel|DFlash|DSpark")


def _text_part(whole: Ledger) -> tuple[Ledger, str]:
    """Return the language model of a multimodal config and the path to it; else all of the config."""
    for key in TEXT_PARTS:
        if key in whole:
            read_table(f"model.{key}", whole.get(key))
            part, above = whole.take(key), f"{key}."
            if part is not None and len(part):
                inner = part.take("text_config")
                shared = {name: whole[name] for name in ("tie_word_embeddings", "_name_or_path") if name in whole}
                outer = whole.get("model_type")
                return (inner or part).over({"model_type": outer, **shared}), above + ("text_config." if inner else "")
    return whole, ""


def _read_model(config: Ledger, path: str, *, inside: bool) -> Table:
    family, model_type = _find_family(config)
    shared = {key: config.get(key) for key in ("tie_word_embeddings", "_name_or_path", "model_type")}
    defaults = {**family.defaults, **(PART_DEFAULTS.get(model_type, {}) if inside else {}), **shared}
    config = config.over({key: value for key, value in defaults.items() if value is not None})
    hidden, heads = count_of(config, HIDDEN), count_of(config, HEADS)
    wide = hidden * family.ffn_over_hidden or None
    table = {
        "name": _name(config, path),
        "layers": layers_of(config),
        "hidden": hidden,
        # Where all layers are sparse, only the width of an expert may be stated.
        "ffn": count_of(config, FFN if family.ffn_over_hidden else (*FFN, "moe_intermediate_size"), otherwise=wide),
        "heads": heads,
        "kv_heads": count_of(config, KV_HEADS, otherwise=heads),
        "vocab": count_of(config, VOCAB),
        "activation": read_choice(*first_of(config, ACTIVATION), GATED if family.gated else PLAIN),
        **family.features,
    }
    if any(key in config for key in HEAD_DIM):
        table["head_dim"] = count_of(config, HEAD_DIM)
    for part in family.parts:
        table.update(part(config))
    if ("moe" in model_type or any(key in config for key in TOPK)) and not any(key in config for key in EXPERTS):
        raise SpecError(f"model.{EXPERTS[0]}", None, f"how many experts there are (or as {', '.join(EXPERTS[1:])})")
    table["tied_embeddings"] = flag_of(config, "tie_word_embeddings", table["tied_embeddings"])
    return {**table, **read_dropout(config), **read_sequence(config, table["position"])}


def _find_family(config: Config) -> tuple[Family, str]:
    asked = config.get("model_type")
    if not isinstance(asked, str):
        raise SpecError("model.model_type", asked and shown(asked), f"one of {', '.join(FAMILIES)}")
    if asked in REFUSED:
        raise SpecError("model.model_type", asked, f"a type that is modelled; not modelled here: {REFUSED[asked]}")
    name = _spelled(asked)
    if name not in FAMILIES:
        raise unknown_name("model.model_type", asked[:MAX_TEXT], FAMILIES)
    return FAMILIES[name], name


def _spelled(asked: str) -> str:
    """Find a type that is spelled in other letters, or after the multimodal model around it."""
    name = asked if asked in FAMILIES else asked.lower()
    if name not in FAMILIES and f"{name}_text" in FAMILIES:
        return f"{name}_text"
    return name


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
