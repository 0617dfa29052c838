"""A row of published training results as a request.

Names and texts are read by this room's columns modules; blanks are left open, as a user leaves them, so that the
profile of the row's framework fills them. Measured columns and notes are never read.
"""

import re
from collections.abc import Mapping
from math import gcd
from typing import Any

from charllm.catalog.defaults import default_chunks, split_layers
from charllm.evaluate.machine_columns import read_cluster, read_gpu
from charllm.evaluate.model_columns import drops_tokens, model_value, read_model
from charllm.evaluate.software_columns import (
    find_recipe,
    find_stage,
    is_composed,
    read_choice,
    read_dispatcher,
    read_framework,
    read_overlap,
    read_release,
    read_sharding,
    release_value,
)
from charllm.evaluate.spellings import Row, Unresolved, find_pattern, needed, read_real, read_whole, unresolved
from charllm.spec.request import Table
from charllm.spec.schedules import SCHEDULES
from charllm.spec.training import PRECISIONS, RECOMPUTE_MODULES, ROUTINGS

__all__ = ["Row", "Unresolved", "global_batch", "read_row"]

USUAL_MICROBATCHES = 16
"""Microbatches of a replica where a row gives its rate and microbatch but no batch: ends of a step weigh a few %."""
DEFAULT_LORA_RANK = 16
"""Rank of adapters where none is printed: MLPerf's Llama2-70B, Megatron-Bridge's and AutoModel's recipes."""
DOCUMENT_TOKENS = 256
"""Length of a question with its passage and answer (SQuAD), where a fine-tuning recipe packs them: about 200 to 300."""
DEGREES = ("tp", "pp", "cp", "ep", "dp")
SCHEDULE_WORDS = {
    r"dualpipe": ("dualpipe", "zero-bubble"),
    r"zero-?bubble|\bzb[a-z0-9]*\b|v-(half|min)": ("zero-bubble",),
}
"""Words of the framework and overlap columns: the schedules they mean, the first that can be simulated counts."""
MODULE_WORDS = {
    "core_attn": r"core[-_ ]?att",
    "layernorm": r"norm",
    "mlp_act": r"mlp[-_ ]?act",
    "moe_act": r"moe[-_ ]?act|expert act|\bact(ivation)?s?\b(?! checkpoint)",
    "mla_up_proj": r"up[-_ ]?proj",
    "mlp": r"\bmlp\b(?![-_ ]?act)",
    "moe": r"\bmoe\b(?![-_ ]?act)",
    "shared_experts": r"shared[-_ ]?expert",
}
"""Module that is recomputed: the words that mean it."""


def _with_stated(row: Row) -> Row:
    """Fill in blank columns that the row's source states elsewhere."""
    stated = find_pattern("stated", f"{row.get('source', '')} hidden {row.get('hidden', '').strip()}") or {}
    return {**row, **{column: value for column, value in stated.items() if not row.get(column, "").strip()}}


def read_row(row: Row) -> Table:
    """Turn one row into a request, or raise Unresolved with the reason."""
    row = _with_stated(row)
    gpu = read_gpu(row.get("gpu", ""))
    release = read_release(row)
    model = read_model(row)
    cluster = read_cluster(row, gpu)
    experts = int(model_value(model, "experts", 0) or 0)
    recipe = find_recipe(release, gpu, _precision(row), _recipe_kind(row, model, cluster)) if experts else {}
    framework = read_framework(row, release, gpu, recipe, sparse=bool(experts))
    training = _training(row, release, model, recipe)
    overlap = read_overlap(row, framework, recipe)
    limit_w = find_pattern("gpu_limits_w", f"{row.get('gpu', '')} {row.get('interconnect', '')}")
    if overlap.get("ep"):
        # Megatron hides the exchange of experts in a pipeline only where stages hold several chunks.
        framework["default_interleaving"] = True
    return {
        "model": model,
        "cluster": cluster,
        "framework": framework,
        "parallelism": _parallelism(row, release, framework, model, training, overlap),
        "training": training,
        **({"conditions": {"power_cap_w": limit_w}} if limit_w else {}),
    }


