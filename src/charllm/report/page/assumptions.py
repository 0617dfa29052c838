"""Which data and assumptions is it based on? Every figure behind a run with its value, unit, source and standing."""

from collections import Counter
from typing import Any, NamedTuple

from charllm.report.figure import Column, Figure
from charllm.report.page.view import RunView, missing
from charllm.result.provenance import figure_sources, standing
from charllm.spec.fields import rules
from charllm.spec.run import RunSpec
from charllm.units import format_figure

NAME, KIND, QUESTION = "assumptions", "table", "Which data and assumptions is it based on?"
FIRST = ("assumed", "chosen", "given", "fitted", "extrapolated", "interpolated", "derived", "counted", "datasheet",
         "published", "measured")  # fmt: skip
"""Standings, least certain first."""


class Row(NamedTuple):
    """One figure that a run rests on."""

    figure: str
    value: str
    standing: str
    source: str
    meaning: str
    part: str
    """Where it is set; with its name the field of `--set`. Constants of the simulator have no field."""


def assumptions_figure(run: RunView) -> Figure:
    """Return every figure of the catalog and every constant of the simulator that a run rests on."""
    if run.spec is None:
        return missing(NAME, KIND, QUESTION, "the job wrote no spec, so its hardware is not known")
    rows = [_catalog_row(run.spec, field, source) for field, source in figure_sources(run.spec).items()]
    rows += [Row(one.name, one.value, one.origin, one.text, "", "simulator") for one in run.computed.constants]
    rows.sort(key=lambda row: (FIRST.index(row.standing), row.part, row.figure))
    columns = {word: Column(word, [getattr(row, word) for row in rows]) for word in Row._fields}
    options: dict[str, Any] = {"filters": ["standing", "part"], "search": True}
    return Figure(
        NAME, KIND, QUESTION, _message(Counter(row.standing for row in rows)), columns, options, run.conditions
    )


def _catalog_row(spec: RunSpec, field: str, source: str) -> Row:
    *path, name = field.split(".")
    part: Any = spec
    for word in path:
        key, _, place = word.partition("[")
        part = getattr(part, key)
        part = part[int(place.rstrip("]"))] if place else part
    known, text = standing(source), source.partition(":")[2].strip()
    value, meaning = format_figure(name, getattr(part, name)), rules(type(part))[name].doc
    return Row(name, value, known, text, meaning, ".".join(path))


def _message(counts: Counter[str]) -> str:
    told = ", ".join(f"{counts[word]} {word}" for word in FIRST if counts[word])
    given = " Given ones were set by the request and differ from the catalog." if counts["given"] else ""
    return f"{counts.total()} figures, least certain first: {told}.{given}"
