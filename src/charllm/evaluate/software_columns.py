"""The software of a published row from its words: release, dispatcher, CUDA graphs, overlap and sharding."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from charllm.catalog.resolve import DEFAULT_FRAMEWORK
from charllm.catalog.tables import entries, find_name, spell
from charllm.evaluate.spellings import Row, find_pattern, spellings, unresolved
from charllm.spec.framework import DISPATCHERS, GRAPHS
from charllm.spec.parallelism import OVERLAPS
from charllm.spec.request import Table

AXIS_WORDS = {
    "tp": r"\btp\b|async-?tp|userbuffers|tensor[- ]parallel|tp_comm",
    "dp": r"(?<!w)grad|param|\bdp\b|overlap_comm|reduce-?scatter|all-?gather|data[- ]parallel|fsdp",
    "pp": r"\bpp\b|p2p|pipeline",
    "ep": r"\bep\b|a2a|all-?to-?all|expert|dispatch|dualpipe",
    "cp": r"\bcp\b|context[- ]parallel",
}
"""Axis: the words of the overlap column that mean its communication."""
OVERLAPS_AXIS = r"overlap|async-?tp|dualpipe|\btp comm\b|p2p"
DENIED = r"\bno\b|\bnot?t?\b(?! stated)|\bwithout\b|\boff\b|\bdisabled\b|\bexposed\b|=\s*(0|false|no|off)\b|\bnone\b"


SLOW_LIBRARY_FRACTIONS = {"h100": 0.814, "b200": 0.65, "mi250": 0.83}
"""Rate of GEMMs over a GPU's best. Fitted: libraries of 2023 on Hopper. Published: SimuMax's own bench of its B200
(configs/system/b200_bf16_ceperm.json) reads 0.483 of the peak over 250 large products of all three layouts, where 0.488
is predicted at this rate; other tables of a B200 read 0.6. Derived: layers of 175B on LUMI take 38 and 67 ms forward
and backward with recomputation (spyysalo/lumi-llm-scaling, ROCm 5.2), given the rate of an MI250 in later libraries."""


SLOW_ROCM = (5, 4)
"""The first release of ROCm whose rocBLAS reaches the best rates of CDNA 2."""


def read_release(row: Row) -> str:
    """Return the profile or release that the framework column names; `megatron` where no word is known."""
    text = row.get("framework", "").strip()
    round_found = re.search(r"training_results_(v[0-9.]+)", row.get("source", ""))
    if round_found and "MLPerf" in text:
        # The round of MLPerf is the release of its software.
        text = f"{text} {round_found[1]}"
    found = find_pattern("software", text) or find_name("frameworks", text) if text else None
    return str(found or DEFAULT_FRAMEWORK)


def release_table(release: str) -> Table:
    """Return a release as a request: a profile of the catalog with what the release changes."""
    if release in entries("frameworks"):
        return {"base": release}
    return {"name": release, **spellings()["releases"][release]}


def release_value(release: str, field: str) -> Any:
    """Return a field of a release: its own, else its profile's; None where neither gives it."""
    table = release_table(release)
    return table[field] if field in table else entries("frameworks")[table["base"]].values.get(field)


def find_recipe(release: str, gpu: str, precision: str, kind: str) -> Mapping[str, Any]:
    """Return what the public recipes of a release set for a kind of sparse model on this GPU, in this format."""
    asked = spell(f"{release} {gpu} {precision} {kind}")
    recipes: Mapping[str, Mapping[str, Any]] = spellings()["recipes"]
    return next((recipe for pattern, recipe in recipes.items() if fnmatchcase(asked, spell(pattern))), {})


