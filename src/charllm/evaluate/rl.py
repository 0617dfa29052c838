"""Published steps of reinforcement learning against predictions: the whole step, and its phases where they are printed.

Data: `data/rl_rows.csv`, facts that NeMo RL, verl, Miles and others print. Scored are steps whose mean length is known,
on a cluster, model and engine that are described; the rest is left out with the reason. Prompts have as many tokens as
are missing between printed tokens per GPU and mean responses, about a hundred. Nothing is fitted on these rows; their
errors were seen while five assumptions were chosen: 4 ms between decode steps, answers that never end, what passes PCIe
for a colocated engine and a reference model, memory of the engine, and what receives weights over how many NICs.
Where a step has GPUs of their own for rollouts and the row does not say how many, half of them generate, as NeMo RL's
recipes have it.
Ignores: spread of lengths, which no row prints (assumed 0.6 of the mean, as `charllm rl` assumes).
"""

import csv
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, NamedTuple

from charllm.catalog.resolve import resolve_model
from charllm.errors import SpecError
from charllm.evaluate.scores import describe_errors
from charllm.result.columns import rows_of
from charllm.simulate.rl import predict_rl
from charllm.simulate.rl_settings import RlSettings
from charllm.simulate.rl_step import describe_rl
from charllm.spec.request import Table

SAMPLES, UPDATE, PROMPT_TOKENS = 2048, 512, 100
"""Published: sequences of a step and of an update where a row leaves them out (NeMo RL: 64 prompts x 32); assumed: the
tokens of a prompt."""
TOTAL = "whole step"
UNKNOWN = {"SWE": "one without sandboxes", "DAPO": "one that drops no answers (dynamic sampling)"}
"""Algorithm whose rows leave out what decides their time: one that can be scored."""
NAMES = {"LLAMA3.1_8B": "llama3-8b", "Llama 3.1-8B Instruct": "llama3-8b", "Llama 3.1-70B Base": "llama3-70b",
         "DeepSeek V3": "deepseek-v3", "Qwen3-235B": "qwen3-235b-a22b", "Qwen3-30B3A": "qwen3-30b-a3b"}  # fmt: skip
FUSED_PERMUTE = ("deepseek-v3",)
"""Published: sparse models whose recipes sort tokens in one kernel (NeMo RL, moe_permute_fusion; else it is off)."""
RECOMPUTED = ("llama3-8b", "llama3-70b", "deepseek-v3")
"""Published: models whose recipes recompute all activations (NeMo RL, activation_checkpointing)."""
LARGE = {"llama3-70b": {"train_tp": "4", "train_pp": "4", "gen_tp": "4"}}
"""Published: degrees of a model whose rows leave them out (NeMo RL, examples/configs/grpo_math_70B_megatron.yaml)."""
PHASES: Mapping[str, tuple[str, ...]] = {
    "generation": ("prefill", "decode", "stragglers"),
    "log-probabilities": ("log-probabilities", "reference weights", "reference"),
    "training": ("update",),
    "weight transfer": ("weight transfer",),
}
"""Phase as publications name it: those of a result that make it up."""
COLUMNS = {"generation": ("generation_s",), "log-probabilities": ("logprob_s", "ref_logprob_s"),
           "training": ("training_s",), "weight transfer": ("weight_sync_s",)}  # fmt: skip


class Row(NamedTuple):
    """A printed time that was predicted."""

    id: str
    source: str
    part: str
    measured_s: float
    predicted_s: float

    @property
    def error_fraction(self) -> float:
        """Prediction over measurement, minus one."""
        return self.predicted_s / self.measured_s - 1