def global_batch(row: Row) -> int:
    """Return the sequences of a step: as printed, else enough microbatches that a step's ends weigh little."""
    printed = read_whole(row, "gbs")
    if printed:
        return printed
    if not row.get("mbs", "").strip() or not row.get("seq", "").strip():
        raise unresolved("gbs", row.get("gbs", "").strip(), "a whole number of at least 1")
    tp, pp, cp, mbs = (read_whole(row, name) or 1 for name in ("tp", "pp", "cp", "mbs"))
    replicas = read_whole(row, "dp") or needed(row, "n_gpus") // (tp * pp * cp)
    return replicas * mbs * max(USUAL_MICROBATCHES, 4 * pp)


def _parallelism(
    row: Row, release: str, framework: Table, model: Table, training: Table, overlap: Mapping[str, bool]
) -> Table:
    table: Table = {axis: value for axis in DEGREES if (value := read_whole(row, axis))}
    experts = int(model_value(model, "experts", 0) or 0)
    etp = read_whole(row, "etp")
    if experts:
        table.update({**_expert_ranks(row, table, experts), **({"etp": etp} if etp else {})})
    vpp = _chunks(row)
    schedule = _schedule(row)
    if table.get("pp", 1) > 1 and schedule:
        table["schedule"] = schedule
    elif vpp:
        table["vpp"] = vpp if table.get("pp", 1) > 1 else 1
    if table.get("tp", 1) > 1 and row.get("sp", ""):
        table["sp"] = row["sp"].lower().startswith(("yes", "true", "on"))
    sharding = row.get("fsdp_or_zero", "").strip() or find_stage(row.get("framework", ""))
    table.update(read_sharding(sharding, read_whole(row, "gpus_per_node") or 8, table.get("cp", 1)))
    table.update(_layer_split(row, release, framework, int(model_value(model, "layers")), table, training))
    if overlap:
        sparse = release_value(release, "default_sparse_overlap") if experts else ()
        usual = sparse or release_value(release, "default_overlap") or ()
        default = {axis for axis in usual if axis == "dp" or table.get(axis, 1) > 1}
        table["overlap"] = sorted(axis for axis in {*default, *overlap} if overlap.get(axis, True))
    return table


def _chunks(row: Row) -> int | None:
    """Return the chunks of a stage, None where the column is blank; ``interleaved`` alone is two."""
    return 2 if row.get("vpp", "").strip().lower() in ("interleaved", "yes") else read_whole(row, "vpp")


def _schedule(row: Row) -> str | None:
    text = f"{row.get('framework', '')} {row.get('overlap', '')}".lower()
    meant = next((names for words, names in SCHEDULE_WORDS.items() if re.search(words, text)), ())
    return next((name for name in meant if name in SCHEDULES), None)


def _expert_ranks(row: Row, table: Table, experts: int) -> Table:
    """Where only the dispatcher between expert ranks is named, or no degree, all ranks that can hold experts do."""
    named = read_dispatcher(row) in ("deepep", "hybridep") or not table
    if "ep" in table or not named or table.get("tp", 1) * table.get("pp", 1) * table.get("cp", 1) > 1:
        return {}
    return {"ep": gcd(experts, needed(row, "n_gpus"))}


def _layer_split(row: Row, release: str, framework: Table, layers: int, table: Table, training: Table) -> Table:
    """Split layers that stages do not divide, unless the profile's default chunks do."""
    pp, vpp = table.get("pp", 1), table.get("vpp")
    if layers % (pp * (vpp or 1)) == 0 or release_value(release, "counts_head"):
        return {}
    interleaves = framework.get("default_interleaving", release_value(release, "default_interleaving"))
    if interleaves and vpp is None and "schedule" not in table:
        replicas = table.get("dp") or needed(row, "n_gpus") // (pp * table.get("tp", 1) * table.get("cp", 1)) or 1
        rounds = training["global_batch_size"] / (training.get("micro_batch_size", 1) * replicas)
        if rounds == int(rounds) and default_chunks(layers, pp, int(rounds))[0] > 1:
            return {}
    return {"layers_per_stage": list(split_layers(layers, pp * (vpp or 1)))}