def read_framework(row: Row, release: str, gpu: str, recipe: Mapping[str, Any], *, sparse: bool) -> Table:
    """Return the framework of a row: its release, what the recipe sets, and what the row says of its execution."""
    source = row.get("source", "")
    table = {**release_table(release), **(find_pattern("environments", source) or {})}
    if tuning := "usual" if find_pattern("users", source) else find_pattern("vendors", source):
        table["tuning"] = tuning
    asked, chosen = spell(f"{release} {gpu}"), spellings()["dispatchers"].items()
    if _has_slow_libraries(row.get("framework", ""), asked, gpu):
        table["library_fraction"] = next(rate for name, rate in SLOW_LIBRARY_FRACTIONS.items() if gpu.startswith(name))
    table.update(next(({"dispatcher": name} for pattern, name in chosen if fnmatchcase(asked, spell(pattern))), {}))
    if "dispatcher" in recipe:
        table["dispatcher"] = recipe["dispatcher"]
    if re.search(r"row-?wise", row.get("precision", "").lower()):
        table["fp8_scaling"] = "row"
    if is_composed(row):
        return {**table, "composed": True}
    overlap = row.get("overlap", "").lower()
    ladder = _ladder_fields(overlap)
    table.update(ladder)
    # A column that holds for the last step of a ladder may not hold for the others.
    if "dispatcher" not in ladder and (dispatcher := read_dispatcher(row)):
        table["dispatcher"] = dispatcher
    if release.startswith("torchtitan") and table.get("dispatcher") in ("deepep", "hybridep"):
        # DeepEP's kernels sort tokens by expert, too.
        table["fused_permute"] = True
    captured = read_choice(row, "graphs", GRAPHS) or _said_graphs(overlap, recipe) or _recipe_graphs(row)
    if captured is None and sparse and "graphs" in recipe:
        # A row that speaks of experts' exchange, but not of graphs, has none.
        speaks = re.search(r"dispatcher|ep comm overlap|ep overlap", overlap)
        captured = table.get("graphs", "none") if "graphs" in _ladder_fields(overlap) else None
        captured = captured or ("none" if speaks else recipe["graphs"])
    if captured is not None:
        table["graphs"] = captured
    if sparse and "fused_graphs" in recipe and table.get("graphs") == recipe["fused_graphs"]:
        table["fused_experts"] = True
    return table


def _has_slow_libraries(framework: str, asked: str, gpu: str) -> bool:
    """Tell whether GEMMs run below a GPU's best: by the release of ROCm that a text names, else by what is known."""
    if gpu.startswith("mi2") and (rocm := re.search(r"rocm[ -]?(\d)\.(\d)", framework.lower())):
        return (int(rocm[1]), int(rocm[2])) < SLOW_ROCM
    return any(fnmatchcase(asked, spell(pattern)) for pattern in spellings()["slow_libraries"]["patterns"])


def _said_graphs(overlap: str, recipe: Mapping[str, Any]) -> str | None:
    """Return which graphs the overlap column speaks of, None where of none."""
    if "graph" not in overlap or "step: " in overlap:
        return None
    if re.search(r"(no|without|w/o) (cuda )?graph", overlap):
        return "none"
    if re.search(r"full[- ](iteration|step)|whole[- ]step|full (cuda )?graph", overlap):
        return "full"
    if re.search(r"partial|graph.*(moe|attn|router)", overlap):
        return "partial"
    return str(recipe.get("graphs") or "partial")


def _recipe_graphs(row: Row) -> str | None:
    """Return which graphs the name of a recipe file in the source column speaks of, None where of none.

    A paged stash of activations exists for graphs of a whole step (Megatron-Core's moe_paged_stash).
    """
    named = " ".join(re.findall(r"\S+\.ya?ml", row.get("source", "").lower()))
    words = {"full": r"full_?(iter\w*_?)?cg|paged_stash", "partial": r"partial_?cg"}
    return next((graphs for graphs, pattern in words.items() if re.search(pattern, named)), None)


def _ladder_fields(overlap: str) -> Table:
    """Return what a step of an optimisation ladder sets, with the steps before it."""
    for ladder in spellings()["ladders"]:
        found = re.search(ladder["prefix"], overlap)
        step = overlap[found.end() :] if found else ""
        reached = [index for index, name in enumerate(ladder["steps"]) if name in step]
        if reached:
            steps = ladder["steps"][: reached[-1] + 1]
            return {key: value for name in steps for key, value in ladder["fields"].get(name, {}).items()}
    return {}


def read_choice(row: Row, column: str, choices: tuple[str, ...]) -> str | None:
    """Return a column that holds one word of a list, None where it is blank."""
    text = row.get(column, "").strip().lower()
    if text and text not in choices:
        raise unresolved(column, row[column].strip(), f"one of {', '.join(choices)}")
    return text or None


def read_dispatcher(row: Row) -> str | None:
    """Return the dispatcher between expert ranks: its own column, else words of the overlap or framework column."""
    if column := read_choice(row, "dispatcher", DISPATCHERS):
        return column
    for text in (row.get("overlap", "").lower(), row.get("framework", "").lower()):
        if re.search(r"hybrid-?ep", text):
            return "hybridep"
        if re.search(r"deep-?ep|uccl", text):
            return "deepep"
        if re.search(r"(all-?to-?all|a2a|nccl) dispatcher|dispatcher\W+(all-?to-?all|a2a|nccl)", text):
            return "alltoall"
    return None


