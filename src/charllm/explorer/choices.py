"""What a request may be made of: models, clusters and frameworks of the catalog, options and bounds of settings."""

from functools import lru_cache
from typing import Any

from charllm.api.keywords import FIELDS, SHORT
from charllm.catalog.resolve import DEFAULT_FRAMEWORK, resolve_cluster, resolve_model
from charllm.catalog.sizes import NETWORK_WORDS
from charllm.catalog.tables import entries
from charllm.explorer.answers import LONGEST_S
from charllm.explorer.request import FIELDS as OWN_FIELDS
from charllm.explorer.request import MOST_BODY_BYTES, WORDS
from charllm.plan.objectives import OBJECTIVES
from charllm.spec.cooling import Cooling
from charllm.spec.fields import Rule, rules
from charllm.spec.hardware import Cluster
from charllm.spec.model import Model
from charllm.spec.parallelism import OVERLAPS, Parallelism
from charllm.spec.run import Conditions
from charllm.spec.schedules import SCHEDULES
from charllm.spec.training import PRECISIONS, RECOMPUTES, Training
from charllm.units import GIB, si_key
from charllm.workload.parameters import count_parameters

START = {"model": "llama3-70b", "cluster": "h200x32", "tp": 4, "pp": 4, "gbs": 128, "framework": DEFAULT_FRAMEWORK}
"""The request that a browser begins with."""
SIZES = ("h100x64", "h100x512", "h200x32", "h200x256", "b200x64", "mi300x64", "a100x64")
"""Usual machines that are offered beside the clusters of the catalog; any other size can be written."""
TABLES: dict[str, Any] = {
    "parallelism": Parallelism,
    "training": Training,
    "conditions": Conditions,
    "cluster": Cluster,
    "cluster.cooling": Cooling,
}


@lru_cache(maxsize=1)
def list_choices() -> dict[str, Any]:
    """Return everything that a request may be made of."""
    return {
        "models": [_model(name) for name in entries("models")],
        "clusters": [_cluster(name) for name in (*entries("clusters"), *SIZES)],
        "frameworks": list(entries("frameworks")),
        "networks": [*NETWORK_WORDS, *entries("fabrics")],
        "precisions": list(PRECISIONS),
        "recomputes": list(RECOMPUTES),
        "overlaps": list(OVERLAPS),
        "schedules": list(SCHEDULES),
        "objectives": {name: one.meaning for name, one in OBJECTIVES.items() if not name.startswith("run-")},
        "defaults": START,
        "limits": {"longest_s": LONGEST_S, "body_bytes": MOST_BODY_BYTES, "words": _bounds()},
    }


def _model(name: str) -> dict[str, Any]:
    model = resolve_model(name)
    return {"name": name, "parameters": count_parameters(model), "kind": _kind(model)}


def _kind(model: Model) -> str:
    return f"mixture of {model.experts} experts" if model.experts else "dense"


def _cluster(name: str) -> dict[str, Any]:
    cluster = resolve_cluster(name)
    return {
        "name": name,
        "gpus": cluster.gpus,
        "gpu": cluster.gpu.name,
        "memory_gib": cluster.gpu.memory_bytes / GIB,
        "nodes": cluster.nodes,
        "power_cap_w": cluster.gpu.power_cap_w,
    }


def _bounds() -> dict[str, dict[str, Any]]:
    """Return lowest and highest value of every word that is a number, in the unit of the word, and its meaning."""
    found = {}
    for word in WORDS:
        path = {**FIELDS, **OWN_FIELDS}.get(SHORT.get(word, word))
        if path is None:
            continue
        table, _dot, name = path.rpartition(".")
        field, factor = si_key(name)
        rule: Rule = rules(TABLES[table])[field]
        if rule.kind in ("int", "float", "floats"):
            found[word] = {"low": rule.low / factor, "high": rule.high / factor, "about": rule.doc}
    return found
