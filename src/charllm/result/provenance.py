"""Where a result's numbers come from: versions, the catalog's fingerprint, and the standing of each figure."""

import platform
from typing import Any

from charllm import __version__
from charllm.catalog.tables import PARTS, SOURCE_KINDS, catalog_hash, entries
from charllm.result.columns import Columns, columns_of
from charllm.spec.fields import rules
from charllm.spec.hardware import Gpu
from charllm.spec.run import RunSpec
from charllm.units import format_figure

STANDINGS = (
    "measured",
    "published",
    "datasheet",
    "derived",
    "interpolated",
    "extrapolated",
    "assumed",
    "given",
)

FIGURE_COLUMNS = ("figure", "value", "standing", "source", "meaning", "part")
"""Columns of the table of figures; with its part, the name of a figure is the field of `--set`."""
SCALED = "assumed: scaled from an H200 (catalog/scale.py), or the board's default"
AS_H200 = "assumed: as on an H200"
"""Source of a kernel constant that a GPU has no figure for (catalog/resolve.py fills it in)."""


def describe_provenance(run: RunSpec) -> dict[str, Any]:
    """Return versions, seed and, by standing, the figures that a run rests on."""
    by_standing: dict[str, list[str]] = {}
    for field, source in figure_sources(run).items():
        by_standing.setdefault(standing(source), []).append(field)
    return {
        "charllm": __version__,
        "python": platform.python_version(),
        "catalog": catalog_hash(),
        "seed": run.conditions.seed,
        "figures": {name: sorted(by_standing[name]) for name in STANDINGS if name in by_standing},
    }


def tabulate_figures(run: RunSpec) -> Columns:
    """Return every figure of the catalog that a run rests on, with its value, source and meaning."""
    rows = []
    for field, source in figure_sources(run).items():
        *path, name = field.split(".")
        part: Any = run
        for word in path:
            key, _, place = word.partition("[")
            part = getattr(part, key)
            part = part[int(place.rstrip("]"))] if place else part
        value, meaning = format_figure(name, getattr(part, name)), rules(type(part))[name].doc
        rows.append((name, value, standing(source), source.partition(":")[2].strip(), meaning, ".".join(path)))
    return columns_of(FIGURE_COLUMNS, rows)


def standing(source: str) -> str:
    """Return what kind of knowledge a source is: the word before its colon."""
    word = source.split(":", 1)[0].strip()
    return word if word in SOURCE_KINDS else "given"


def figure_sources(run: RunSpec) -> dict[str, str]:
    """Return the source of every figure behind a run, by dotted field; what differs from the catalog was given."""
    found: dict[str, str] = {}
    fields = {"cluster.node": run.cluster.node} | {
        f"cluster.mixed[{place}].node": other.node for place, other in enumerate(run.cluster.mixed)
    }
    parts: tuple[tuple[str, str, Any], ...] = (
        ("models", "model", run.model),
        ("frameworks", "framework", run.framework),
        ("clusters", "cluster", run.cluster),
        ("fabrics", "cluster.fabric", run.cluster.fabric),
        *(("nodes", field, node) for field, node in fields.items()),
        *(("gpus", f"{field}.gpu", node.gpu) for field, node in fields.items()),
    )
    for kind, path, part in parts:
        entry = entries(kind).get(part.name)
        for name, rule in rules(type(part)).items():
            value = getattr(part, name)
            if rule.kind in ("text", "bool") or value is None:
                continue
            if entry is not None and name in entry.sources and _same(entry.values.get(name), value):
                found[f"{path}.{name}"] = entry.sources[name]
            elif entry is None or (
                (name in entry.values or rule.optional) and not _same(entry.values.get(name), value)
            ):
                found[f"{path}.{name}"] = "given"
    for field, node in fields.items():
        found |= _board_sources(f"{field}.gpu", node.gpu)
    return found


def _board_sources(field: str, gpu: Gpu) -> dict[str, str]:
    """Return the source of each constant of a GPU's board; what no figure is known for was scaled from an H200."""
    entry = entries("gpus").get(gpu.name)
    found = {}
    for part in PARTS:
        known = entry.values.get(part, {}) if entry else {}
        filled = AS_H200 if part == "kernels" else SCALED
        for name in rules(type(getattr(gpu, part))):
            source = entry.sources.get(f"{part}.{name}", filled) if entry else filled
            same = name not in known or _same(known[name], getattr(getattr(gpu, part), name))
            found[f"{field}.{part}.{name}"] = source if same else "given"
    return found


def _same(written: Any, value: Any) -> bool:
    return bool((tuple(written) if isinstance(written, list) else written) == value)
