"""Score predictions against measurements.

`results [FILE.csv]` reads a table of published training runs (default: the table in the package). Step time is scored
(tokens per second are converted), and memory with each source's definition. Measured columns are read only after
every row has been predicted. Step times are those of the closed loop of power, temperature and clocks, as `charllm
simulate` computes them; --open predicts at one solved clock, which is faster and within a few per cent. Times of some
sources are corrected for a stated reason; --doubtful scores doubtful rows separately.

`ops FILE.csv --gpu NAME|FILE.toml` reads single ops, and predicts time, power and clock from their shapes.

`nccl FILE --cluster NAME|FILE.toml` reads a folder or table of `charllm bench nccl`, and predicts every collective.

`generation` predicts published prefill, decode and power of engines, `rl` published steps of reinforcement learning and
their phases, with nothing fitted on them; they read no file.

`known` predicts well-known training runs that are described from their papers; it reads no file.

`all` scores all data in the package, published rows held out, and lists differences from the committed scoreboard. It
takes minutes on two processes; --quick uses the committed predictions of published rows and ends within a minute;
--open predicts them at one solved clock.

`differences` scores what one change of a run does: pairs of runs of one board or source that differ in one setting, by
kind of change and quantity, beside the noise of such a difference and a simple rule. It reads no file.

`heat FILE.csv --gpu NAME` reads recorded power and temperature, and predicts the temperature from the power alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from charllm.cli.calibrate_network import render_network, score_network
from charllm.cli.output import add_format_flags, print_as
from charllm.cli.plots import pen
from charllm.cli.progress import track
from charllm.cli.validate_all import render_everything, score_everything
from charllm.cli.validate_differences import render_differences, score_all_differences
from charllm.cli.validate_generation import (
    render_generation_rows,
    render_rl_rows,
    score_generation_rows,
    score_rl_rows,
)
from charllm.cli.validate_known import render_known, score_known
from charllm.errors import SpecError
from charllm.report.tables import render_table, wrap_all
from charllm.units import format_percent

if TYPE_CHECKING:
    from charllm.evaluate.memory import MemoryScore
    from charllm.evaluate.published import Row
    from charllm.evaluate.scores import Skipped, TimeScore
    from charllm.evaluate.time import Prediction

EXAMPLES = (
    "charllm validate all --quick",
    "charllm validate differences",
    "charllm validate generation",
    "charllm validate rl",
    "charllm validate known --plots",
    "charllm validate results --open",
    "charllm validate results my_runs.csv --csv",
    "charllm validate ops runs/ops/ops.csv --gpu h200",
    "charllm validate heat trace.csv --gpu h200",
    "charllm validate nccl runs/nccl --cluster h200x32",
)


class Scoring(NamedTuple):
    """How one kind of file is scored and shown."""

    score: Callable[[argparse.Namespace], dict[str, Any]]
    render: Callable[[dict[str, Any]], str]
    needs: tuple[str, ...] = ()
    """What must be given: FILE, --gpu."""
    rows: str = "predictions"
    """Key of its list of rows, one for each measurement."""
    drawn: tuple[str, str, str] | None = None
    """Keys of a row's name, predicted and measured step time, where rows have them: they can be drawn."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("what", choices=list(SCORINGS), metavar="KIND", help=f"what is scored: {', '.join(SCORINGS)}")
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE.csv",
        help="the measurements (default for results: the table shipped with charllm)",
    )
    parser.add_argument("--gpu", metavar="NAME", help="the GPU that was measured, as in `charllm catalog gpus`")
    parser.add_argument(
        "--cluster", metavar="NAME|FILE", help="nccl: the cluster that was measured (default the benchmark's own)"
    )
    parser.add_argument(
        "--open", action="store_true", help="results, all: predict at one solved clock; faster than the closed loop"
    )
    parser.add_argument("--quick", action="store_true", help="all: use the committed predictions of published rows")
    parser.add_argument(
        "--doubtful",
        action="store_true",
        help="results: score doubtful rows (implausible or incompletely described) separately",
    )
    add_format_flags(parser, table="a row for each prediction")
    parser.add_argument(
        "--plots", action="store_true", help="results, known: also draw predicted against measured step times"
    )


def run(arguments: argparse.Namespace) -> int:
    """Score and print."""
    scoring = SCORINGS[arguments.what]
    if "--gpu" in scoring.needs and not arguments.gpu:
        raise SpecError("--gpu", arguments.gpu, "a name from `charllm catalog gpus`, such as h200")
    if "FILE" in scoring.needs and arguments.file is None:
        raise SpecError("FILE", None, "a CSV file of measurements")
    table = scoring.score(arguments)
    print_as(arguments, table, lambda: _render(scoring, table, arguments.plots), lambda: table[scoring.rows])
    return 0


