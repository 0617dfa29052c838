"""The settings of a simulation beside its run: how long, what is allowed, and the files that are written."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypedDict

from charllm.spec.fields import count, flag, number, path, rules
from charllm.spec.run import Conditions

STEPS, SECONDS, MOST_RANKS = rules(Conditions)["steps"], rules(Conditions)["seconds_s"], 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateSettings:
    """How a run is simulated, and what is written about it."""

    steps: int | None = count("simulate N steps from a cold start", int(STEPS.low), int(STEPS.high), None)
    seconds_s: float | None = number("simulate S seconds from a cold start", SECONDS.low, SECONDS.high, None)
    uncertainty: bool = flag("add a 90 % interval to each figure whose error is known", False)
    ignore_memory: bool = flag("continue even if the run does not fit in memory", False)
    allow_long: bool = flag("simulate even if the estimate is minutes or hours", False)
    out: Path | None = path("store the run in this new folder")
    report: Path | None = path("write everything as one HTML file", flag="--report FILE.html")
    perfetto: Path | None = path("write the step as a trace for ui.perfetto.dev", flag="--perfetto FILE")
    timeline: Path | None = path("write one rank's step for `charllm emulate`", flag="--timeline FILE")
    chakra: Path | None = path("write every rank's step as Chakra traces (rank-N.et, rank-N.json)")
    rank: int = count("the rank that --timeline writes", 0, MOST_RANKS, 0)


class SimulateKeywords(TypedDict, total=False):
    """Keywords of `SimulateSettings`, with the types of their values."""

    steps: int | None
    seconds: float | None
    uncertainty: bool
    ignore_memory: bool
    allow_long: bool
    out: str | PathLike[str] | None
    report: str | PathLike[str] | None
    perfetto: str | PathLike[str] | None
    timeline: str | PathLike[str] | None
    chakra: str | PathLike[str] | None
    rank: int