def read_rows() -> list[dict[str, str]]:
    """Read the table."""
    table = resources.files("charllm.evaluate") / "data" / "rl_rows.csv"
    with table.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def describe_row(row: Mapping[str, str]) -> tuple[Table, RlSettings]:
    """Return a row as a request and its settings, or refuse it by what is not known."""
    for field, told in (("mean_seq_or_response_len", "a mean length"), ("n_gpus", "a number of GPUs")):
        if not row[field].isdigit():
            raise SpecError(field, row[field] or "nothing", told)
    if row["algorithm"] in UNKNOWN:
        raise SpecError("algorithm", row["algorithm"], UNKNOWN[row["algorithm"]])
    model = NAMES.get(row["model"], row["model"])
    if model in LARGE and "Megatron" not in row["train_backend"]:
        raise SpecError("train_tp", row["train_tp"] or "nothing", "known degrees of training")
    row = {name: text or LARGE.get(model, {}).get(name, "") for name, text in row.items()}
    gpus, apart = int(row["n_gpus"]), row["placement"].startswith("disaggregated")
    samples, mean = _count(row["prompts_or_samples_per_step"], SAMPLES), int(row["mean_seq_or_response_len"])
    prompt = _prompt_tokens(row, gpus, samples, mean)
    degrees: dict[str, Any] = {axis: _count(row[f"train_{axis}"], 1) for axis in ("tp", "cp", "ep", "pp")}
    low, more = divmod(resolve_model(model).layers, degrees["pp"])
    degrees["layers_per_stage"] = [low + (stage < more) for stage in range(degrees["pp"])]
    if degrees["ep"] > 1:
        degrees["etp"] = 1
    base = "fsdp" if "DTensor" in row["train_backend"] or "FSDP" in row["train_backend"] else "megatron"
    sorts_apart = resolve_model(model).experts and model not in FUSED_PERMUTE
    request = {
        "model": model,
        "cluster": f"{row['gpu'].lower()}x{gpus}",
        "framework": {"base": base, **({"fused_permute": False} if sorts_apart else {})},
        "parallelism": degrees,
        "training": {"global_batch_size": min(samples, _count(row["train_gbs"], UPDATE)),
                     "precision": row["precision"] or "bf16",
                     **({"recompute": "full"} if model in RECOMPUTED else {})},
    }  # fmt: skip
    settings = RlSettings(
        samples=samples, prompt_length=prompt, response_length=mean,
        longest_response=max(mean, _count(row["max_len"], 4 * mean)),
        engine="sglang" if row["gen_engine"] == "SGLang" else "vllm",
        rollout_tp=_count(row["gen_tp"], 1), rollout_pp=_count(row["gen_pp"], 1),
        rollout_gpus=gpus // 2 if apart else 0, policy="one-step-off" if apart else "on-policy",
    )  # fmt: skip
    return request, settings


def _count(text: str, default: int) -> int:
    return int(float(text)) if text else default


def _prompt_tokens(row: Mapping[str, str], gpus: int, samples: int, mean: int) -> int:
    """Return the tokens of a sample beyond its response, where the printed rate and time give them."""
    rate, step_s = row["tokens_per_s_per_gpu"], row["total_step_s"]
    if not (rate and step_s):
        return PROMPT_TOKENS
    beyond = round(float(rate) * float(step_s) * gpus / samples - mean)
    return beyond if 0 < beyond < mean else PROMPT_TOKENS


def predict_rows(rows: Iterable[Mapping[str, str]]) -> tuple[list[Row], dict[str, int]]:
    """Predict every row that can be described; returns how many were not, by reason."""
    found: list[Row] = []
    left_out: dict[str, int] = {}
    for row in rows:
        try:
            found += _predict(row)
        except SpecError as error:
            reason = f"{error.field}: {error.asked}"
            left_out[reason] = left_out.get(reason, 0) + 1
    return found, left_out


def _predict(row: Mapping[str, str]) -> list[Row]:
    request, settings = describe_row(row)
    result = predict_rl(describe_rl(request, settings))
    table = result.table("phases")
    seconds: dict[str, float] = {}
    for phase in rows_of(table) if table is not None else []:
        name = phase["phase"].partition(" (")[0]
        seconds[name] = seconds.get(name, 0.0) + phase["seconds"]
    source = row["id"].split("-")[0]
    rows = []
    if row["total_step_s"]:
        rows.append(Row(row["id"], source, TOTAL, float(row["total_step_s"]), result.metrics["step_time_s"]))
    for part, phases in PHASES.items():
        printed = [float(row[column]) for column in COLUMNS[part] if row[column]]
        if printed:
            predicted_s = sum(seconds.get(name, 0.0) for name in phases)
            rows.append(Row(row["id"], source, part, sum(printed), predicted_s))
    return rows


def score_rl() -> dict[str, Any]:
    """Predict every row and return scores by part of a step, and by source."""
    rows, left_out = predict_rows(read_rows())
    return {
        "scores": {part: _errors(row for row in rows if row.part == part) for part in (TOTAL, *PHASES)},
        "sources": {
            source: _errors(row for row in rows if row.source == source and row.part == TOTAL)
            for source in sorted({row.source for row in rows})
        },
        "left_out": left_out,
        "predictions": [row._asdict() | {"error_fraction": row.error_fraction} for row in rows],
    }


def _errors(rows: Iterable[Row]) -> dict[str, Any]:
    return describe_errors([row.error_fraction for row in rows])
