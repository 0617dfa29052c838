"""Predicted step time against published step time."""

from collections.abc import Iterable
from math import exp
from typing import NamedTuple

from charllm.catalog.resolve import resolve_run
from charllm.errors import CharllmError
from charllm.evaluate.corrections import corrected_s, source_of
from charllm.evaluate.published import Row, global_batch, read_row
from charllm.evaluate.scores import Skipped, TimeScore
from charllm.result.memory_verdict import judge_memory
from charllm.result.uncertainty import step_spread
from charllm.simulate.one_clock import solve_step
from charllm.simulate.steady import build_machine, simulate_to_steady
from charllm.spec.framework import LEAST_RECOMPUTE
from charllm.spec.grades import run_grade
from charllm.spec.request import Table, merge
from charllm.spec.run import RunSpec
from charllm.spec.training import RECOMPUTES
from charllm.timeline.step_time import StepTime
from charllm.workload.model_flop import model_flop
from charllm.workload.step import Step, build_step


def measured_step_s(row: Row) -> float | None:
    """Return the measured step time of a row: printed, or from its tokens per second."""
    printed = _float(row, "iter_time_s")
    if printed is not None:
        return printed
    rate, seq, gpus = (_float(row, name) for name in ("tokens_per_s_per_gpu", "seq", "n_gpus"))
    if not (rate and seq and gpus):
        return None
    try:
        return global_batch(row) * seq / (rate * gpus)
    except CharllmError:
        return None


def _float(row: Row, column: str) -> float | None:
    """Return a column's number; what is blank, no number, or no size (nan, zero, negative) is not given."""
    try:
        value = float((row.get(column) or "nan").replace(",", ""))
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def resolve_row(row: Row) -> RunSpec:
    """Return the run a row describes. What it leaves blank is the profile's default, as in any request.

    Two rules are for published rows only: a blank microbatch is the largest that fits, and where a profile has no
    default recomputation it is the least that fits.
    """
    request = read_row(row)
    if not row.get("mbs", "").strip():
        request = _largest_microbatch(request)
    run = resolve_run(request)
    least = run.framework.default_recompute == LEAST_RECOMPUTE and "recompute" not in request["training"]
    return _least_recompute(request) if least else run


def _largest_microbatch(request: Table) -> Table:
    """Where a row is silent, a replica without stages takes its batch at once if that fits, else halves it."""
    if request["parallelism"].get("pp", 1) > 1:
        return request
    # A blank dp takes the GPUs that are left.
    size = request["training"]["global_batch_size"] // resolve_run(request).parallelism.dp
    while size > 1:
        asked: Table = merge(request, {"training": {"micro_batch_size": size}})
        run = resolve_run(asked)
        if judge_memory(build_step(run)).fits:
            return asked
        if size % 2:
            break
        size //= 2
    return request


def _least_recompute(request: Table) -> RunSpec:
    run = resolve_run(request)
    for recompute in RECOMPUTES:
        run = resolve_run(merge(request, {"training": {"recompute": recompute}}))
        if judge_memory(build_step(run)).fits:
            return run
    return run


class Prediction(NamedTuple):
    """What was predicted for one row, measured or not."""

    id: str
    predicted_s: float
    fits: bool
    score: TimeScore | None
    """Present where the row has a time."""


def predict_rows(rows: Iterable[Row], *, closed: bool = True) -> tuple[list[Prediction], list[Skipped]]:
    """Predict every row that can be described, as `simulate` does unless `closed` is false.

    What is measured is looked at afterwards only.
    """
    predictions, skipped = [], []
    for row in rows:
        try:
            prediction = _predict(row, closed=closed)
        except (CharllmError, ValueError) as error:
            skipped.append(Skipped(row["id"], str(error)))
            continue
        predictions.append(prediction)
        if prediction.score is None:
            skipped.append(Skipped(row["id"], "no time given"))
    return predictions, skipped


def steady_step_s(step: Step, timed: StepTime) -> float:
    """Return the step time of a priced step at its thermal steady state; all of its microbatches are simulated."""
    return simulate_to_steady(build_machine(step, timed.costs.timeline)).step_time_s


def _predict(row: Row, *, closed: bool) -> Prediction:
    run = resolve_row(row)
    step = build_step(run)
    fitting = judge_memory(step).fits
    timed = solve_step(step)
    predicted_s = steady_step_s(step, timed) if closed else timed.step_time_s
    measured_s = measured_step_s(row)
    if not measured_s:
        return Prediction(row["id"], predicted_s, fitting, None)
    measured_s = corrected_s(row["id"], measured_s, run)
    gpu, source, grade = run.cluster.gpu.name, source_of(row["id"]), run_grade(run)
    spread = step_spread(grade, [gpu], timed.breakdown_s)
    score = TimeScore(
        row["id"],
        source,
        gpu,
        run.training.precision,
        run.scored_as,
        f"{source} {run.model.name} {gpu}",
        measured_s,
        predicted_s,
        model_flop(run) / run.parallelism.world,
        "untuned" if grade == "usual" else grade,
        (predicted_s * exp(-spread.below), predicted_s * exp(spread.above)),
    )
    return Prediction(row["id"], predicted_s, fitting, score)
