"""`charllm validate all`: everything charllm is scored on that ships with it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from charllm.cli.progress import track
from charllm.report.tables import render_table, wrap_all
from charllm.units import format_percent

if TYPE_CHECKING:
    from charllm.evaluate.points import Score
    from charllm.evaluate.predictions import Prediction
    from charllm.evaluate.scoreboard import Change

COLUMNS = ["", "rows", "median |error|", "90th percentile", "mean error", "simpler table"]


def score_everything(arguments: argparse.Namespace) -> dict[str, Any]:
    """Predict everything again, or with --quick everything but published rows, and score it."""
    from charllm.evaluate.held_out import hold_out_all, load_rows
    from charllm.evaluate.predictions import describe, load_predictions
    from charllm.evaluate.scoreboard import PARTS, compare, ranked_fraction, read_scoreboard, score_all
    from charllm.result.uncertainty import errors

    rows: Sequence[Prediction] = load_predictions()
    if not arguments.quick:
        published = load_rows()
        held = hold_out_all(published, closed=not arguments.open)
        rows = [describe(one) for one in track(held, len(published), "published rows")]
    scores = score_all(rows, track(list(PARTS), len(PARTS), "other measurements"))
    return {
        "pair_order_fraction": ranked_fraction(rows),
        "scores": [score._asdict() for score in scores],
        "intervals": errors()["held_out"],
        "changed": [_tell_change(change) for change in compare(scores, read_scoreboard())],
    }


def _tell_change(change: Change) -> dict[str, Any]:
    before = {"committed_median": change.committed.median, "committed_p90": change.committed.p90}
    return {**change.score._asdict(), **before, "worse": change.worse}


def render_everything(table: dict[str, Any]) -> str:
    """Lay the scores out as tables."""
    from charllm.evaluate.points import Score
    from charllm.evaluate.scoreboard import PARTS, PUBLISHED

    scores = [Score(**row) for row in table["scores"]]
    parts = [_published(scores)]
    ranked = 100 * table["pair_order_fraction"]
    parts += wrap_all([PUBLISHED])
    parts += wrap_all([f"{ranked:.1f} % of pairs that differ by more than 10 % are ranked correctly"])
    for by in ("class", "source", "GPU", "strategy", "GPUs", "parameters"):
        split = {"source": "source left out", "GPU": "GPU left out"}.get(by, "family left out")
        own = [score for score in scores if score.part == "published" and (score.by, score.split) == (by, split)]
        own.sort(key=lambda score: -score.rows)
        parts.append(render_table(f"Published step times by {by}, {split}", COLUMNS, [[one.group, *_cells(one)]
                                                                                     for one in own]))  # fmt: skip
    for name, part in PARTS.items():
        own = [score for score in scores if score.part == name and score.by == "all"]
        cells = [[f"{score.quantity} ({score.split})", *_cells(score)] for score in own]
        parts += [render_table(f"{name[0].upper()}{name[1:]}", COLUMNS, cells), *wrap_all([part.about])]
    parts.append(_intervals(table["intervals"]["sources"]))
    parts.append(_changes(table["changed"]))
    return "\n\n".join(parts)


def _published(scores: Sequence[Score]) -> str:
    own = [score for score in scores if score.part.startswith("published") and score.by == "all"]
    cells = [[score.split + score.part.removeprefix("published"), *_cells(score)] for score in own]
    return render_table("Step time, predicted against published", COLUMNS, cells)


def _cells(score: Score) -> list[str]:
    from charllm.result.differences import TEMPERATURES

    unit = "K" if score.quantity in TEMPERATURES else "%"
    factor = 1 if score.quantity in TEMPERATURES else 100
    figures = (score.median, score.p90, score.mean, score.baseline_median)
    return [str(score.rows), *("-" if figure is None else f"{factor * figure:.1f} {unit}" for figure in figures)]


def _intervals(sources: dict[str, Any]) -> str:
    cells = [
        [name, str(one["rows"]), *(format_percent(one[f"{each}_fraction"], 0) for each in ("covered", "width"))]
        for name, one in sources.items()
    ]
    title = "Intervals of 90 %, as committed: each source by the intervals that the others give"
    return render_table(title, ["source", "rows", "inside", "median width"], cells)


def _changes(changed: list[dict[str, Any]]) -> str:
    """Say what differs from the committed scoreboard."""
    if not changed:
        return "Every score is that of the committed scoreboard."
    cells = [
        [", ".join(row[name] for name in ("part", "split", "quantity", "group")), "worse" if row["worse"] else "better",
         *(f"{row[name]:.4g}" for name in ("committed_median", "median", "committed_p90", "p90"))]
        for row in changed
    ]  # fmt: skip
    columns = ["", "", "median before", "now", "90th percentile before", "now"]
    return render_table("Against the committed scoreboard (make scoreboard renews it)", columns, cells)
