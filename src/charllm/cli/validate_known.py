"""`charllm validate known`: predicted step times of well-known training runs against their papers."""

import argparse
from typing import Any

from charllm.cli.progress import track
from charllm.report.tables import render_table, wrap_all
from charllm.units import format_change, format_percent

COLUMNS = ["run", "GPUs", "measured s", "predicted s", "error", "fits"]


def score_known(_arguments: argparse.Namespace) -> dict[str, Any]:
    """Simulate every known run and return its scores."""
    from charllm.evaluate.known_runs import known_runs, score_run, summarise

    runs = known_runs()
    return summarise([score_run(run) for run in track(iter(runs), len(runs), "runs")])


def render_known(table: dict[str, Any]) -> str:
    """Lay the runs out as a table, those with several assumed settings apart."""
    counted = [row for row in table["predictions"] if row["scored"]]
    apart = [row for row in table["predictions"] if not row["scored"]]
    parts = [render_table("Step time of well-known runs, predicted against their papers", COLUMNS, _cells(counted))]
    if apart:
        parts.append(render_table("Several settings assumed; not counted in the scores", COLUMNS, _cells(apart)))
    parts.append(_describe_scores(table))
    return "\n\n".join(parts)


def _cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            row["name"],
            f"{row['gpus']:,} {row['gpu']}",
            f"{row['measured_s']:.4g}",
            f"{row['predicted_s']:.4g}",
            format_change(row["error_fraction"]),
            "yes" if row["fits"] else "no",
        ]
        for row in rows
    ]


def _describe_scores(table: dict[str, Any]) -> str:
    names = ("median_abs_error_fraction", "p90_abs_error_fraction", "max_abs_error_fraction")
    median, p90, largest = (format_percent(table[name]) for name in names)
    lines = [
        f"{table['scored']} runs scored: median error {median}, 90th percentile {p90}, "
        f"mean {format_change(table['mean_error_fraction'])}",
        f"largest error {largest}: {table['worst']}",
    ]
    lines += [f"{row['name']}: {note}" for row in table["predictions"] for note in row["notes"]]
    return "\n".join(wrap_all(lines))
