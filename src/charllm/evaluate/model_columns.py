"""The model of a published row: from the catalog by its name, else from the row's own dimension columns.

A name says what was trained and, in brackets or after it, how: ``Mixtral-8x22B (tokendrop)``, ``DeepSeekV3 w/o MTP``,
``Llama 3.1 405B proxy (truncated layers)``. A model whose name is unknown takes its dimensions from the columns and
what they leave out (latent attention, shared experts, norms) from the member of its family that is nearest in size.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import takewhile
from math import log
from typing import Any

from charllm.catalog.tables import aliases, entries, find_name
from charllm.evaluate.spellings import Row, find_pattern, needed, read_real, read_whole, unresolved
from charllm.spec.request import Table
from charllm.units import GIGA

DIMENSIONS = ("layers", "hidden", "heads", "kv_heads", "vocab", "experts", "topk")
NEEDED_DIMENSIONS = ("layers", "hidden", "heads")
RUN_WORDS = re.compile(
    r"\b(q?lora|sft|peft|pre-?train(ing)?|fine-?tun(e|ed|ing)|proxy|truncated|variant|baseline|golden|base|instruct|chat"
    r"|hf|meta|nvidia|model|token-?drop(less|ped)?|dropless|capacity|cef|(tp|pp|dp|ep|cp|l|mbc|mbs|gbs|seq|bs)\d+"
    r"|(w/o?|with|without|no)[ -]*(\d+ )?mtp( layers?)?|mtp|to \d+ layers?|\d+[- ]layers?|v0\.\d|a2a|natural|forced)\b"
)
"""Words of a name that say how a model was run, not which one it is."""
OTHER_MODEL = re.compile(r".*\d[bm]|lite|mini|nano|tiny|small|large|next|flash|pro|max|vl|v\d.*")
"""Last words of a name that make it another model: a size, a variant, a version."""
OLD_FAMILIES = ("gpt", "opt", "bloom", "mpt", "pythia", "megatron", "turing", "mt-nlg", "palm", "falcon")
"""Families with a plain GELU block and LayerNorm; all others are taken to have SwiGLU, RMSNorm and rotary positions."""
OLD_FORM = {"activation": "gelu", "norm": "layernorm", "bias": "all"}
USUAL_VOCAB, USUAL_HEAD_DIM, LATENT_MODEL = 131_072, 128, "deepseek-v3"
SHARED_STEP, LEAST_SHARED, MOST_SHARED = 256, 0.03, 0.3
"""Widths of shared experts are multiples of the first; shares of all weights between which they are believed."""


def read_model(row: Row) -> Table:
    """Return the model of a row as a request, or raise Unresolved."""
    name = find_model(row.get("model", ""))
    table = _over_catalog(row, name) if name else _from_columns(row)
    table.update(_said_by_name(row))
    if _form(table).get("position") == "learned":
        table["seq_length"] = needed(row, "seq")
    layers = table.get("layers", _form(table).get("layers"))
    if _form(table).get("dense_layers", 0) > layers:
        table["dense_layers"] = 0
    return table


def model_value(table: Mapping[str, Any], field: str, default: Any = None) -> Any:
    """Return a field of a model request: its own, else its base's."""
    return table[field] if field in table else _form(table).get(field, default)


def _form(table: Mapping[str, Any]) -> Mapping[str, Any]:
    return entries("models")[table["base"]].values if "base" in table else {}


def find_model(asked: str) -> str | None:
    """Return the catalog's model of a name as publications write it, or None."""
    if not asked.strip():
        return None
    special = find_pattern("models", asked)
    if special:
        return str(special)
    words = plain_name(asked).split()
    found = (
        find_name("models", asked)
        or find_name("models", " ".join(words))
        or _known_names().get(_squash("".join(words)))
    )
    while not found and len(words) > 1 and not OTHER_MODEL.fullmatch(words.pop()):
        found = _known_names().get(_squash("".join(words)))
    return found


@lru_cache(maxsize=4096)
def plain_name(asked: str) -> str:
    """Drop what a name says in brackets and of the run: ``Kimi_K2 (tokendrop)`` is ``kimi k2``."""
    text = re.sub(r"[(\[{].*?([)\]}]|$)", " ", asked.lower())
    text = re.sub(r"^.*/(?=\w{3})", "", text)
    # Words first: an underscore is a letter to a regular expression.
    text = RUN_WORDS.sub(" ", text.replace("_", " "))
    text = re.sub(r"\b(llama)[ -]?3\.[13]\b", r"\g<1>3", text)
    return " ".join(text.replace("-", " ").split())


