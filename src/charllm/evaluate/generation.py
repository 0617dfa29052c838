"""Published generation with static batches, and closed-loop serving at a saturated batch, against predictions.

Data: `data/generation_rows.csv`: step times of vLLM 0.20 (AIConfigurator's recorded runs, B300), whole generations of
FasterTransformer and TensorRT-LLM 0.5 (their performance pages, A100 and H100), inter-token latency and power of vLLM
under saturated load (ML.ENERGY leaderboard, H100; prompt lengths are not published and taken as PROMPT_TOKENS).
No constant is fitted on these rows: engines have assumed host times, kernels and links those of other tables. Their
errors were seen while choices were made: how often TensorRT-LLM 0.5 reads its cache, from how many tokens ranks wait
for each other, padded tiles for few rows, vLLM's host time of 1 ms, its kernels and tiles for experts, that its sampler
sorts the vocabulary, and how far into their texts answers under load are.
Ignores: time to first token under load, which is queueing.
"""

import csv
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import resources
from typing import Any, NamedTuple

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.evaluate.scores import describe_errors
from charllm.simulate.generation import generation_of
from charllm.simulate.one_clock import solve_step
from charllm.simulate.predict import predict
from charllm.simulate.rl_settings import RlSettings
from charllm.spec.generation import decode_run, prefill_run
from charllm.spec.run import RunSpec
from charllm.units import MILLI
from charllm.workload.step import build_step

PROMPT_TOKENS = 500
LEAST_GPUS = 8
"""GPUs of the smallest cluster that a row is described on: replicas that all do the same."""
PRECISIONS = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "fp8": "fp8"}
ENGINES: Mapping[str, dict[str, Any]] = {
    "vLLM": {"base": "vllm"},
    "SGLang": {"base": "sglang"},
    "TensorRT-LLM": {"base": "tensorrt-llm", "shared_cache_reads": False},
    "FasterTransformer": {"base": "tensorrt-llm", "direct_all_reduce": False, "graphs": "none", "launch_s": 4e-6},
}
"""Engine of a row: its profile. TensorRT-LLM 0.5 reads a cache for each query head (derived: with it, Llama-2 70B errs
by 6 and 11 %, without it by 54 %); FasterTransformer launches from C++ (assumed: 4 us) through NCCL."""
PREFILL, DECODE, LATENCY, WHOLE, RATE = "prefill", "decode", "time per token under load", "generation", "throughput"
KINDS = {"prefill": PREFILL, "first token": PREFILL, "decode step": DECODE, "ITL": LATENCY, "end-to-end": WHOLE,
         "output throughput": RATE}  # fmt: skip
"""How a row's metric begins: what it is."""


class Row(NamedTuple):
    """A row that was predicted."""

    id: str
    source: str
    engine: str
    model: str
    sparse: bool
    kind: str
    measured_s: float
    predicted_s: float
    power_w: float | None
    predicted_w: float | None

    @property
    def error_fraction(self) -> float:
        """Prediction over measurement, minus one."""
        return self.predicted_s / self.measured_s - 1


