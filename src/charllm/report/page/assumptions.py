"""Which data and assumptions is it based on? Every figure behind a run with its value, unit, source and standing."""

from collections import Counter
from typing import Any

from charllm.report.figure import Column, Figure
from charllm.report.page.view import RunView, missing
from charllm.result.columns import rows_of
from charllm.result.provenance import FIGURE_COLUMNS

NAME, KIND, QUESTION = "assumptions", "table", "Which data and assumptions is it based on?"
FIRST = ("assumed", "chosen", "given", "fitted", "extrapolated", "interpolated", "derived", "counted", "datasheet",
         "published", "measured")  # fmt: skip
"""Standings, least certain first."""


def assumptions_figure(run: RunView) -> Figure:
    """Return every figure of the catalog and every constant of the simulator that a run rests on."""
    figures = run.table("figures")
    if figures is None:
        return missing(NAME, KIND, QUESTION, "the figures behind this run are not stored, or not known")
    rows = rows_of(figures) + [
        {"figure": one["name"], "value": one["value"], "standing": one["origin"], "source": one["text"],
         "meaning": "", "part": "simulator"}
        for one in (rows_of(run.background.constants) if run.background else [])
    ]  # fmt: skip
    rows.sort(key=lambda row: (FIRST.index(row["standing"]), row["part"], row["figure"]))
    columns = {word: Column(word, [row[word] for row in rows]) for word in FIGURE_COLUMNS}
    options: dict[str, Any] = {"filters": ["standing", "part"], "search": True}
    return Figure(
        NAME, KIND, QUESTION, _message(Counter(row["standing"] for row in rows)), columns, options, run.conditions
    )


def _message(counts: Counter[str]) -> str:
    told = ", ".join(f"{counts[word]} {word}" for word in FIRST if counts[word])
    given = " Given ones were set by the request and differ from the catalog." if counts["given"] else ""
    return f"{counts.total()} figures, least certain first: {told}.{given}"
