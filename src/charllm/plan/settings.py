"""The settings of the commands that search: plan, caps and place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict

from charllm.plan.money import Tariff
from charllm.plan.objectives import OBJECTIVES
from charllm.result.memory_verdict import MOST_RISK, RISK
from charllm.spec.fields import choice, count, flag, line, lines, number, numbers, path, rules, table, words

TOP, MOST_TOP = 20, 500
PER_GPU, PER_STAGE = "gpu", "stage"
DECISIONS = ("ranks", "layers", "caps")
MOST_WORK, LONGEST_WORK = 1.0, 1000.0
"""Deterministic seconds of CP-SAT, about as many seconds of one core."""
IGNORE_MEMORY = "continue even if the run does not fit in memory"
TARIFF = f"a price, one of {', '.join(rules(Tariff))}; may be repeated"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """What a plan makes best, under which limits, and what it tells of it."""

    objective: str = line(
        f"metric to optimise: {', '.join(OBJECTIVES)}", "throughput", flag="--objective NAME|min:METRIC|max:METRIC"
    )
    limit: tuple[str, ...] = lines(
        "a limit on any metric, e.g. 'memory_peak_gib<130'; may be repeated", flag="--limit 'METRIC<VALUE'"
    )
    axis: Mapping[str, Any] = table(
        "values to try of one setting, e.g. tp=4,8 or overlap=none,tp+dp; repeatable", flag="--axis NAME=VALUE,..."
    )
    top: int = count("strategies listed, each simulated in full", 1, MOST_TOP, TOP)
    pareto: bool = flag(
        "also list strategies that no other beats in all of tokens/s, tokens/J, temperature and peak power", False
    )
    sensitivity: bool = flag("also tell whether the first stays the best when the machine changes", False)
    risk: float = number(
        "highest probability of not fitting in memory that a strategy may have", 1e-6, MOST_RISK, RISK,
        flag="--risk FRACTION",
    )  # fmt: skip
    tariff: Mapping[str, Any] = table(TARIFF)
    whole_run: Mapping[str, Any] = table("a setting of the whole run, e.g. tokens=15e12; may be repeated")
    allow_long: bool = flag("simulate strategies that take minutes or hours", False)
    report: Path | None = path("write everything as one HTML file", flag="--report FILE.html")


class PlanKeywords(TypedDict, total=False):
    """Keywords of `PlanSettings`, with the types of their values."""

    objective: str
    limit: str | Sequence[str]
    axis: str | Sequence[str] | Mapping[str, Sequence[Any]]
    top: int
    pareto: bool
    sensitivity: bool
    risk: float
    tariff: Mapping[str, Any] | None
    whole_run: Mapping[str, Any] | None
    allow_long: bool
    report: str | PathLike[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsSettings:
    """Which caps a run is simulated under."""

    power: bool = flag("power caps (default)", False)
    clock: bool = flag("clock caps", False)
    per: str = choice("one cap for every GPU, or one for each pipeline stage", (PER_GPU, PER_STAGE), PER_GPU)
    at: tuple[float, ...] = numbers("caps to try, in W or MHz (default: over the GPU's range)", flag="--at W,W,...")
    ignore_memory: bool = flag(IGNORE_MEMORY, False)
    tariff: Mapping[str, Any] = table(TARIFF)


class CapsKeywords(TypedDict, total=False):
    """Keywords of `CapsSettings`, with the types of their values."""

    power: bool
    clock: bool
    per: str
    at: Sequence[float] | None
    ignore_memory: bool
    tariff: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSettings:
    """What is decided about the ranks of a run, and with how much effort."""

    decide: tuple[str, ...] = words("decisions to make", DECISIONS, DECISIONS, flag=f"--decide {','.join(DECISIONS)}")
    node_budget_w: float | None = number(
        "sum of the power limits of a node's GPUs (default: the sum of the run's limits)", 1, 1e9, None
    )
    dephase: bool = flag("also stagger replicas and jobs: power oscillation against throughput", False)
    work: float = number(
        "search effort for each decision, in deterministic seconds of the solver", 1e-6, LONGEST_WORK, MOST_WORK,
        flag="--work N",
    )  # fmt: skip
    ignore_memory: bool = flag(IGNORE_MEMORY, False)
    out: Path | None = path("write the fastest placement here", flag="-o/--out FILE.toml")


class PlaceKeywords(TypedDict, total=False):
    """Keywords of `PlaceSettings`, with the types of their values."""

    decide: str | Sequence[str]
    node_budget: float | None
    dephase: bool
    work: float
    ignore_memory: bool
    out: str | PathLike[str] | None