def read_rows() -> list[dict[str, str]]:
    """Read the table."""
    table = resources.files("charllm.evaluate") / "data" / "generation_rows.csv"
    with table.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def describe_row(row: Mapping[str, str]) -> RunSpec:
    """Return a row as a run on a node whose GPUs all do the same, or refuse it by what is not modelled."""
    engine = next((profile for name, profile in ENGINES.items() if row["engine"].startswith(name)), None)
    precision = PRECISIONS.get(row["precision"])
    for field, known in (("engine", engine), ("precision", precision)):
        if known is None:
            raise SpecError(field, row[field], "one that is modelled")
    gpus = max(LEAST_GPUS, int(row["n_gpus"]))
    cluster = f"{re.split('[ -]', row['gpu'].lower())[0]}x{gpus}"
    tp, pp, ep = (int(row[axis] or 1) for axis in ("tp", "pp", "ep"))
    if ep > 1:
        tp = max(tp, int(row["n_gpus"]) // pp)
    prompt = int(float(row["input_len"])) if row["input_len"][:1].isdigit() else PROMPT_TOKENS
    batch = max(1, round(float(row["batch_or_concurrency"])))
    return resolve_run({
        "model": _model(row["model"]),
        "cluster": cluster,
        "framework": {**(engine or {}), **({"fp8_scaling": "row"} if _by_row(row) else {})},
        "parallelism": {"tp": tp, "pp": pp, "ep": ep, "schedule": "forward-only", **({"etp": 1} if ep > 1 else {})},
        "training": {"precision": precision, "global_batch_size": batch * gpus // (tp * pp), "micro_batch_size": 1,
                     "seq_length": prompt},
        "generation": {"prompt_tokens": prompt, "new_tokens": max(1, round(float(row["output_len"]))),
                       "cache_precision": "fp8" if row["kv_precision"] == "fp8" else "bf16",
                       "top_p": row["load"].startswith("closed loop")},
    })  # fmt: skip


def _by_row(row: Mapping[str, str]) -> bool:
    """Tell whether 8-bit weights have a scale for each row, as in Meta's checkpoints; others have one for a block."""
    return row["precision"] == "fp8" and "llama" in row["model"].lower()


FASTER_GPT = {"GPT-350M": (24, 1024, 16), "GPT-1.3B": (24, 2048, 16), "GPT-6.7B": (32, 4096, 32),
              "GPT-20B": (44, 6144, 48), "GPT-89B": (48, 12288, 96)}  # fmt: skip
"""Layers, hidden and heads. Published: FasterTransformer's gpt_guide.md."""


def _model(name: str) -> Any:
    if name in FASTER_GPT:
        layers, hidden, heads = FASTER_GPT[name]
        return {"base": "gpt3-6.7b", "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": heads,
                "ffn": 4 * hidden, "head_dim": hidden // heads}  # fmt: skip
    plain = name.rsplit("/", 1)[-1].lower().replace(" ", "-")
    # Coders have the dimensions of their like.
    for part in ("-instruct", "-thinking", "-2507", "-fp8", "-coder", "-0528"):
        plain = plain.replace(part, "")
    return plain.replace("llama-3.1-", "llama3-").replace("llama-3.3-", "llama3-").replace("llama-2-", "llama2-")


def predict_rows(rows: Iterable[Mapping[str, str]]) -> tuple[list[Row], dict[str, int]]:
    """Predict every row that can be described; returns how many were not, by reason."""
    found, left_out = [], dict[str, int]()
    for row in rows:
        kind = next((kind for begins, kind in KINDS.items() if row["metric"].startswith(begins)), "")
        if row["load"].startswith("closed loop") and kind != LATENCY:
            continue
        try:
            found.append(_predict(row, kind, describe_row(row)))
        except SpecError as error:
            reason = f"{error.field}: {error.asked}"
            left_out[reason] = left_out.get(reason, 0) + 1
    return found, left_out


def _predict(row: Mapping[str, str], kind: str, run: RunSpec) -> Row:
    if run.generation is None:
        raise SpecError("generation", None, "prompt and new tokens")
    new, value = run.generation.new_tokens, float(row["value"])
    batch = round(float(row["batch_or_concurrency"]))
    power_w = float(row["power_w"]) if row["power_w"] else None
    drawn_w = None
    if kind == LATENCY:
        predicted_s, drawn_w = _under_load(run, batch, power=bool(power_w))
    else:
        decode = decode_run(run, run.generation.prompt_tokens) if kind == DECODE else decode_run(run)
        prefill_s = _seconds(prefill_run(run)) if kind in (PREFILL, WHOLE, RATE) else 0.0
        steps = {PREFILL: 0, DECODE: 1}.get(kind, new - 1)
        predicted_s = prefill_s + (steps * _seconds(decode) if steps else 0.0)
    measured_s = batch * new / value if kind == RATE else value * (MILLI if row["unit"] == "ms" else 1.0)
    engine = next(name for name in ENGINES if row["engine"].startswith(name))
    return Row(row["id"], row["id"].split("-")[0], engine, row["model"], bool(run.model.experts), kind, measured_s,
               predicted_s, power_w, drawn_w)  # fmt: skip


def _under_load(run: RunSpec, batch: int, *, power: bool) -> tuple[float, float | None]:
    """Return seconds and power of a median step of an engine whose batch is always full.

    Of the answers under way a long one is met more often: they are (1 + spread^2) / 2 of the mean length into their
    text, with the spread that `charllm rl` assumes. Whenever one ends, the next prompt is read: batch / new tokens of
    them in a step, which draws its own power and leaves the median step as it is.
    """
    asked = generation_of(run)
    begun = (1 + RlSettings().length_spread_fraction ** 2) / 2 * asked.new_tokens
    decode = decode_run(run, round(asked.prompt_tokens + begun))
    decode_s = _seconds(decode)
    if not power:
        return decode_s, None
    at_once = max(1, run.framework.prefill_tokens // asked.prompt_tokens)
    full = replace(run, training=replace(run.training, global_batch_size=at_once * run.parallelism.dp))
    prefill = prefill_run(full)
    prompts_s = _seconds(prefill) / at_once * batch / asked.new_tokens
    decode_w, prompts_w = (predict(one, ignore_memory=True).result.metrics["power_mean_w"] for one in (decode, prefill))
    return decode_s, (decode_s * decode_w + prompts_s * prompts_w) / (decode_s + prompts_s)


def _seconds(run: RunSpec) -> float:
    return solve_step(build_step(run)).step_time_s / generation_of(run).tokens_in_row


GROUPS: Mapping[str, Callable[[Row], bool]] = {
    "dense static decode": lambda row: not row.sparse and row.kind in (DECODE, WHOLE, RATE),
    "prefill": lambda row: row.kind == PREFILL,
    "dense, time per token under load": lambda row: not row.sparse and row.kind == LATENCY,
    "experts, time per token under load": lambda row: row.sparse and row.kind == LATENCY,
}
"""What is scored apart."""


def score_generation() -> dict[str, Any]:
    """Predict every row and return scores by question and by source."""
    rows, left_out = predict_rows(read_rows())
    power = [row.predicted_w / row.power_w - 1 for row in rows if row.power_w and row.predicted_w and not row.sparse]
    sources = sorted({row.source for row in rows})
    return {
        "scores": {name: _errors(row for row in rows if test(row)) for name, test in GROUPS.items()}
        | {"dense, power under load": describe_errors(power)},
        "sources": {source: _errors(row for row in rows if row.source == source) for source in sources},
        "left_out": left_out,
        "predictions": [row._asdict() | {"error_fraction": row.error_fraction} for row in rows],
    }


def _errors(rows: Iterable[Row]) -> dict[str, Any]:
    return describe_errors([row.error_fraction for row in rows])
