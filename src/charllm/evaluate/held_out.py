"""Score published rows with constants that were fitted without them, through the closed loop.

    python -m charllm.evaluate.held_out [--open] [--json]

Each model family is left out in turn, then each source. `make fit` writes the constants of every fold
(evaluate/data/fit.json); here nothing is fitted.
"""

import argparse
import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import resources
from typing import Any, NamedTuple

from charllm.errors import CharllmError
from charllm.evaluate.corrections import corrected_s, doubtful_reason, source_of
from charllm.evaluate.fit import FitRow, Values, default_values, predicted_s, timeline_of, with_values
from charllm.evaluate.scores import TimeScore, describe_errors, order_pairs
from charllm.evaluate.time import measured_step_s, resolve_row, row_class
from charllm.simulate.one_clock import solve_step
from charllm.simulate.steady import build_machine, play_to_steady
from charllm.workload.model_flop import model_flop
from charllm.workload.step import build_step

FAMILIES = (
    "llama", "qwen2", "qwen3", "deepseek", "kimi", "moonlight", "mixtral", "gpt-oss", "grok", "nemotron3", "nemotron",
    "mpt", "bloom", "internlm", "gpt", "aquila", "baichuan", "chatglm",
)  # fmt: skip
RELATIVES = {"kimi": "deepseek", "moonlight": "deepseek"}
"""Families that are another's architecture."""


class Held(NamedTuple):
    """One row, predicted with constants that were fitted without what it belongs to."""

    row: FitRow
    predicted_s: float

    @property
    def error_fraction(self) -> float:
        """Prediction over measurement, minus one."""
        return self.predicted_s / self.row.measured_s - 1


def family_of(model: str) -> str:
    """Return the family of a model, by its name."""
    name = next((family for family in FAMILIES if family in model.lower()), model.lower().split("-")[0])
    return RELATIVES.get(name, name)


def load_rows() -> list[FitRow]:
    """Read the rows that ship with charllm, have a time and can be described; doubtful ones are left out."""
    table = resources.files("charllm.evaluate") / "data" / "published_training_results.csv"
    found = []
    with table.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            measured_s = measured_step_s(row)
            if measured_s is None or doubtful_reason(row["id"]):
                continue
            try:
                run = resolve_row(row)
            except (CharllmError, ValueError):
                continue
            found.append(FitRow(row["id"], source_of(row["id"]), family_of(run.model.name), run, build_step(run),
                                corrected_s(row["id"], measured_s, run)))  # fmt: skip
    return found


def load_folds() -> dict[str, Any]:
    """Read the constants of all rows, and of each family and source left out."""
    text = (resources.files("charllm.evaluate") / "data" / "fit.json").read_text(encoding="utf-8")
    folds: dict[str, Any] = json.loads(text)
    return folds


def closed_s(values: Values, row: FitRow) -> float:
    """Return the step time of a row at the clocks of the closed loop."""
    step = replace(row.step, run=with_values(row.run, values))
    return play_to_steady(build_machine(step, solve_step(step, timeline=timeline_of(values)))).step_time_s


def is_untuned(row: FitRow) -> bool:
    """Tell whether a row's host is slower than a tuned one."""
    return row.run.cluster.node.host_speed_fraction < 1


def predict_all(rows: Sequence[FitRow], values_of: Sequence[Values], *, closed: bool) -> list[Held]:
    """Predict rows, each with its own constants, on two processes."""
    predict = closed_s if closed else predicted_s
    with ProcessPoolExecutor(2) as pool:
        return [
            Held(row, seconds)
            for row, seconds in zip(rows, pool.map(partial(_call, predict), values_of, rows, chunksize=8), strict=True)
        ]


def _call(predict: Callable[[Values, FitRow], float], values: Values, row: FitRow) -> float:
    return predict(values, row)


def score(held: Iterable[Held]) -> dict[str, Any]:
    """Return errors by class, untuned hosts apart."""
    groups: dict[str, list[float]] = {"all": [], "dense": [], "lora": [], "moe": [], "untuned": []}
    for one in held:
        if is_untuned(one.row):
            groups["untuned"].append(one.error_fraction)
            continue
        groups["all"].append(one.error_fraction)
        groups[row_class(one.row.run)].append(one.error_fraction)
    return {name: describe_errors(errors) for name, errors in groups.items()}


def ranked_fraction(held: Iterable[Held]) -> float:
    """Return the share of pairs of one source, model and GPU that differ by 10 % and are ranked correctly."""
    scores = [
        TimeScore(one.row.id, one.row.source, one.row.run.cluster.gpu.name, one.row.run.training.precision,
                  row_class(one.row.run), f"{one.row.source} {one.row.run.model.name} {one.row.run.cluster.gpu.name}",
                  one.row.measured_s, one.predicted_s, model_flop(one.row.run) / one.row.run.parallelism.world)
        for one in held if not is_untuned(one.row)
    ]  # fmt: skip
    return order_pairs(scores)[0] or 0.0


def evaluate(*, closed: bool = True) -> dict[str, Any]:
    """Score every row left out by family and by source, with priors alone, and with constants of all rows."""
    rows, folds = load_rows(), load_folds()
    by_family = predict_all(rows, [folds["family"][row.family] for row in rows], closed=closed)
    by_source = predict_all(rows, [folds["source"][row.source] for row in rows], closed=closed)
    priors = predict_all(rows, [default_values()] * len(rows), closed=False)
    return {
        "family left out": {**score(by_family), "pairs ranked": ranked_fraction(by_family)},
        "source left out": score(by_source),
        "priors alone": score(priors),
        "all rows (in sample)": score(predict_all(rows, [folds["all"]] * len(rows), closed=False)),
        "rows": [{"id": one.row.id, "family": one.row.family, "predicted_s": one.predicted_s,
                  "measured_s": one.row.measured_s} for one in by_family],
    }  # fmt: skip


def render(found: Mapping[str, Any]) -> str:
    """Return the scores as a table."""
    lines = [f"{'':22s}{'class':9s}{'rows':>6s}{'median':>9s}{'p90':>8s}{'mean':>8s}"]
    for split, scores in found.items():
        if split == "rows":
            continue
        for kind, one in scores.items():
            if kind == "pairs ranked":
                lines.append(f"{split:22s}pairs that differ by 10 % ranked correctly: {100 * one:.1f} %")
            elif one["scored"]:
                median, p90, mean = (100 * one[f"{name}_error_fraction"] for name in ("median_abs", "p90_abs", "mean"))
                lines.append(f"{split:22s}{kind:9s}{one['scored']:6d}{median:8.1f}%{p90:7.1f}%{mean:+7.1f}%")
    return "\n".join(lines)


def main() -> None:
    """Print the scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--open", action="store_true", help="at one solved clock instead of the closed loop; faster")
    parser.add_argument("--json", action="store_true", help="print the scores and every prediction as JSON")
    arguments = parser.parse_args()
    found = evaluate(closed=not arguments.open)
    print(json.dumps(found, indent=1) if arguments.json else render(found))


if __name__ == "__main__":
    main()
