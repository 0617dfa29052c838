"""Score predictions against published measurements.

`results FILE.csv` reads a table of published training runs: step time is scored (tokens per second converted), and
memory in the measure each source prints. Measured columns are read only after every row has been predicted.
"""

import argparse
import json
from typing import Any

from charllm.report.tables import render_table
from charllm.validate.memory import MemoryScore, Skipped, read_rows, score_memory, summarise
from charllm.validate.scores import TimeScore, baseline_errors, describe_by, describe_errors, order_pairs
from charllm.validate.time import Prediction, predict_rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("what", choices=["results"], help="what the file holds")
    parser.add_argument("file", metavar="FILE.csv", help="the measurements")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Score and print."""
    rows = read_rows(arguments.file)
    predictions, skipped = predict_rows(rows)
    memory = score_memory(rows)
    table = _as_table(len(rows), predictions, skipped, *memory)
    print(json.dumps(table, indent=2) if arguments.json else _render(table))
    return 0


def _as_table(
    rows: int,
    predictions: list[Prediction],
    skipped: list[Skipped],
    memory: list[MemoryScore],
    memory_skipped: list[Skipped],
) -> dict[str, Any]:
    scores = [prediction.score for prediction in predictions if prediction.score is not None]
    ordered, pairs = order_pairs(scores)
    return {
        "rows": rows,
        **describe_errors([score.error_fraction for score in scores]),
        "skipped": [row._asdict() for row in skipped],
        "predicted_oom": sum(not prediction.fits for prediction in predictions),
        "by_source": describe_by(scores, lambda score: score.source),
        "by_gpu": describe_by(scores, lambda score: score.gpu),
        "by_class": describe_by(scores, lambda score: score.kind),
        "pair_order_fraction": ordered,
        "pairs": pairs,
        "baseline": describe_errors(baseline_errors(scores)),
        "memory": {
            **summarise(memory),
            "skipped": [row._asdict() for row in memory_skipped],
            "predictions": [
                {
                    "id": score.id,
                    "measure": score.measure,
                    "predicted": score.predicted_bytes,
                    "measured": score.measured_bytes,
                    "error_fraction": score.error_fraction,
                }
                for score in memory
            ],
        },
        "predictions": [_prediction(prediction) for prediction in predictions],
    }


def _prediction(prediction: Prediction) -> dict[str, Any]:
    score: TimeScore | None = prediction.score
    return {
        "id": prediction.id,
        "predicted": prediction.predicted_s,
        "measured": score.measured_s if score else None,
        "error_fraction": score.error_fraction if score else None,
        "fits": prediction.fits,
    }


def _render(table: dict[str, Any]) -> str:
    columns = ["", "rows", "median |error|", "90th percentile", "mean error"]
    groups = {
        "all": table,
        **table["by_class"],
        **table["by_gpu"],
        **table["by_source"],
        "constant FLOP/s": table["baseline"],
    }
    cells = [[name, *_cells(group)] for name, group in groups.items()]
    parts = [render_table("Step time, predicted against published", columns, cells)]
    if table["pairs"]:
        share = 100 * table["pair_order_fraction"]
        parts.append(f"{share:.1f} % of {table['pairs']} pairs of one source, model and GPU are in the measured order")
    memory = {**table["memory"]["by_source"], "all": table["memory"]}
    if table["memory"]["scored"]:
        cells = [[name, *_cells(group)] for name, group in memory.items()]
        parts.append(render_table("Peak memory, predicted against published", columns, cells))
    reasons: dict[str, int] = {}
    for row in table["skipped"]:
        reasons[row["reason"]] = reasons.get(row["reason"], 0) + 1
    if reasons:
        listed = [[str(count), reason] for reason, count in sorted(reasons.items(), key=lambda pair: -pair[1])]
        parts.append(render_table("Not scored", ["rows", "reason"], listed))
    return "\n\n".join(parts)


def _cells(group: dict[str, Any]) -> list[str]:
    names = ("median_abs_error_fraction", "p90_abs_error_fraction", "mean_error_fraction")
    return [str(group["scored"]), *("-" if group[name] is None else f"{100 * group[name]:.1f} %" for name in names)]
