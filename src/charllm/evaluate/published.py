"""A row of published training results as a request: names through the alias tables, blanks as a user leaves them."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from math import gcd
from typing import Any

from charllm.catalog.tables import aliases, entries, find_name, spell
from charllm.errors import CharllmError
from charllm.spec.request import Table
from charllm.spec.training import PRECISIONS, RECOMPUTE_MODULES
from charllm.units import GIGA

Row = Mapping[str, str]

DIMENSIONS = ("layers", "hidden", "heads", "kv_heads", "vocab", "experts", "topk")
USUAL_MICROBATCHES = 16
"""Microbatches of a replica where a row gives its rate and microbatch but no batch: ends of a step weigh a few %."""
DEGREES = ("tp", "pp", "cp", "ep", "dp")
OVERLAP_WORDS = {
    "tp comm": ("tp",),
    "tp-comm-overlap": ("tp",),
    "asynctp": ("tp",),
    "overlap-grad-reduce": ("dp",),
    "overlap-param-gather": ("dp",),
    "overlap_comm=true": ("dp",),
    "grad/param comm overlapped": ("dp",),
    "overlap_grad_reduce on": ("dp",),
    "param-gather overlapped": ("dp",),
    "pp p2p": ("pp",),
    "ep overlap on": ("ep",),
    "ep comm overlap": ("ep",),
    "a2a_overlap=1": ("ep",),
}
"""Words of the `overlap` column: the axes they mean."""

SOFTWARE_WORDS: dict[str, tuple[str, Any]] = {
    "alltoall dispatcher": ("dispatcher", "each-expert"),
    "deepep": ("dispatcher", "each-rank"),
    "hybridep": ("dispatcher", "each-rank"),
    "syncfree": ("sparse_sync", False),
    "lossfusion": ("cross_entropy", "fused"),
    "-baseline": ("cross_entropy", "vocab-parallel"),
}
"""Words of the `overlap` column: the framework's choice they mean."""
LADDER = ("lossfusion", "deepep", "syncfree", "launchopt")
"""Steps of a source that adds one to those before it: ``Pre+DeepEP`` has its fused loss, too."""

DEFAULT_FABRICS = {
    "v100": "ib-8x100g",
    "a100": "ib-8x200g",
    "gb300": "ib-4x800g",
    "gb200": "ib-4x400g",
    "gh200": "slingshot-4x200g",
}
"""GPU family: the fabric its makers' reference machines have, where a row names none."""


class Unresolved(CharllmError):
    """A row that cannot be read: its message is the reason it is skipped."""


def read_row(row: Row) -> Table:
    """Turn one row into a request, or raise Unresolved with the reason.

    Measured columns are not read; of the notes only which column is assumed.
    """
    gpu = _resolve("gpus", row, "gpu")
    framework = _resolve("frameworks", _with_round(row), "framework")
    return {
        "model": _model(row),
        "cluster": _cluster(row, gpu),
        "framework": _framework(row, framework, gpu),
        "parallelism": _parallelism(row),
        "training": _training(row, framework, gpu),
    }


def _with_round(row: Row) -> Row:
    """Name the round of MLPerf, which is the release of its software, beside the framework."""
    found = re.search(r"training_results_(v[0-9.]+)", row.get("source", ""))
    named = row.get("framework", "")
    return {**row, "framework": f"{named} {found[1]}"} if found and "MLPerf" in named else row


def _framework(row: Row, name: str, gpu: str) -> Any:
    """Lay over the framework what the row's `overlap` column says of its execution, or else what its recipes do."""
    if _is_composed(row):
        return {"base": name, "composed": True}
    overlap = _spelled_out(row.get("overlap", "").lower())
    said = {field: value for word, (field, value) in SOFTWARE_WORDS.items() if word in overlap}
    if "graph" in overlap or _experts(row):
        said.update(_captured(overlap, recipe(row, name, gpu)))
    return {"base": name, **said} if said else name


def _spelled_out(overlap: str) -> str:
    """Name the steps that a step of a ladder stands on."""
    step = overlap.removeprefix("pre+")
    below = [word for word in LADDER if step.startswith(word) and overlap != step]
    return " ".join(LADDER[: LADDER.index(below[0]) + 1]) if below else overlap