def _render(scoring: Scoring, table: dict[str, Any], plots: bool) -> str:
    """Return the scores as text, with a figure where one was asked for and the rows are step times."""
    from charllm.report.page.scores import scores_figure
    from charllm.report.plots.draw import draw_figure

    text = scoring.render(table)
    if not plots:
        return text
    if scoring.drawn is None:
        possible = " or ".join(name for name, each in SCORINGS.items() if each.drawn)
        raise SpecError("--plots", True, f"{possible}: the others have no step times to draw")
    rows = [tuple(row[key] for key in scoring.drawn) for row in table[scoring.rows]]
    return f"{text}\n\n{draw_figure(scores_figure(rows), pen())}"


def _score_results(arguments: argparse.Namespace) -> dict[str, Any]:
    from charllm.evaluate.corrections import doubtful_reason
    from charllm.evaluate.memory import PUBLISHED, read_rows, score_memory
    from charllm.evaluate.time import predict_rows

    rows = read_rows(arguments.file or PUBLISHED)
    apart = [row for row in rows if arguments.doubtful and doubtful_reason(row["id"])]
    rows = [row for row in rows if row not in apart]
    predictions, skipped = predict_rows(track(iter(rows), len(rows), "rows"), closed=not arguments.open)
    table = _as_table(len(rows), predictions, skipped, *score_memory(rows))
    if arguments.doubtful:
        table["doubtful"] = _score_doubtful(apart, closed=not arguments.open)
    return table


def _score_doubtful(rows: list[Row], *, closed: bool) -> dict[str, Any]:
    """Score doubtful rows by themselves, each with the reason why it is doubtful."""
    from charllm.evaluate.corrections import doubtful_reason
    from charllm.evaluate.scores import describe_errors
    from charllm.evaluate.time import predict_rows

    predictions, skipped = predict_rows(track(iter(rows), len(rows), "doubtful rows"), closed=closed)
    errors = [prediction.score.error_fraction for prediction in predictions if prediction.score is not None]
    listed = [{**_prediction(prediction), "reason": doubtful_reason(prediction.id)} for prediction in predictions]
    return {**describe_errors(errors), "rows": listed, "skipped": [row._asdict() for row in skipped]}


def _score_heat(arguments: argparse.Namespace) -> dict[str, Any]:
    from charllm.evaluate.heat import score_heat
    from charllm.evaluate.heat_trace import read_trace

    return score_heat(read_trace(arguments.file), arguments.gpu)


def _score_ops(arguments: argparse.Namespace) -> dict[str, Any]:
    from charllm.evaluate.ops import score_ops
    from charllm.evaluate.ops_table import read_ops

    return score_ops(*read_ops(arguments.file), arguments.gpu)


def _as_table(
    rows: int,
    predictions: list[Prediction],
    skipped: list[Skipped],
    memory: list[MemoryScore],
    memory_skipped: list[Skipped],
) -> dict[str, Any]:
    from charllm.evaluate.corrections import corrections
    from charllm.evaluate.memory import summarise
    from charllm.evaluate.scores import baseline_errors, describe_by, describe_errors, describe_scores, order_pairs

    scores = [prediction.score for prediction in predictions if prediction.score is not None]
    ordered, pairs = order_pairs(scores)
    return {
        "rows": rows,
        **describe_scores(scores),
        "skipped": [row._asdict() for row in skipped],
        "predicted_oom": sum(not prediction.fits for prediction in predictions),
        "by_source": describe_by(scores, lambda score: score.source),
        "by_gpu": describe_by(scores, lambda score: score.gpu),
        "by_class": describe_by(scores, lambda score: score.kind),
        "by_host": describe_by(scores, lambda score: score.host),
        "corrections": {
            source: correction["reason"]
            for source, correction in corrections().items()
            if any(score.source == source for score in scores)
        },
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
        "interval": score.interval_s if score else None,
        "host": score.host if score else None,
        "fits": prediction.fits,
    }


def _render_results(table: dict[str, Any]) -> str:
    columns = ["", "rows", "median |error|", "90th percentile", "mean error", "in their 90 % interval"]
    groups = {
        "all": table,
        **table["by_class"],
        **table["by_gpu"],
        **table["by_source"],
        **({f"{name} hosts": group for name, group in table["by_host"].items()} if len(table["by_host"]) > 1 else {}),
        "baseline: constant FLOP/s": table["baseline"],
        **({"doubtful (not in the above)": table["doubtful"]} if "doubtful" in table else {}),
    }
    inside = {name: group.get("covered_fraction") for name, group in groups.items()}
    cells = [[name, *_cells(group), "-" if inside[name] is None else format_percent(inside[name], 0)]
             for name, group in groups.items()]  # fmt: skip
    parts = [render_table("Step time, predicted against published", columns, cells)]
    if table["pairs"]:
        share = 100 * table["pair_order_fraction"]
        parts += wrap_all(
            [f"{share:.1f} % of {table['pairs']} pairs of one source, model and GPU are ranked correctly"]
        )
    parts += wrap_all(f"corrected times of {source}: {reason}" for source, reason in table["corrections"].items())
    if "doubtful" in table:
        cells = [[row["id"], format_percent(row["error_fraction"]), row["reason"]] for row in table["doubtful"]["rows"]]
        parts.append(render_table("Doubtful rows", ["row", "error", "reason"], cells))
    memory = {**table["memory"]["by_meaning"], **table["memory"]["by_source"], "all": table["memory"]}
    if table["memory"]["scored"]:
        cells = [[name, *_cells(group)] for name, group in memory.items()]
        parts.append(render_table("Peak memory, predicted against published", columns[:-1], cells))
    reasons: dict[str, int] = {}
    for row in table["skipped"]:
        reasons[row["reason"]] = reasons.get(row["reason"], 0) + 1
    if reasons:
        listed = [[str(count), reason] for reason, count in sorted(reasons.items(), key=lambda pair: -pair[1])]
        parts.append(render_table("Not scored", ["rows", "reason"], listed))
    return "\n\n".join(parts)