def _recipe_kind(row: Row, model: Table, cluster: Table) -> str:
    """Return what recipes depend on beside GPU and format: how a model is built, or else whether it is in stages.

    `-wide` follows where its experts are spread over more than one domain of links.
    """
    kinds = (("hybrid", "pattern"), ("sinks", "attention_sinks"))
    kind = next((name for name, field in kinds if model_value(model, field)), "")
    if not kind:
        latent = model_value(model, "attention") == "mla"
        kind = "latent" if latent else "piped" if (read_whole(row, "pp") or 1) > 1 else "plain"
    domain = (read_whole(row, "gpus_per_node") or 8) * cluster.get("domain_nodes", 1)
    return f"{kind}-wide" if (read_whole(row, "ep") or 1) > domain else kind


def _training(row: Row, release: str, model: Table, recipe: Mapping[str, Any]) -> Table:
    table: Table = {
        "seq_length": needed(row, "seq"),
        "global_batch_size": global_batch(row),
        "micro_batch_size": read_whole(row, "mbs") or 1,
        "precision": _precision(row),
        **_recompute(row, recipe),
    }
    routing = _routing(row)
    if model_value(model, "experts"):
        table.update(routing)
        if share := recipe.get("wide_fraction"):
            table["wide_layers"] = round(share * int(model_value(model, "layers")))
    said = f"{row.get('model', '')} {row.get('framework', '')}"
    tunes = re.search(r"\b(sft|q?lora)\b", row.get("model", "").lower())
    if tunes and release_value(release, "packs_documents"):
        table["document_tokens"] = DOCUMENT_TOKENS
    if not re.search(r"\bq?lora\b", said.lower()):
        return table
    printed = re.search(r"\b(?:r|rank) ?=? ?(\d+)\b", said.lower())
    rank = int(printed[1]) if printed else find_pattern("lora", row.get("model", "")) or DEFAULT_LORA_RANK
    adapted = find_pattern("adapted", row.get("framework", ""))
    dropped = find_pattern("lora_dropout", row.get("framework", "")) or 0.0
    table |= {"lora_rank": rank, "lora_dropout_fraction": dropped}
    return {**table, **({"lora_targets": adapted} if adapted else {})}


def _routing(row: Row) -> Table:
    """Return capacity and routing: their own columns, else the words of the model's name."""
    table: Table = {}
    if (capacity := read_real(row, "capacity")) is not None:
        table["capacity_factor"] = capacity
    elif (drops := drops_tokens(f"{row.get('model', '')} {row.get('framework', '')}")) is not None:
        table["capacity_factor"] = 1.0 if drops else None
    if routing := read_choice(row, "routing", ROUTINGS):
        table["routing"] = routing
    return table


def _precision(row: Row) -> str:
    words = re.findall(r"[a-z0-9]+", row.get("precision", "").lower())
    if "fp8" in words:
        return "fp8"
    return next((word for word in words if word in PRECISIONS), "bf16")


def _recompute(row: Row, recipe: Mapping[str, Any]) -> Table:
    """Read ``none ...``, ``full``, ``full (21 of 80 layers)``, ``selective: layernorm moe_act``, ``norm, act``.

    Where the row is silent, the recipe's; else it is left open for the profile. A layer that was profiled alone is
    traced without recomputation, whatever its source asks for.
    """
    text = row.get("recompute", "").lower().strip()
    if is_composed(row) or re.match(r"(none|no|off|false)\b", text):
        return {"recompute": "none"}
    if not text:
        modules = recipe.get("recompute", "").split(",") if recipe.get("recompute") else []
        return {"recompute": "selective", "recompute_modules": modules} if modules else {}
    if re.match(r"full|activation checkpoint|gradient checkpoint|yes|on\b|true", text):
        some = re.search(r"(\d+) of (\d+) layers", text)
        chunks = (read_whole(row, "pp") or 1) * (_chunks(row) or 1)
        return {"recompute": "full", **({"recompute_layers": round(int(some[1]) / chunks)} if some else {})}
    said = re.sub(r"\([^)]*\)", " ", text)
    modules = [module for module in RECOMPUTE_MODULES if re.search(MODULE_WORDS[module], said)]
    if not modules and "selective" not in text:
        raise unresolved("recompute", text, "none, selective, full, or modules such as layernorm moe_act")
    return {"recompute": "selective", **({"recompute_modules": modules} if modules else {})}
