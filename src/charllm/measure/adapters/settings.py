"""The settings of a measured program: which one a command starts, and how its log is read."""

from dataclasses import dataclass
from typing import TypedDict

from charllm.measure.adapters.adapter import DEFAULT_STEPS
from charllm.measure.adapters.programs import ADAPTERS
from charllm.measure.logs import KINDS
from charllm.measure.logs.pattern import own_pattern
from charllm.measure.logs.read import AUTO
from charllm.measure.settings import MOST_STEPS
from charllm.spec.fields import choice, count, line
from charllm.spec.flags import check_flags


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSettings:
    """Which training program a command starts, and how its log is read."""

    adapter: str | None = choice(
        "program that trains the run described below (default command). "
        + "; ".join(f"{name}: {adapter.about}" for name, adapter in ADAPTERS.items()),
        tuple(ADAPTERS), None, flag="--adapter NAME",
    )  # fmt: skip
    script: str | None = line("the program's training script", None, flag="--script FILE")
    steps: int = count("steps that the program trains", 1, MOST_STEPS, DEFAULT_STEPS)
    log_kind: str | None = choice(
        f"program that writes the log: {', '.join((AUTO, *KINDS))}", (AUTO, *KINDS), None, flag="--log-kind KIND"
    )
    log_pattern: str | None = line(
        "regular expression for the step lines of another program's log, with named groups: number, and any of "
        "loss, seconds, ms, tokens, tokens_per_s ...",
        None, flag="--log-pattern REGEX",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_flags(self)
        if self.log_pattern is not None:
            own_pattern(self.log_pattern)


class ProgramKeywords(TypedDict, total=False):
    """Keywords of `ProgramSettings`, with the types of their values."""

    adapter: str | None
    script: str | None
    steps: int | None
    log_kind: str | None
    log_pattern: str | None
