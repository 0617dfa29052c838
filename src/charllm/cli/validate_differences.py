"""`charllm validate differences`: what one change of a run does, predicted against measured."""

from __future__ import annotations

import argparse
from typing import Any

from charllm.cli.progress import track
from charllm.report.tables import render_table, wrap_all
from charllm.units import format_percent

COLUMNS = ["change", "quantity", "pairs", "clear", "signs right", "effect", "error", "p90", "error/effect",
           "rule", "noise"]  # fmt: skip
LEAST_PAIRS = 3
"""A kind of change with fewer pairs is in the JSON alone."""
LEGEND = (
    "clear: more than twice the noise, which is how far the same difference differs on two boards, or a run from its "
    "repeat. effect: median size of clear ones; error, p90: median and 90th percentile of all; error/effect: median of "
    "clear ones; rule: median error of a rule (time follows FLOPs and the inverse of a clock limit, nothing else "
    "moves).",
    "Runs are in several pairs: pairs are not independent. Published step times are predicted with their model family "
    "left out, as committed. Full V100 nodes without a clock limit slow down by a quarter within a minute, of which "
    "a part is predicted.",
)


def score_all_differences(_arguments: argparse.Namespace) -> dict[str, Any]:
    """Predict every run, and score the effects of all pairs."""
    from charllm.evaluate.differences import TABLES, list_pairs, read_all, score_differences

    pairs = list_pairs(read_all(track(list(TABLES), len(TABLES), "tables of runs")))
    rows = [{**pair._asdict(), "error": pair.error} for pair in pairs if pair.change]
    for row in rows:
        del row["alike"]
    return {"scores": [score._asdict() for score in sorted(score_differences(pairs))], "pairs": rows}


def render_differences(table: dict[str, Any]) -> str:
    """Lay the scores out, a table for each kind of data."""
    parts = []
    for data in dict.fromkeys(row["data"] for row in table["scores"]):
        rows = [row for row in table["scores"] if row["data"] == data and row["pairs"] >= LEAST_PAIRS]
        if rows:
            parts.append(render_table(f"Differences: {data}", COLUMNS, [_cells(row) for row in rows]))
    return "\n\n".join([*parts, *wrap_all(LEGEND)])


def _cells(row: dict[str, Any]) -> list[str]:
    kelvin = "temperature" in row["quantity"]

    def size(name: str) -> str:
        if row[name] is None:
            return "-"
        return f"{row[name]:.1f} K" if kelvin else format_percent(row[name])

    relative = row["error_over_effect"]
    return [
        row["change"], row["quantity"], str(row["pairs"]), str(row["clear"]),
        f"{row['signs_right']} of {row['clear']}" if row["clear"] else "-",
        *(size(name) for name in ("median_effect", "median_error", "p90_error")),
        "-" if relative is None else format_percent(relative, 0), size("simpler_error"), size("noise"),
    ]  # fmt: skip
