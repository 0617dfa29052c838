"""Show the catalog: models, GPUs, nodes, fabrics, clusters, frameworks and studies, each figure with its source."""

import argparse
import json
from typing import Any

from charllm.api.listing import catalog
from charllm.catalog.tables import KINDS, PARTS, Entry, find
from charllm.report.tables import render_table
from charllm.sweep.study import load_study
from charllm.units import format_params


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("kind", nargs="?", choices=KINDS, help="kind of entries to list (default: all kinds)")
    parser.add_argument("name", nargs="?", help="show one entry with the source of each figure")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(arguments: argparse.Namespace) -> int:
    """List kinds, list the entries of one, or show one entry."""
    listed = catalog(arguments.kind, arguments.name)
    if arguments.json:
        print(json.dumps(listed, indent=2))
    elif arguments.kind is None:
        print(_render_kinds(listed))
    elif arguments.name is None:
        print(_render_list(arguments.kind, listed))
    else:
        print(_render_entry(arguments.kind, find(arguments.kind, arguments.name, "NAME")))
    return 0


def _render_kinds(names: dict[str, list[str]]) -> str:
    return render_table("Catalog", ["kind", "entries"], [[kind, str(len(listed))] for kind, listed in names.items()])


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
