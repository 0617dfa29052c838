"""Predict steps of reinforcement learning from keywords."""

from typing import Any, Unpack

from charllm.api.keywords import RunKeywords, Spec, build_request
from charllm.api.signature import public_with
from charllm.result.result import RunResult
from charllm.simulate.rl import predict_rl
from charllm.simulate.rl_settings import RlKeywords, RlSettings
from charllm.simulate.rl_step import describe_rl
from charllm.spec.flags import take
from charllm.spec.request import Table


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
    return run_rl(build_request(spec, run), settings)


def run_rl(request: Table, settings: RlSettings) -> RunResult:
    """Predict a request, and store and write what was asked for."""
    found = predict_rl(describe_rl(request, settings))
    if settings.out is not None:
        found.save(settings.out)
    if settings.report is not None:
        from charllm.api.report import page_of, write_page

        write_page(page_of(found), settings.report, "--report")
    return found
