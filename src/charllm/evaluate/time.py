"""Predicted step time against published step time."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from charllm.catalog.resolve import resolve_run
from charllm.catalog.tables import entries
from charllm.errors import CharllmError, SpecError
from charllm.evaluate.memory import Skipped, source_of
from charllm.evaluate.published import Row, global_batch, read_row
from charllm.evaluate.scores import TimeScore
from charllm.simulate.steady import build_machine, play_to_steady
from charllm.spec.request import Table, merge
from charllm.spec.run import RunSpec
from charllm.spec.training import RECOMPUTES
from charllm.timeline.step_time import time_step
from charllm.workload.memory import stage_memories
from charllm.workload.misfit import fits
from charllm.workload.model_flop import model_flop
from charllm.workload.step import Step, build_step

CHUNKS = 6
DOCUMENT_TOKENS = 256
"""Length of a question with its passage and answer (SQuAD), where a fine-tuning recipe packs them: about 200 to 300."""


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
        value = float(row.get(column) or "nan")
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def resolve_row(row: Row) -> RunSpec:
    """Return the run a row describes; what it leaves blank is the framework's default, else the least that fits."""
    request = read_row(row)
    asked = request["framework"]
    framework = entries("frameworks")[asked["base"] if isinstance(asked, dict) else asked].values
    default = tuple(framework.get("default_overlap", ()))
    if isinstance(asked, dict) and asked.get("fused_experts"):
        # Recipes that capture the whole step overlap the exchange of experts, too.
        default = (*default, "ep")
    request = _with_overlap(row, request, default)
    # Megatron hides the exchange of experts in a pipeline only where stages hold several chunks.
    hides_experts = "ep" in request["parallelism"].get("overlap", ())
    interleaved = hides_experts or bool(framework.get("default_interleaving", False))
    request = _with_chunks(row, request, interleaved=interleaved)
    if framework.get("packs_documents", False) and re.search(r"\b(sft|lora)\b", row.get("model", "").lower()):
        request = merge(request, {"training": {"document_tokens": DOCUMENT_TOKENS}})
    if not row.get("mbs", "").strip():
        request = _largest_microbatch(request)
    if row.get("recompute", "").strip() or request["training"]["recompute"] != "none":
        return resolve_run(request)
    default = framework.get("default_recompute", "")
    if default in RECOMPUTES:
        return resolve_run(merge(request, {"training": {"recompute": default}}))
    return _least_recompute(request)


def _with_overlap(row: Row, request: Table, default: tuple[str, ...]) -> Table:
    """A row that says what overlaps may leave out what its framework overlaps anyway, unless it says none."""
    if re.match(r"none\b|no$", row.get("overlap", "").strip().lower()):
        return request
    axes = {*request["parallelism"].get("overlap", ()), *default}
    overlapped: Table = merge(request, {"parallelism": {"overlap": sorted(axes)}})
    return overlapped


def _with_chunks(row: Row, request: Table, *, interleaved: bool) -> Table:
    """Cut stages into chunks where the framework's recipes do and the row is silent: at most CHUNKS of equal size."""
    degrees = request["parallelism"]
    pp, layers = (
        degrees.get("pp", 1),
        int(request["model"].get("layers") or entries("models")[request["model"]["base"]].values["layers"]),
    )
    if not interleaved or row.get("vpp", "").strip() or pp < 2:
        return request
    counted = layers if layers % pp == 0 and "layers_per_stage" not in degrees else layers + 2
    vpp = max((count for count in range(1, CHUNKS + 1) if counted % (pp * count) == 0), default=1)
    chunked: Table = merge(request, {"parallelism": {"vpp": vpp, **_ends_counted(layers, counted, pp * vpp)}})
    return chunked if vpp > 1 and _possible(chunked) else request


def _ends_counted(layers: int, counted: int, chunks: int) -> Table:
    """Let embedding and head stand for a layer each in the first and last chunk, where that makes chunks even."""
    even = counted // chunks
    return {} if layers == counted else {"layers_per_stage": [even - 1, *[even] * (chunks - 2), even - 1]}


def _possible(request: Table) -> bool:
    """Tell whether a default can be what ran: chunks need whole rounds of microbatches."""
    try:
        resolve_run(request)
    except SpecError:
        return False
    return True


def _largest_microbatch(request: Table) -> Table:
    """Where a row is silent, a replica without stages takes its batch at once if that fits, else halves it."""
    if request["parallelism"].get("pp", 1) > 1:
        return request
    # A blank dp takes the GPUs that are left.
    size = request["training"]["global_batch_size"] // resolve_run(request).parallelism.dp
    while size > 1:
        asked: Table = merge(request, {"training": {"micro_batch_size": size}})
        run = resolve_run(asked)
        if _fits(build_step(run)):
            return asked
        if size % 2:
            break
        size //= 2
    return request


def _least_recompute(request: Table) -> RunSpec:
    run = resolve_run(request)
    for recompute in RECOMPUTES:
        run = resolve_run(merge(request, {"training": {"recompute": recompute}}))
        if _fits(build_step(run)):
            return run
    return run


def _fits(step: Step) -> bool:
    return all(fits(step.run, memory) for memory in stage_memories(step))


def row_class(run: RunSpec) -> str:
    """Return the class a row is scored in."""
    return "lora" if run.training.lora_rank else "moe" if run.model.experts else "dense"


class Prediction(NamedTuple):
    """What was predicted for one row, measured or not."""

    id: str
    predicted_s: float
    fits: bool
    score: TimeScore | None
    """Present where the row has a time."""
    closed: TimeScore | None = None
    """The same with the loop of power, heat and clocks closed, where that was asked for."""


def predict_rows(rows: Iterable[Row], *, closed: bool = False) -> tuple[list[Prediction], list[Skipped]]:
    """Predict every row that can be described; what is measured is looked at afterwards only."""
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


def _predict(row: Row, *, closed: bool) -> Prediction:
    run = resolve_row(row)
    step = build_step(run)
    fitting = _fits(step)
    timed = time_step(step)
    predicted_s = timed.step_time_s
    measured_s = measured_step_s(row)
    if not measured_s:
        return Prediction(row["id"], predicted_s, fitting, None)
    gpu, source = run.cluster.gpu.name, source_of(row["id"])
    score = TimeScore(
        row["id"],
        source,
        gpu,
        run.training.precision,
        row_class(run),
        f"{source} {run.model.name} {gpu}",
        measured_s,
        predicted_s,
        model_flop(run) / run.parallelism.world,
    )
    played = score._replace(predicted_s=play_to_steady(build_machine(step, timed)).step_time_s) if closed else None
    return Prediction(row["id"], predicted_s, fitting, score, played)