def _captured(overlap: str, usual: frozenset[str]) -> Table:
    """Return which launches are captured: as the row says; the recipe's, where it does not speak of experts."""
    if "full-iteration" in overlap:
        captured = {"graphs"} | (usual & {"fused_experts"})
    elif re.search("graph.*(moe|attn)", overlap):
        captured = {"partial_graphs"}
    elif "graph" in overlap:
        captured = set(usual) or {"partial_graphs"}
    elif re.search("dispatcher|ep comm overlap|ep overlap", overlap):
        captured = {"none"}
    else:
        captured = set(usual)
    if not captured:
        return {}
    return {field: field in captured for field in ("graphs", "partial_graphs", "fused_experts")}


def recipe(row: Row, framework: str, gpu: str) -> frozenset[str]:
    """Return what the public recipes of a release set for sparse models on this GPU, in this format; or for hybrids."""
    hybrid = " hybrid" if _base(row).get("pattern") else ""
    asked = spell(f"{framework} {gpu} {_precision(row)}{hybrid}")
    found = (words for pattern, words in aliases()["recipes"].items() if fnmatchcase(asked, pattern))
    return frozenset(next(found, "").split())


def _is_composed(row: Row) -> bool:
    """Tell whether the row's source adds its times up from profiled layers."""
    return find_name("times", row.get("source", "")) == "composed"


def _is_assumed(row: Row, column: str) -> bool:
    """Tell whether the notes call what a column says assumed: its source left it blank."""
    return re.search(rf"\b{column} \S+ assumed\b", row.get("notes", "")) is not None


def _resolve(kind: str, row: Row, column: str) -> str:
    asked = row.get(column, "")
    name = find_name(kind, asked) if asked else None
    if name is None:
        raise Unresolved(f"{column} {asked!r} is not known" if asked else f"no {column} given")
    return name


def _number(row: Row, column: str) -> int | None:
    text = row.get(column, "").strip()
    if not text:
        return None
    try:
        return int(float(text))
    except ValueError:
        return None


def _needed(row: Row, column: str) -> int:
    value = _number(row, column)
    if value is None:
        raise Unresolved(f"no {column} given")
    return value


def _base(row: Row) -> Mapping[str, Any]:
    """Return the catalog's entry of the row's model."""
    return entries("models")[_resolve("models", row, "model")].values


def _experts(row: Row) -> int:
    """Count experts: as printed, else the catalog's where the row prints no dimensions."""
    printed = _number(row, "experts")
    return printed or 0 if _prints_dimensions(row) else int(_base(row).get("experts", 0))


def _prints_dimensions(row: Row) -> bool:
    return any(row.get(column, "").strip() for column in DIMENSIONS)


def _model(row: Row) -> Table:
    """Lay the row's dimensions over the catalog's model; a sparse row's ffn is one expert's width."""
    name, base = _resolve("models", row, "model"), _base(row)
    told = (column for column in DIMENSIONS if not _is_assumed(row, column))
    changes: Table = {column: value for column in told if (value := _number(row, column)) is not None}
    changes["layers"] = _layers(row)
    ffn = _number(row, "ffn")
    if ffn is not None:
        changes["expert_ffn" if base.get("experts") else "ffn"] = ffn
    hidden, heads = changes.get("hidden", base["hidden"]), changes.get("heads", base["heads"])
    if hidden % heads and base.get("attention") != "mla" and "head_dim" not in base:
        changes["heads"] = changes["kv_heads"] = _possible_heads(hidden, heads, _number(row, "tp") or 1)
    changes = {key: value for key, value in changes.items() if base.get(key) != value}
    if {"hidden", "heads"} & set(changes) and base.get("attention") != "mla":
        changes["head_dim"] = changes.get("hidden", base["hidden"]) // changes.get("heads", base["heads"])
    if "heads" in changes and "kv_heads" not in changes and "kv_heads" not in base:
        changes["kv_heads"] = changes["heads"]
    if base.get("position") == "learned":
        changes["seq_length"] = _needed(row, "seq")
    layers = changes.get("layers", base["layers"])
    if base.get("dense_layers", 0) > layers:
        changes["dense_layers"] = 0
    return {"base": name, **changes}


def _layers(row: Row) -> int:
    """Count layers: as printed, else what the weights of a dense model leave beside its vocabulary, 12 h^2 each.

    A row that prints no dimensions at all has those of the catalog's model.
    """
    if not _prints_dimensions(row):
        return int(_base(row)["layers"])
    printed, hidden, ffn, params = (_number(row, name) for name in ("layers", "hidden", "ffn", "params_b"))
    if printed is not None or not (hidden and params and ffn == 4 * hidden) or _number(row, "experts"):
        return printed if printed is not None else _needed(row, "layers")
    pp = _number(row, "pp") or 1
    counted = (float(row["params_b"]) * GIGA - (_number(row, "vocab") or 0) * hidden) / (12 * hidden**2)
    return max(pp, pp * round(counted / pp))


