"""Show the catalog: models, GPUs, nodes, fabrics, machines, clusters, frameworks, studies; figures with sources."""

import argparse
from typing import Any

from charllm.catalog.resolve import find_entry
from charllm.catalog.tables import KINDS, PARTS, Entry
from charllm.cli.output import add_format_flags, print_as
from charllm.report.tables import render_table, wrap_all
from charllm.units import format_figure, format_params

EXAMPLES = ("charllm catalog", "charllm catalog gpus", "charllm catalog gpus h200", "charllm catalog clusters --csv")

HEADINGS = {
    "memory_bandwidth_bytes_per_s": "memory bandwidth",
    "peak_bf16_flop_per_s": "bf16 peak",
    "power_cap_w": "power limit",
    "link_bandwidth_bytes_per_s": "link, each way",
    "nic_bandwidth_bytes_per_s": "NIC, each way",
    "nics_per_node": "NICs per node",
    "gpu": "GPU",
    "gpus": "GPUs",
    "default_zero": "zero",
    "reserve_fraction": "allocator reserve",
}
"""Figure: its heading, where its name without underscores and unit is not one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument(
        "kind",
        nargs="?",
        choices=KINDS,
        metavar="KIND",
        help=f"entries to list: {', '.join(KINDS)} (default: a summary)",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="show one entry with the source of each figure")
    add_format_flags(parser, table="a row for each entry, or for each figure of one entry,")


def run(arguments: argparse.Namespace) -> int:
    """List kinds, list the entries of one, or show one entry."""
    from charllm.api.listing import catalog

    listed = catalog(arguments.kind, arguments.name)
    if arguments.kind is None:
        rows = [{"kind": kind, "entries": len(names)} for kind, names in listed.items()]
        print_as(arguments, listed, lambda: _render_kinds(listed), lambda: rows)
    elif arguments.name is None:
        rows = [{"name": name, **headline} for name, headline in listed.items()]
        print_as(arguments, listed, lambda: _render_list(arguments.kind, listed), lambda: rows)
    else:
        entry = find_entry(arguments.kind, arguments.name, "NAME")
        print_as(arguments, listed, lambda: _render_entry(arguments.kind, entry), lambda: _entry_rows(entry, listed))
    return 0


def _render_kinds(names: dict[str, list[str]]) -> str:
    return render_table("Catalog", ["kind", "entries"], [[kind, str(len(listed))] for kind, listed in names.items()])


def _render_list(kind: str, listed: dict[str, dict[str, Any]]) -> str:
    keys = list(next(iter(listed.values())))
    cells = [[name, *(_short(key, value) for key, value in headline.items())] for name, headline in listed.items()]
    return render_table(f"Catalog: {kind}", ["name", *map(_heading, keys)], cells, where="--json")


def _heading(key: str) -> str:
    return HEADINGS.get(key, key.removesuffix("_bytes").replace("_", " "))


def _short(key: str, value: Any) -> str:
    if value is not None and key.endswith("parameters"):
        return format_params(value)
    return format_figure(key, value)


def _figures(entry: Entry) -> list[tuple[str, Any, str]]:
    """List name, value and source of each figure, those of its parts after its own."""
    own = [(key, value) for key, value in entry.values.items() if key != "name" and key not in PARTS]
    inside = [(part, entry.values[part]) for part in PARTS if part in entry.values]
    own += [(f"{part}.{key}", value) for part, table in inside for key, value in table.items()]
    return [(key, value, entry.sources.get(key, "")) for key, value in own]


def _entry_rows(entry: Entry, table: dict[str, Any]) -> list[dict[str, Any]]:
    if "cases" in table:
        return [{"case": case["name"]} for case in table["cases"]]
    return [{"figure": key, "value": value, "source": source} for key, value, source in _figures(entry)]


def _render_entry(kind: str, entry: Entry) -> str:
    from charllm.sweep.study import load_study

    if kind == "studies":
        study = load_study(entry.name)
        lines = [*wrap_all([f"{study.name}: {study.about}"]), "", *(f"  {case.name}" for case in study.cases)]
        corrections = wrap_all(f"- {text}" for text in study.corrections)
        return "\n".join([*lines, "", "Corrections to the source:", *corrections])
    figures = _figures(entry)
    # A source is written out once, under the table.
    numbers = {text: number for number, text in enumerate(dict.fromkeys(text for *_, text in figures if text), start=1)}
    cells = [
        [key, _short(key, value), f"{source.partition(':')[0]} [{numbers[source]}]" if source else "-"]
        for key, value, source in figures
    ]
    listed = wrap_all(f"[{number}] {text}" for text, number in numbers.items())
    return "\n".join([render_table(f"{kind}: {entry.name}", ["figure", "value", "source"], cells), "", *listed])
