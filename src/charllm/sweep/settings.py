"""The settings of a sweep: which cases of a study are run, and where they are stored."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from charllm.measure.launchers.plan import PlanKeywords
from charllm.measure.settings import MeasureKeywords
from charllm.spec.fields import choice, count, flag, lines, path
from charllm.spec.request import Table
from charllm.sweep.sampling import METHODS, MOST
from charllm.sweep.study import MAX_REPEATS, Study, unfold


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    """Where the cases of a study are stored, and whether they are measured."""

    out: Path | None = path("store every case in this folder as it ends")
    resume: bool = flag("continue the sweep in --out", False)
    signals: bool = flag("also store power, temperature and clock over time of every case", False)
    measure: bool = flag("run and measure every case instead of simulating it", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which cases of a study are run."""

    where: tuple[str, ...] = lines(
        "keep only cases that meet this constraint, such as 'tp*pp <= 32'; may be repeated", flag="--where 'TEXT'"
    )
    sample: int | None = count("draw a sample of N cases", 1, MOST, None)
    sample_method: str | None = choice("sampling method (default random)", tuple(METHODS), None)
    sample_seed: int | None = count("seed of the sample (default 0)", 0, MOST, None)
    repeats: int | None = count("run each case with N seeds", 1, MAX_REPEATS, None)

    def select(self, name: str, table: Table) -> Study:
        """Return a study with more constraints than its table has, another sample or other repeats."""
        changed: dict[str, Any] = dict(table)
        if self.where:
            before = table.get("where", [])
            changed["where"] = [*([before] if isinstance(before, str) else before), *self.where]
        drawn = {"count": self.sample, "method": self.sample_method, "seed": self.sample_seed}
        drawn = {word: value for word, value in drawn.items() if value is not None}
        if drawn:
            before = table.get("sample")
            changed["sample"] = {**(before if isinstance(before, dict) else {"count": before}), **drawn}
        if self.repeats is not None:
            changed["repeats"] = self.repeats
        return unfold(name, changed)


class SweepKeywords(MeasureKeywords, PlanKeywords, total=False):
    """Keywords of a sweep: which cases, where they are simulated, how they are measured, and where they are stored."""

    out: str | Path | None
    resume: bool
    signals: bool
    measure: bool
    where: str | list[str] | tuple[str, ...]
    sample: int | None
    sample_method: str | None
    sample_seed: int | None
    repeats: int | None
    runner: str
    workers: int | None
    address: str | None
    command: str
    adapter: str | None
    script: str | None
    steps: int
