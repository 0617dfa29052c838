"""Published rows, and their step times with constants that were fitted without them.

Each model family is left out in turn, then each source, then each GPU. `make fit` writes the constants of every fold
(evaluate/data/fit.json); here nothing is fitted.
"""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import resources
from typing import Any, NamedTuple

from charllm.errors import CharllmError
from charllm.evaluate.corrections import corrected_s, doubtful_reason, source_of
from charllm.evaluate.fit import FOLDS, FitRow, Values, default_values, timeline_of, with_values
from charllm.evaluate.time import measured_step_s, resolve_row, steady_step_s
from charllm.simulate.one_clock import solve_step
from charllm.timeline.step_time import StepTime
from charllm.workload.step import Step, build_step

FAMILIES = (
    "llama", "qwen2", "qwen3", "deepseek", "kimi", "moonlight", "mixtral", "gpt-oss", "grok", "nemotron3", "nemotron",
    "mpt", "bloom", "internlm", "gpt", "aquila", "baichuan", "chatglm",
)  # fmt: skip
RELATIVES = {"kimi": "deepseek", "moonlight": "deepseek"}
"""Families that are another's architecture."""


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


class Held(NamedTuple):
    """One row's step time with constants fitted without what it belongs to, with priors, and with all rows' constants.

    The one without its model family is that of the closed loop. The others are that one times the ratio of both at one
    solved clock: heat and governor move them alike (within 0.7 % in 99 of 100 rows).
    """

    row: FitRow
    family_s: float
    source_s: float
    gpu_s: float
    prior_s: float
    shipped_s: float
    breakdown_s: dict[str, float]
    """Where the seconds go at one solved clock."""


def hold_out(row: FitRow, folds: dict[str, Any], *, closed: bool = True) -> Held:
    """Predict a row with the constants of each fold; at one solved clock alone unless `closed`."""
    # A group with untuned runs alone is in no fit: it is held out by all constants.
    family, source, gpu = (folds[name].get(group_of(row), folds["all"]) for name, group_of in FOLDS.items())
    step, timed = _solve(family, row)
    family_s = steady_step_s(step, timed) if closed else timed.step_time_s
    splits = (source, gpu, default_values(), folds["all"])
    source_s, gpu_s, prior_s, shipped_s = (
        family_s * _solve(values, row)[1].step_time_s / timed.step_time_s for values in splits
    )
    return Held(row, family_s, source_s, gpu_s, prior_s, shipped_s, timed.breakdown_s)


def _solve(values: Values, row: FitRow) -> tuple[Step, StepTime]:
    step = replace(row.step, run=with_values(row.run, values))
    return step, solve_step(step, timeline=timeline_of(values))


def hold_out_all(rows: Sequence[FitRow], *, closed: bool = True, workers: int = 2) -> Iterator[Held]:
    """Predict rows on some processes, in their order."""
    predict: Callable[[FitRow], Held] = partial(hold_out, folds=load_folds(), closed=closed)
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(predict, rows, chunksize=4)