def said_axes(overlap: str) -> dict[str, bool]:
    """Return for each axis that a text speaks of whether its communication overlaps: ``no tp comm overlap`` is not."""
    said: dict[str, bool] = {}
    text = re.sub(r"step: .*|shared[- ]experts?[^;,+]*", "", overlap.lower())
    for clause in re.split(r"[;,+]", text):
        if not re.search(OVERLAPS_AXIS, clause):
            continue
        for axis, words in AXIS_WORDS.items():
            if re.search(words, clause):
                said[axis] = said.get(axis, False) or not re.search(DENIED, clause)
    return said


def read_overlap(row: Row, framework: Table, recipe: Mapping[str, Any]) -> dict[str, bool]:
    """Return for each axis of which the row, or the recipe that it follows, speaks whether it overlaps.

    An empty table leaves overlap to the profile; ``none`` denies every axis.
    """
    text = row.get("overlap", "").strip().lower()
    if re.match(r"none\b|no$", text):
        return dict.fromkeys(OVERLAPS, False)
    follows = bool(recipe.get("overlap")) and framework.get("graphs") == recipe["graphs"]
    return {**(dict.fromkeys(recipe["overlap"], True) if follows else {}), **said_axes(text)}


def is_composed(row: Row) -> bool:
    """Tell whether the row's source adds its times up from layers profiled alone."""
    return bool(find_pattern("composed", row.get("source", "")))


def read_sharding(text: str, gpus_per_node: int, cp: int = 1) -> Table:
    """Return ZeRO stage and shard size of a text: ``ZeRO-1 within 8 GPUs``, ``HSDP shard 8``, ``FSDP 128 x DP 4``.

    Fully-sharded weights are shared by context-parallel ranks as well, beyond the degree that is printed.
    """
    lowered = text.lower().strip()
    if not lowered:
        return {}
    stage = _zero_stage(lowered)
    if stage is None:
        raise unresolved("fsdp_or_zero", text.strip(), "words such as none, ZeRO-1, distributed optimizer, FSDP, HSDP")
    hpz = re.search(r"hpz\D{0,4}(\d+)", lowered)
    size = _shard_size(lowered, gpus_per_node) * (cp if stage == 3 else 1)
    if size == 1 or stage == 0:
        return {"zero": 0}
    table: Table = {"zero": stage}
    if size:
        table["shard_size"] = size
    if stage == 3 and (hpz or "zero++" in lowered):
        table["regather_size"] = int(hpz[1]) if hpz else gpus_per_node
    return table


def find_stage(framework: str) -> str:
    """Return the words of a framework column that name a ZeRO stage, where it does: ``DeepSpeed ZeRO-2``."""
    found = re.search(r"zero[- ]?(?:stage)?[- ]?[0-3]\b", framework.lower())
    return found[0] if found else ""


def _zero_stage(text: str) -> int | None:
    """Return the ZeRO stage that words mean, None where they mean none that exists."""
    if found := re.search(r"zero[- ]?(?:stage)?[- ]?(\d+)", text):
        return int(found[1]) if int(found[1]) <= 3 else None
    if re.search(r"shard_grad_op|no reshard|shard(s|ed|ing)? (optimizer|grad)|optimizer ?\+ ?grad", text):
        return 2
    if re.search(r"fsdp|hsdp|fully[- ]shard|full[- _]shard|hybrid[- _]shard|zero\+\+|\bhpz\b", text):
        return 3
    if re.search(r"dist\w*[- _]?(opt|adam)|sharded optim|optimizer shard|\bzero\b", text):
        return 1
    return 0 if re.search(r"\bnone\b|\bno\b|ddp|\bdp\b|data[- ]parallel|replicat|unsharded", text) else None


def _shard_size(text: str, gpus_per_node: int) -> int:
    """Return the ranks that share one copy; 0: all of them."""
    plain = re.sub(r"zero[- ]?(?:stage)?[- ]?\d+|hpz\D{0,4}\d+|\(ici[^)]*\)|expert[^)]*", " ", text)
    plain = re.sub(r"fsdp ?v?[12]\b", "fsdp", plain)
    plain = re.sub(r"x ?dp ?\d+|\bdp ?= ?\d+|replic\w*\D{0,4}\d+|\d+ ?(nodes|replicas)|v?\d+\.\d[\d.]*", " ", plain)
    found = re.search(r"(?<![a-z0-9.])(\d+)(?!\d| ?-?bits?\b)", plain)
    if found:
        return int(found[1])
    return gpus_per_node if re.search(r"hsdp|hybrid[- _]shard|within (a |one |each )?node|intra-?node", text) else 0