def global_batch(row: Row) -> int:
    """Return the sequences of a step: as printed, else enough microbatches that a step's ends weigh little."""
    printed = _number(row, "gbs")
    if printed is not None:
        return printed
    if not row.get("mbs", "").strip() or not row.get("seq", "").strip():
        raise Unresolved("no gbs given")
    tp, pp, cp, mbs = (_number(row, name) or 1 for name in ("tp", "pp", "cp", "mbs"))
    replicas = _number(row, "dp") or _needed(row, "n_gpus") // (tp * pp * cp)
    return replicas * mbs * max(USUAL_MICROBATCHES, 4 * pp)


def _possible_heads(hidden: int, heads: int, tp: int) -> int:
    """Printed heads that do not divide the width cannot be what ran: take the nearest that can."""
    possible = [count for count in range(tp, hidden // 8 + 1, tp) if hidden % count == 0 and hidden // count % 8 == 0]
    return min(possible, key=lambda count: abs(count - heads), default=heads)


def _cluster(row: Row, gpu: str) -> Table:
    gpus = _needed(row, "n_gpus")
    node = _node_of(gpu, _number(row, "gpus_per_node"))
    per_node = int(entries("nodes")[node].values["gpus"])
    if gpus < per_node:
        shape: Any = {"base": node, "gpus": gpus, "upstream": []}
        nodes = 1
    elif gpus % per_node:
        raise Unresolved(f"n_gpus {gpus} is not a multiple of the {per_node} GPUs of {node}")
    else:
        shape, nodes = node, gpus // per_node
    fabric = _fabric(row, gpu) if nodes > 1 else "none"
    domain = 18 if gpu in ("gb200", "gb300") else 1
    return {
        "name": f"{gpu}x{gpus}",
        "node": shape,
        "nodes": nodes,
        "fabric": fabric,
        "domain_nodes": min(domain, nodes),
    }


def _node_of(gpu: str, gpus_per_node: int | None) -> str:
    """Return the catalog's node with this GPU: of the asked size, else its usual one (the largest)."""
    fitting = {name: entry.values for name, entry in entries("nodes").items() if entry.values.get("gpu") == gpu}
    if not fitting:
        raise Unresolved(f"no node with {gpu} is known")
    asked = [name for name, values in fitting.items() if values["gpus"] == gpus_per_node]
    return asked[0] if asked else max(fitting, key=lambda name: fitting[name]["gpus"])


def _fabric(row: Row, gpu: str) -> str:
    asked = row.get("interconnect", "")
    if not asked:
        family = next((name for name in DEFAULT_FABRICS if gpu.startswith(name)), "")
        return DEFAULT_FABRICS.get(family, "ib-8x400g")
    name = _resolve("fabrics", row, "interconnect")
    if name == "none":
        return "ib-8x400g"
    # One spelling is used for both generations of the rack; the newer one has twice the NIC.
    return "ib-4x800g" if gpu == "gb300" and name == "ib-4x400g" else name


def _parallelism(row: Row) -> Table:
    table: Table = {axis: value for axis in DEGREES if (value := _number(row, axis)) is not None}
    table.update(_expert_ranks(row, table))
    vpp = _number(row, "vpp")
    if vpp and vpp > 1 and table.get("pp", 1) > 1:
        table["vpp"] = vpp
    if table.get("tp", 1) > 1 and row.get("sp", ""):
        table["sp"] = row["sp"].startswith("yes")
    table.update(_sharding(row))
    table.update(_layer_split(row, table))
    overlap = row.get("overlap", "").lower()
    axes = {axis for word, meant in OVERLAP_WORDS.items() if _says(overlap, word) for axis in meant}
    if axes:
        table["overlap"] = sorted(axes)
    return table


def _says(text: str, word: str) -> bool:
    """Tell whether a text has a word that is not denied: ``no tp comm overlap`` and ``tp comm overlap off`` do not."""
    return re.search(rf"(?<!no ){re.escape(word)}(?! \w* ?(off|=0)\b)", text) is not None


def _expert_ranks(row: Row, table: Table) -> Table:
    """Where only the dispatcher between expert ranks is named, or no degree, all ranks that can hold experts do."""
    experts, gpus = _experts(row), _needed(row, "n_gpus")
    named = re.search(r"deepep|hybridep", row.get("framework", "").lower()) or not table
    if "ep" in table or not named or not experts or table.get("tp", 1) * table.get("pp", 1) * table.get("cp", 1) > 1:
        return {}
    return {"ep": gcd(experts, gpus)}


def _layer_split(row: Row, table: Table) -> Table:
    """Cut layers that do not divide: embedding and head count as a layer each where that comes out even.

    Otherwise chunks are filled up and the last one, which has the head, is short, then the first, as public recipes
    lay layers out (Megatron-Bridge, DeepSeek-V3 and Kimi K2: 61 layers as 4 x 15 + 1, or 1 + 2 x 30 + 0).
    """
    layers, chunks = _layers(row), table.get("pp", 1) * table.get("vpp", 1)
    if layers % chunks == 0 or chunks == 1:
        return {}
    if (layers + 2) % chunks == 0:
        even = (layers + 2) // chunks
        return {"layers_per_stage": [even - 1, *[even] * (chunks - 2), even - 1]}
    most = -(-layers // chunks)
    short = most * chunks - layers
    at_end = min(most, short)
    at_start = short - at_end
    if at_start >= most:
        low, more = divmod(layers, chunks)
        return {"layers_per_stage": [low + 1] * more + [low] * (chunks - more)}
    return {"layers_per_stage": [most - at_start, *[most] * (chunks - 2), most - at_end]}


def _sharding(row: Row) -> Table:
    asked = row.get("fsdp_or_zero", "")
    if not asked:
        return {}
    meant = find_name("sharding", asked)
    if meant is None:
        raise Unresolved(f"fsdp_or_zero {asked!r} is not known")
    words = dict(word.split("=") for word in meant.split())
    return {"zero": int(words["zero"]), **({"shard_size": int(words["shard"])} if "shard" in words else {})}


def _training(row: Row, framework: str, gpu: str) -> Table:
    table: Table = {
        "seq_length": _needed(row, "seq"),
        "global_batch_size": global_batch(row),
        "micro_batch_size": _number(row, "mbs") or 1,
        "precision": _precision(row),
        **(_recompute(row) if row.get("recompute", "").strip() else _usual_recompute(row, framework, gpu)),
    }
    drops = entries("frameworks")[framework].values.get("drops_tokens", False) and _experts(row)
    if drops or "tokendrop" in row.get("model", "").lower():
        table["capacity_factor"] = 1.0
    if wide := _recipe_word(row, framework, gpu, "wide"):
        table["wide_layers"] = round(float(wide) * _layers(row))
    lora = aliases()["lora"]
    rank = lora.get(spell(row.get("model", ""))) or lora.get(spell(row.get("framework", "")))
    if not rank:
        return table
    adapted = find_name("adapted", row.get("framework", ""))
    return {**table, "lora_rank": int(rank), **({"lora_targets": adapted.split()} if adapted else {})}


def _precision(row: Row) -> str:
    words = re.findall(r"[a-z0-9]+", row.get("precision", "").lower())
    if "fp8" in words:
        return "fp8"
    return next((word for word in words if word in PRECISIONS), "bf16")


def _usual_recompute(row: Row, framework: str, gpu: str) -> Table:
    """Return what the recipe of a sparse model recomputes, where it says so."""
    said = _recipe_word(row, framework, gpu, "recompute")
    return {"recompute": "selective", "recompute_modules": said.split(",")} if said else {"recompute": "none"}


def _recipe_word(row: Row, framework: str, gpu: str, name: str) -> str:
    """Return what the recipe of a sparse model says of one thing, or nothing."""
    words = recipe(row, framework, gpu) if _experts(row) else ()
    return next((word.removeprefix(f"{name}=") for word in words if word.startswith(f"{name}=")), "")


def _recompute(row: Row) -> Table:
    """Read ``none ...``, ``full``, ``full (21 of 80 layers)``, ``selective``, ``selective: layernorm moe_act``.

    A layer profiled alone is traced without recomputation, whatever its source asks for.
    """
    text = row.get("recompute", "").lower().strip()
    if not text or text.startswith("none") or _is_composed(row):
        return {"recompute": "none"}
    if text.startswith("full"):
        some = re.search(r"(\d+) of (\d+) layers", text)
        chunks = (_number(row, "pp") or 1) * (_number(row, "vpp") or 1)
        return {"recompute": "full", **({"recompute_layers": round(int(some[1]) / chunks)} if some else {})}
    modules = [module for module in RECOMPUTE_MODULES if re.search(rf"\b{module}\b", text)]
    return {"recompute": "selective", **({"recompute_modules": modules} if modules else {})}
