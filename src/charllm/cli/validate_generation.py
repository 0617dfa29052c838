"""`charllm validate generation` and `rl`: published generation, and steps of reinforcement learning, predicted."""

import argparse
from typing import Any

from charllm.report.tables import render_table, wrap_all
from charllm.units import format_change, format_percent

COLUMNS = ["rows of", "scored", "median", "90th percentile", "mean"]


def score_generation_rows(_arguments: argparse.Namespace) -> dict[str, Any]:
    """Predict every row and return its scores."""
    from charllm.evaluate.generation import score_generation

    return score_generation()


def render_generation_rows(table: dict[str, Any]) -> str:
    """Lay the scores out: by question and by source, and by source."""
    parts = [
        render_table(
            "Errors of published generation; no constant is fitted on it, its errors were seen",
            COLUMNS,
            _cells(table["scores"]),
        ),
        render_table("Errors by source", COLUMNS, _cells(table["sources"])),
    ]
    lines = ["under load: seconds of the median step; power of steps and of the prompts that are read between them"]
    lines += [f"not described: {count} rows ({reason})" for reason, count in sorted(table["left_out"].items())]
    lines.append("time to first token under load is queueing: not predicted")
    return "\n\n".join([*parts, "\n".join(wrap_all(lines))])


def score_rl_rows(_arguments: argparse.Namespace) -> dict[str, Any]:
    """Predict every published step of reinforcement learning and return its scores."""
    from charllm.evaluate.rl import score_rl

    return score_rl()


def render_rl_rows(table: dict[str, Any]) -> str:
    """Lay the scores out: by part of a step, and by source."""
    parts = [
        render_table("Errors of published steps of reinforcement learning; nothing is fitted on them", COLUMNS,
                     _cells(table["scores"])),
        render_table("Errors of whole steps by source", COLUMNS, _cells(table["sources"])),
    ]  # fmt: skip
    lines = [f"not described: {count} rows ({reason})" for reason, count in sorted(table["left_out"].items())]
    return "\n\n".join([*parts, "\n".join(wrap_all(lines))])


def _cells(scores: dict[str, Any]) -> list[list[str]]:
    return [
        [name, str(one["scored"]), *(format_percent(one[key]) for key in ("median_abs_error_fraction",
         "p90_abs_error_fraction")), format_change(one["mean_error_fraction"])]
        for name, one in scores.items() if one["scored"]
    ]  # fmt: skip
