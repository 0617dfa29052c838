"""Show the catalog: models, GPUs, nodes, fabrics, clusters, frameworks and studies, each figure with its source."""

import argparse
import json
from typing import Any

from charllm.catalog.resolve import resolve_model
from charllm.catalog.tables import KINDS, PARTS, Entry, entries, find
from charllm.report.tables import render_table
from charllm.sweep.study import load_study
from charllm.units import format_params
from charllm.workload.parameters import count_active_parameters, count_parameters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("kind", nargs="?", choices=KINDS, help="kind of entries to list (default: all kinds)")
    parser.add_argument("name", nargs="?", help="show one entry with the source of each figure")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(arguments: argparse.Namespace) -> int:
    """List kinds, list the entries of one, or show one entry."""
    if arguments.kind is None:
        names = {kind: list(entries(kind)) for kind in KINDS}
        print(json.dumps(names, indent=2) if arguments.json else _render_kinds(names))
    elif arguments.name is None:
        listed = {name: _headline(arguments.kind, entry) for name, entry in entries(arguments.kind).items()}
        print(json.dumps(listed, indent=2) if arguments.json else _render_list(arguments.kind, listed))
    else:
        entry = find(arguments.kind, arguments.name, f"charllm catalog {arguments.kind}")
        print(
            json.dumps(_entry_table(arguments.kind, entry), indent=2)
            if arguments.json
            else _render_entry(arguments.kind, entry)
        )
    return 0


def _render_kinds(names: dict[str, list[str]]) -> str:
    return render_table("Catalog", ["kind", "entries"], [[kind, str(len(listed))] for kind, listed in names.items()])


def _headline(kind: str, entry: Entry) -> dict[str, Any]:
    """Pick the few figures that tell entries of a kind apart."""
    values = entry.values
    if kind == "models":
        model = resolve_model(entry.name)
        return {
            "parameters": count_parameters(model),
            "active_parameters": count_active_parameters(model),
            **{key: values.get(key) for key in ("layers", "hidden", "heads", "experts", "seq_length")},
        }
    if kind == "studies":
        study = load_study(entry.name)
        return {"cases": len(study.cases), "about": study.about}
    keys = {
        "gpus": ("memory_bytes", "memory_bandwidth_bytes_per_s", "peak_bf16_flop_per_s", "power_cap_w"),
        "nodes": ("gpu", "gpus", "link_bandwidth_bytes_per_s"),
        "fabrics": ("nics_per_node", "nic_bandwidth_bytes_per_s"),
        "clusters": ("node", "nodes", "fabric"),
        "frameworks": ("attention", "default_zero", "reserve_fraction"),
    }[kind]
    return {key: values.get(key) for key in keys}


def _render_list(kind: str, listed: dict[str, dict[str, Any]]) -> str:
    columns = ["name", *next(iter(listed.values()))]
    cells = [[name, *(_short(key, value) for key, value in headline.items())] for name, headline in listed.items()]
    return render_table(f"Catalog: {kind}", columns, cells)


def _short(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key.endswith("parameters"):
        return format_params(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _entry_table(kind: str, entry: Entry) -> dict[str, Any]:
    if kind == "studies":
        study = load_study(entry.name)
        cases = [case._asdict() for case in study.cases]
        return {"name": study.name, "about": study.about, "corrections": list(study.corrections), "cases": cases}
    return {"name": entry.name, "values": dict(entry.values), "sources": dict(entry.sources)}


def _render_entry(kind: str, entry: Entry) -> str:
    if kind == "studies":
        study = load_study(entry.name)
        lines = [f"{study.name}: {study.about}", "", *(f"  {case.name}" for case in study.cases)]
        return "\n".join([*lines, "", "Corrections to the source:", *(f"  {text}" for text in study.corrections)])
    figures = [(key, value) for key, value in entry.values.items() if key != "name" and key not in PARTS]
    inside = [(part, entry.values[part]) for part in PARTS if part in entry.values]
    figures += [(f"{part}.{key}", value) for part, table in inside for key, value in table.items()]
    cells = [[key, _short(key, value), entry.sources.get(key, "")] for key, value in figures]
    width = max(len(row[1]) for row in cells)
    rows = [[key, value.rjust(width) + "  " + source] for key, value, source in cells]
    lines = [f"{key.ljust(max(len(row[0]) for row in rows))}  {rest}".rstrip() for key, rest in rows]
    return "\n".join([f"{kind}: {entry.name}", *lines])
