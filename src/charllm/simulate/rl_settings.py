"""The settings of a reinforcement-learning step beside its training run: rollouts, rewards, placement."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypedDict

from charllm.spec.fields import choice, count, flag, line, number, path
from charllm.spec.generation import CACHE_BYTES, ENGINES, MOST

POLICIES = ("on-policy", "one-step-off")


@dataclass(frozen=True, slots=True, kw_only=True)
class RlSettings:
    """What a step generates and learns from, and on which GPUs."""

    samples: int = count("sequences generated in a step: prompts x samples of each", 1, MOST, 512)
    prompt_length: int = count("tokens of each prompt", 1, MOST, 256, "--prompt-length/--prompt N")
    response_length: int = count("mean tokens of a response", 1, MOST, 1024)
    longest_response: int = count("tokens at which a response is cut off", 1, MOST, 4096)
    length_spread_fraction: float = number(
        "standard deviation of response lengths over their mean (assumed: log-normal)", 0, 5, 0.6,
        flag="--length-spread FRACTION",
    )  # fmt: skip
    endless_fraction: float = number(
        "responses that repeat themselves until they are cut off, of all (assumed)", 0, 1, 0.005,
        flag="--endless FRACTION",
    )  # fmt: skip
    engine: str = choice("the engine that generates", ENGINES, "vllm")
    rollout_tp: int = count("tensor parallelism of the engine", 1, 1024, 1)
    rollout_pp: int = count("pipeline parallelism of the engine", 1, 1024, 1)
    rollout_ep: int = count("expert parallelism of the engine", 1, 1024, 1)
    cache_precision: str = choice("number format of the key-value cache", tuple(CACHE_BYTES), "bf16")
    rollout_gpus: int = count(
        "GPUs that only generate, in whole nodes; 0: all GPUs generate and train in turn", 0, MOST, 0
    )
    policy: str = choice(
        "whether a step trains on its own rollouts, or on those of the step before, which run beside it",
        POLICIES, "on-policy",
    )  # fmt: skip
    no_reference: bool = flag("without log-probabilities of a reference model", False)
    reward_model: str = line("a model that scores all samples in one forward pass, on the GPUs of training", "")
    reward_s: float = number("seconds of rewards in which GPUs wait (rules, sandboxes)", 0, 1e6, 0.0)
    overhead_s: float = number("further seconds of a step in which GPUs wait (data, engines that wake)", 0, 1e6, 0.0)
    splits: bool = flag("compare splits of the GPUs between rollouts and training, the fastest first", False)
    allow_long: bool = flag("simulate even if the estimate is minutes or hours", False)
    out: Path | None = path("store the run in this new folder")
    report: Path | None = path("write everything as one HTML file", flag="--report FILE.html")


class RlKeywords(TypedDict, total=False):
    """Keywords of `RlSettings`, with the types of their values."""

    samples: int
    prompt: int
    response_length: int
    longest_response: int
    length_spread: float
    endless: float
    engine: str
    rollout_tp: int
    rollout_pp: int
    rollout_ep: int
    cache_precision: str
    rollout_gpus: int
    policy: str
    no_reference: bool
    reward_model: str
    reward: float
    overhead: float
    splits: bool
    allow_long: bool
    out: str | PathLike[str] | None
    report: str | PathLike[str] | None
