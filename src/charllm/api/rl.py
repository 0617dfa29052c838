"""Predict steps of reinforcement learning from keywords."""

from dataclasses import replace
from typing import Any, Unpack

from charllm.api.keywords import RunKeywords, Spec, build_request
from charllm.api.signature import public_with
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.result.result import RunResult
from charllm.simulate.rl import predict_rl
from charllm.simulate.rl_settings import RlKeywords, RlSettings
from charllm.simulate.rl_step import describe_rl
from charllm.spec.flags import take
from charllm.spec.request import Table

SPLIT_FRACTIONS = (0.25, 0.375, 0.5, 0.625, 0.75)
"""Shares of the nodes that only generate, of the splits that are compared."""


class Keywords(RlKeywords, RunKeywords, total=False):
    """All words of an RL step."""


@public_with(RlSettings)
def rl(spec: Spec | None = None, **words: Unpack[Keywords]) -> RunResult:
    """Predict one step of reinforcement learning: rollouts, log-probabilities, updates and weight transfer.

    The keywords of a run describe the update (its global batch is that of one update), those of `RlSettings` the rest.
    With `rollout_gpus` the engine has GPUs of its own; `policy` says whether it generates beside training.
    ``result.table("phases")`` has seconds, energy, power and temperature of each phase.

    >>> import charllm
    >>> result = charllm.rl(model="llama3-8b", cluster="h100x8", tp=2, gbs=128, samples=256, response_length=256)
    >>> result.metrics.step_time_s > 0, "stragglers" in result.table("phases")["phase"]
    (True, True)
    """
    run: dict[str, Any] = dict(words)
    settings = take(RlSettings, run)
    found = predict_rl(describe_rl(build_request(spec, run), settings))
    if settings.out is not None:
        found.save(settings.out)
    return found


def compare_splits(request: Table, settings: RlSettings) -> list[tuple[str, RunResult]]:
    """Predict a step with all GPUs in turn and with several splits, one step off; the fastest first."""
    colocated = replace(settings, rollout_gpus=0, policy="on-policy", splits=False)
    whole = resolve_run(request).cluster
    found = [("all GPUs in turn", predict_rl(describe_rl(request, colocated)))]
    for nodes in sorted({round(share * whole.nodes) for share in SPLIT_FRACTIONS} - {0, whole.nodes}):
        gpus = nodes * whole.node.gpus
        asked = replace(colocated, rollout_gpus=gpus, policy="one-step-off")
        try:
            found.append((f"{gpus} generate, {whole.gpus - gpus} train", predict_rl(describe_rl(request, asked))))
        except SpecError as error:
            if error.field not in ("cluster", "parallelism", "training.global_batch_size"):
                raise
    return sorted(found, key=lambda one: float(one[1].metrics["step_time_s"]))