def _squash(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


@lru_cache(maxsize=1)
def _known_names() -> Mapping[str, str]:
    """Return every catalog model by its name without separators; sizes after a unique name may be written, too."""
    spelled = {alias: name for alias, name in aliases().get("models", {}).items() if "*" not in alias}
    known = {_squash(alias): name for alias, name in (*spelled.items(), *((name, name) for name in entries("models")))}
    known |= {_squash(plain_name(alias)): name for alias, name in spelled.items()}
    for name, entry in entries("models").items():
        size = entry.values.get("stated_params")
        if size and not re.search(r"\d+b", name):
            known.setdefault(f"{_squash(name)}{round(size / GIGA)}b", name)
    return known | {"grok1314b": "grok-1", "deepseekr1": "deepseek-v3"}


def prints_dimensions(row: Row) -> bool:
    """Tell whether the row has dimension columns of its own."""
    return any(row.get(column, "").strip() for column in DIMENSIONS)


def _over_catalog(row: Row, name: str) -> Table:
    """Lay the row's dimensions over the catalog's model; a sparse row's ffn is one expert's width."""
    base = entries("models")[name].values
    filled_in = find_pattern("filled_in", row.get("source", "")) or ()
    stated = (column for column in DIMENSIONS if column not in filled_in)
    changes: Table = {column: value for column in stated if (value := read_whole(row, column))}
    changes["layers"] = _layers(row, base)
    if (ffn := read_whole(row, "ffn")) is not None:
        changes["expert_ffn" if base.get("experts") else "ffn"] = ffn
    hidden, heads = changes.get("hidden", base["hidden"]), changes.get("heads", base["heads"])
    if hidden % heads and base.get("attention") != "mla" and "head_dim" not in base:
        changes["heads"] = changes["kv_heads"] = _possible_heads(hidden, heads, read_whole(row, "tp") or 1)
    changes = {key: value for key, value in changes.items() if base.get(key) != value}
    if {"hidden", "heads"} & set(changes) and base.get("attention") != "mla":
        changes["head_dim"] = changes.get("hidden", base["hidden"]) // changes.get("heads", base["heads"])
    if "heads" in changes and "kv_heads" not in changes and "kv_heads" not in base:
        changes["kv_heads"] = changes["heads"]
    return {"base": name, **changes}


def _layers(row: Row, base: Mapping[str, Any]) -> int:
    """Count layers: as printed, else what the weights of a dense model leave beside its vocabulary, 12 h^2 each.

    A row that prints no dimensions at all has those of the catalog's model, or as many layers as its name says.
    """
    said = _said_layers(row)
    if not prints_dimensions(row):
        return said or int(base["layers"])
    printed, hidden, ffn = (read_whole(row, column) for column in ("layers", "hidden", "ffn"))
    size = read_real(row, "params_b")
    if printed or said:
        return printed or said or 0
    if not (hidden and size and ffn == 4 * hidden) or read_whole(row, "experts"):
        return needed(row, "layers")
    pp = read_whole(row, "pp") or 1
    counted = (size * GIGA - (read_whole(row, "vocab") or 0) * hidden) / (12 * hidden**2)
    return max(pp, pp * round(counted / pp))


def _possible_heads(hidden: int, heads: int, tp: int) -> int:
    """Printed heads that do not divide the width cannot be what ran: take the nearest that can."""
    possible = [count for count in range(tp, hidden // 8 + 1, tp) if hidden % count == 0 and hidden // count % 8 == 0]
    return min(possible, key=lambda count: abs(count - heads), default=heads)


def _from_columns(row: Row) -> Table:
    """Describe an unknown model by its columns, the rest by the nearest member of its family."""
    name = row.get("model", "").strip()
    absent = [column for column in NEEDED_DIMENSIONS if not row.get(column, "").strip()]
    if "layers" in absent and _said_layers(row):
        absent.remove("layers")
    if absent or not name:
        raise unresolved("model", name, f"a name in the catalog, or the columns {', '.join(absent or ('model',))}")
    dims: Table = {column: value for column in DIMENSIONS if (value := read_whole(row, column))}
    dims["layers"] = dims.get("layers") or _said_layers(row)
    near = nearest_relative(name, dims) or (LATENT_MODEL if _looks_latent(dims) else None)
    base = entries("models")[near].values if near else {}
    latent = base.get("attention") == "mla"
    ffn = read_whole(row, "ffn")
    if dims.get("experts"):
        dims["topk"] = dims.get("topk") or base.get("topk") or 1
        dims["expert_ffn"] = ffn or base.get("expert_ffn") or 4 * dims["hidden"]
        dims.setdefault("ffn", base.get("ffn") or dims["expert_ffn"])
    else:
        dims["ffn"] = ffn or 4 * dims["hidden"]
    if not latent:
        heads = dims["heads"]
        dims.setdefault("kv_heads", heads if heads % base.get("kv_heads", heads) else base.get("kv_heads", heads))
        if not base.get("head_dim") or dims["hidden"] % heads == 0:
            dims["head_dim"] = base.get("head_dim") or _head_dim(dims)
    elif base.get("kv_heads"):
        dims["kv_heads"] = dims["heads"]
    if near:
        return {"base": near, **dims, "name": _short(name), "mtp_layers": 0}
    old = re.search(rf"\b({'|'.join(OLD_FAMILIES)})", name.lower())
    dims.setdefault("vocab", USUAL_VOCAB)
    if dims.get("experts") and not old and (shared := _shared_width(dims, read_real(row, "params_b"))):
        dims["shared_ffn"] = shared
    return {**(OLD_FORM if old else {}), **dims, "name": _short(name)}


def _looks_latent(dims: Mapping[str, int]) -> bool:
    """Tell whether a sparse model has heads narrower than any kernel's, all with keys of their own: latent attention.

    Source: DeepSeek-V2 and V3, Kimi K2, LongCat-Flash: 40 to 112 a head by their widths, 192 in their queries.
    """
    narrow = dims["hidden"] < dims["heads"] * USUAL_HEAD_DIM
    return bool(dims.get("experts")) and narrow and dims.get("kv_heads", dims["heads"]) == dims["heads"]


def _head_dim(dims: Mapping[str, int]) -> int:
    """Return the width of a head: the model's over its heads, but 128 in sparse models with few key-value heads.

    Source: their heads together are wider than the model in Qwen3, GLM-4.5 and MiniMax-M2, 128 each.
    """
    even = dims["hidden"] // dims["heads"]
    grouped = dims.get("experts") and dims["kv_heads"] < dims["heads"]
    return max(even, USUAL_HEAD_DIM) if grouped else even


def _shared_width(dims: Mapping[str, int], size_b: float | None) -> int:
    """Return the width of a shared expert that accounts for the weights a stated size has beyond the columns', or 0.

    Gated experts, attention and two vocabularies are counted; a few per cent may be anything else.
    """
    if not size_b:
        return 0
    hidden, head_dim = dims["hidden"], dims["head_dim"]
    experts = 3 * hidden * dims["expert_ffn"] * dims["experts"]
    attention = 2 * hidden * head_dim * (dims["heads"] + dims["kv_heads"])
    missing = size_b * GIGA - dims["layers"] * (experts + attention) - 2 * dims["vocab"] * hidden
    width = round(missing / (dims["layers"] * 3 * hidden) / SHARED_STEP) * SHARED_STEP
    return width if LEAST_SHARED < missing / (size_b * GIGA) < MOST_SHARED else 0


def _short(name: str) -> str:
    return name[:200]


def family_of(name: str) -> str:
    """Return the first word of a name without version and size: ``qwen3-30b-a3b`` is of ``qwen``."""
    found = re.match(r"[a-z]+(?:[ -]?(?:oss|neox))?", plain_name(name))
    return re.sub(r"[ -]", "", found[0]) if found else ""


def nearest_relative(name: str, dims: Mapping[str, int]) -> str | None:
    """Return the catalog's model of the same family, dense or sparse alike, that is nearest in name and width."""
    family, sparse = family_of(name), bool(dims.get("experts"))
    related = {
        other: entry.values
        for other, entry in entries("models").items()
        if family and family_of(other) == family and not entry.values.get("pattern")
    }
    alike = {other: values for other, values in related.items() if bool(values.get("experts")) == sparse}

    def distance(other: str) -> float:
        values = alike[other]
        shared_letters = len(_common_prefix(_squash(plain_name(name)), _squash(other)))
        size = abs(log(dims["hidden"] / values["hidden"])) + 0.1 * abs(log(dims["layers"] / values["layers"]))
        return size - 0.2 * shared_letters

    return min(alike, key=distance, default=None)


def _common_prefix(one: str, other: str) -> str:
    equal = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return "".join(letter for letter, _ in equal)


def _said_layers(row: Row) -> int | None:
    """Return the layers that a name states: ``4-layer proxy``, ``truncated to 2 layers``, ``llama3_70b_l12_tp2``."""
    found = re.search(r"(\d+)[- ]layers?\b|(?:^|[_ -])l(\d+)(?=[_ -]|$)", row.get("model", "").lower())
    return int(found[1] or found[2]) if found else None


def _said_by_name(row: Row) -> Table:
    """Return what a name says of multi-token prediction and of tied embeddings."""
    text = row.get("model", "").lower()
    said: Table = {}
    if re.search(r"(w/o|without|no|-)[ -]*mtp", text):
        said["mtp_layers"] = 0
    elif found := re.search(r"(?:w/|with|\+)[ -]*(\d+)?[ -]*mtp", text):
        said["mtp_layers"] = int(found[1] or 1)
    if re.search(r"\buntied\b", text):
        said["tied_embeddings"] = False
    return said


def drops_tokens(text: str) -> bool | None:
    """Tell whether a text says that tokens are dropped; None where it says nothing. Dropless contains drop."""
    lowered = text.lower()
    if re.search(r"drop[- ]?less|no[- ]token[- ]?drop|without (token )?drop", lowered):
        return False
    return True if re.search(r"token[- ]?drop|drop(ped|ping)?[- ]tokens?", lowered) else None
