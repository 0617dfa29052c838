"""Score predictions against published measurements.

`results FILE.csv` reads a table of published training runs. Memory is scored in the measure each source prints; time
is not predicted yet, and not scored.
"""

import argparse
import json
from typing import Any

from charllm.report.tables import render_table
from charllm.validate.memory import MemoryScore, Skipped, read_rows, score_memory, summarise

TIME_KEYS = ("median_abs_error_fraction", "p90_abs_error_fraction", "mean_error_fraction", "pair_order_fraction")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("what", choices=["results"], help="what the file holds")
    parser.add_argument("file", metavar="FILE.csv", help="the measurements")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Score and print."""
    rows = read_rows(arguments.file)
    scores, skipped = score_memory(rows)
    print(json.dumps(_as_table(len(rows), scores, skipped), indent=2) if arguments.json else _render(scores, skipped))
    return 0


def _as_table(rows: int, scores: list[MemoryScore], skipped: list[Skipped]) -> dict[str, Any]:
    return {
        "rows": rows,
        "scored": 0,
        **dict.fromkeys(TIME_KEYS),
        "warnings": ["step time is not predicted yet, so no row's time is scored"],
        "memory": {
            **summarise(scores),
            "skipped": [row._asdict() for row in skipped],
            "predictions": [
                {
                    "id": score.id,
                    "measure": score.measure,
                    "predicted": score.predicted_bytes,
                    "measured": score.measured_bytes,
                    "error_fraction": score.error_fraction,
                }
                for score in scores
            ],
        },
    }


def _render(scores: list[MemoryScore], skipped: list[Skipped]) -> str:
    summary = summarise(scores)
    groups = {**summary["by_source"], "all": summary}
    cells = [[name, *_cells(group)] for name, group in groups.items()]
    columns = ["source", "rows", "median |error|", "90th percentile", "mean error"]
    table = render_table("Peak memory, predicted against published", columns, cells)
    reasons = [[row.id, row.reason] for row in skipped]
    return table + ("\n\n" + render_table("Not scored", ["row", "reason"], reasons) if reasons else "")


def _cells(group: dict[str, Any]) -> list[str]:
    names = ("median_abs_error_fraction", "p90_abs_error_fraction", "mean_error_fraction")
    return [str(group["scored"]), *("-" if group[name] is None else f"{100 * group[name]:.1f} %" for name in names)]
