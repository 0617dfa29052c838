"""Predict generation from keywords."""

import math
from collections.abc import Mapping
from typing import Any, Unpack

from charllm.api.keywords import RunKeywords, Spec, build_request
from charllm.api.signature import public_with
from charllm.catalog.resolve import read_run
from charllm.errors import SpecError
from charllm.result.result import RunResult
from charllm.simulate.generation import Generated
from charllm.simulate.generation import generate as predict_generation
from charllm.simulate.generation_settings import GenerateKeywords, GenerateSettings
from charllm.simulate.work import LONGEST_S
from charllm.spec.flags import take
from charllm.spec.request import Table, as_table, merge
from charllm.spec.run import RunSpec, check_run

KEPT: Mapping[str, tuple[str, ...]] = {
    "training": ("precision", "routing", "routing_skew"),
    "parallelism": ("tp", "pp", "ep", "etp", "dp", "order", "layers_per_stage"),
}
"""Part of a spec: the settings that mean something to a generation."""


class Keywords(GenerateKeywords, RunKeywords, total=False):
    """All words of a generation."""


@public_with(GenerateSettings)
def generate(spec: Spec | None = None, **words: Unpack[Keywords]) -> RunResult:
    """Predict prefill and decode of a static batch: time, memory, power, temperature and clocks; needs no GPU.

    All sequences of the batch have equal prompts and lengths and run from begin to end: continuous batching, arrival of
    requests and queueing are not simulated (Vidur, LLMServingSim and AIConfigurator do that). Settings of training are
    refused by name. ``result.table("phases")`` has seconds, energy, power and clock of prefill and decode.

    >>> import charllm
    >>> result = charllm.generate(model="llama3-8b", cluster="h100x8", batch=64, prompt=512, new_tokens=64)
    >>> result.metrics.fits, result.metrics.time_to_first_token_s > result.metrics.time_per_token_s
    (True, True)
    >>> result.table("phases")["phase"]
    ['prefill', 'decode']
    >>> charllm.generate(model="llama3-8b", cluster="h100x8", recompute="full")
    Traceback (most recent call last):
    charllm.errors.SpecError: training.recompute: got 'full'; expected no setting of training: nothing is trained
    """
    run: dict[str, Any] = dict(words)
    settings = take(GenerateSettings, run)
    return run_generation(build_request(spec, run), settings).result


def run_generation(request: Table, settings: GenerateSettings) -> Generated:
    """Predict a request, and store and write what was asked for."""
    run = resolve_generation(request, settings)
    longest_s = math.inf if settings.allow_long else LONGEST_S
    found = predict_generation(run, ignore_memory=settings.ignore_memory, longest_s=longest_s)
    if settings.out is not None:
        found.result.save(settings.out)
    if settings.report is not None:
        from charllm.api.report import page_of, write_page

        write_page(page_of(found.result), settings.report, "--report")
    return found


def resolve_generation(request: Table, settings: GenerateSettings) -> RunSpec:
    """Return the run that a request and its lengths describe."""
    if "generation" not in request:
        _refuse_training(request)
    chosen = {"framework": settings.engine} if request.get("framework") is None else {}
    generation = {
        "prompt_tokens": settings.prompt_length,
        "new_tokens": settings.new_tokens,
        "cache_precision": settings.cache_precision,
        "top_p": settings.top_p,
    }
    lengths = {"global_batch_size": settings.batch, "micro_batch_size": 1, "seq_length": settings.prompt_length}
    request = merge(request, {
        **chosen, "parallelism": {"schedule": "forward-only"}, "training": lengths, "generation": generation,
    })  # fmt: skip
    run = read_run(request)
    dp = run.parallelism.dp
    if settings.batch % dp:
        raise SpecError("--batch", settings.batch, f"a multiple of dp = {dp}, e.g. {-(-settings.batch // dp) * dp}")
    check_run(run)
    return run


def _refuse_training(request: Table) -> None:
    for part, kept in KEPT.items():
        for name, value in as_table(request.get(part, {}), part).items():
            if name not in kept:
                what = "training" if part == "training" else "training's parallelism"
                raise SpecError(f"{part}.{name}", value, f"no setting of {what}: nothing is trained")
