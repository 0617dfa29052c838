"""The catalog as plain tables."""

from typing import Any

from charllm.api.signature import public
from charllm.catalog.resolve import find_entry, resolve_model
from charllm.catalog.tables import KINDS, Entry, entries
from charllm.errors import unknown_name
from charllm.sweep.study import load_study
from charllm.workload.parameters import count_active_parameters, count_parameters

HEADLINES = {
    "gpus": ("memory_bytes", "memory_bandwidth_bytes_per_s", "peak_bf16_flop_per_s", "power_cap_w"),
    "nodes": ("gpu", "gpus", "link_bandwidth_bytes_per_s"),
    "fabrics": ("nics_per_node", "nic_bandwidth_bytes_per_s"),
    "machines": ("node", "networks", "domain_nodes"),
    "clusters": ("node", "nodes", "fabric"),
    "frameworks": ("attention", "default_zero", "reserve_fraction"),
}
"""Kind: the few figures that tell its entries apart."""


@public
def catalog(kind: str | None = None, name: str | None = None) -> dict[str, Any]:
    """List the names of every kind; the entries of one kind; or one entry with the source of each figure.

    >>> import charllm
    >>> "llama3-70b" in charllm.catalog()["models"], charllm.catalog("gpus")["h200"]["power_cap_w"]
    (True, 700)
    >>> charllm.catalog("gpus", "h200")["sources"]["power_cap_w"].split(":")[0]
    'datasheet'
    """
    if kind is None:
        return {each: list(entries(each)) for each in KINDS}
    if kind not in KINDS:
        raise unknown_name("kind", str(kind), KINDS)
    if name is None:
        return {each: _headline(kind, entry) for each, entry in entries(kind).items()}
    return _entry_table(kind, find_entry(kind, name, f"charllm catalog {kind}"))


def _headline(kind: str, entry: Entry) -> dict[str, Any]:
    """Pick the few figures that tell entries of a kind apart."""
    if kind == "models":
        model = resolve_model(entry.name)
        return {
            "parameters": count_parameters(model),
            "active_parameters": count_active_parameters(model),
            **{key: entry.values.get(key) for key in ("layers", "hidden", "heads", "experts", "seq_length")},
        }
    if kind == "studies":
        study = load_study(entry.name)
        return {"cases": len(study.cases), "about": study.about}
    return {key: entry.values.get(key) for key in HEADLINES[kind]}


def _entry_table(kind: str, entry: Entry) -> dict[str, Any]:
    if kind == "studies":
        study = load_study(entry.name)
        cases = [case._asdict() for case in study.cases]
        return {"name": study.name, "about": study.about, "corrections": list(study.corrections), "cases": cases}
    return {"name": entry.name, "values": dict(entry.values), "sources": dict(entry.sources)}