def _cells(group: dict[str, Any]) -> list[str]:
    names = ("median_abs_error_fraction", "p90_abs_error_fraction", "mean_error_fraction")
    return [str(group["scored"]), *(format_percent(group[name]) for name in names)]


def _render_heat(table: dict[str, Any]) -> str:
    names = ("rmse_k", "rmse_with_offset_k", "rmse_1s_k", "mean_error_k", "max_error_k", "steady_error_k")
    columns = [
        "", "ambient C", "RMSE K", "RMSE K less offset", "RMSE K of 1 s means", "mean error K", "largest error K",
        "steady |error| K",
    ]  # fmt: skip
    groups = [(f"GPU {row['gpu']}", f"{row['ambient_c']:.1f}", row) for row in table["gpus"]]
    groups += [("all", "", table)] if len(groups) > 1 else []
    groups += [("baseline: one resistance, no lag", "", table["baseline"])]
    cells = [
        [name, ambient, *("-" if row[key] is None else f"{row[key]:.2f}" for key in names)]
        for name, ambient, row in groups
    ]
    title = f"Temperature from power alone, {table['gpu']} in {table['node']}, {table['seconds']:.0f} s"
    parts = [render_table(title, columns, cells)]
    if table["gap_error_k"] is not None:
        parts.append(f"temperature of rear less front slots: off by {table['gap_error_k']:+.2f} K")
    parts.append(f"not scored: the first {table['start_window_s']:.0f} s, which tell the state at the beginning")
    offsets = ", ".join(f"{row['offset_k']:+.2f}" for row in table["gpus"])
    parts.append(f"offset of each GPU that would remove its mean error, K: {offsets}")
    return "\n".join([parts[0], *wrap_all(parts[1:])])


def _render_ops(table: dict[str, Any]) -> str:
    from charllm.evaluate.ops import QUANTITIES

    columns = ["", "ops", *(f"{name} {what}" for name in QUANTITIES for what in ("median", "p90", "mean"))]
    groups = {
        "all": table["overall"],
        **table["by_class"],
        "baseline: one figure per class": table["baseline"]["overall"],
    }
    groups |= {f"  {name}": found for name, found in table["baseline"]["by_class"].items()}
    cells = [
        [name, str(found["seconds"]["scored"]), *(cell for each in QUANTITIES for cell in _cells(found[each])[1:])]
        for name, found in groups.items()
    ]
    # Columns that a narrow terminal has no room for, the least important first.
    drop = tuple(f"{name} {what}" for what in ("mean", "p90") for name in reversed(QUANTITIES))
    parts = [
        render_table(
            f"Ops, predicted against measured, {table['gpu']}: |error|", columns, cells, drop=drop, where="--json"
        )
    ]
    peaks = table["by_class"].get("burst", {}).get("peak")
    if peaks and peaks["scored"]:
        parts.append("peak power of bursts: " + ", ".join(_cells(peaks)[1:]) + " (median, p90, mean)")
    parts += wrap_all(f"not scored: {row['name']}: {row['reason']}" for row in table["skipped"])
    return "\n".join(parts)


SCORINGS = {
    "results": Scoring(_score_results, _render_results, drawn=("id", "predicted", "measured")),
    "ops": Scoring(_score_ops, _render_ops, ("FILE", "--gpu")),
    "heat": Scoring(_score_heat, _render_heat, ("FILE", "--gpu"), rows="gpus"),
    "nccl": Scoring(score_network, render_network, ("FILE",)),
    "all": Scoring(score_everything, render_everything, rows="scores"),
    "differences": Scoring(score_all_differences, render_differences, rows="pairs"),
    "generation": Scoring(score_generation_rows, render_generation_rows),
    "rl": Scoring(score_rl_rows, render_rl_rows),
    "known": Scoring(score_known, render_known, drawn=("name", "predicted_s", "measured_s")),
}
"""What a file may hold."""
