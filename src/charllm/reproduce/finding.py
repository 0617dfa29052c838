"""A finding: a claim as a number for each configuration, and the marks that decide about it, set before any run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from charllm.report.page.claims import FAILS, HOLDS, PARTLY
from charllm.reproduce.looks import Row, Rows, key_of
from charllm.reproduce.paper import Request

Number = Callable[..., float | None]
"""Takes the rows of a configuration's runs, in their order."""
HEADLINES: dict[str, Callable[[Iterable[float]], float]] = {"median": median, "largest": max, "smallest": min}


class Configuration(NamedTuple):
    """One place where a claim may be seen: the runs that are compared, and the number that they give."""

    runs: tuple[Request, ...]
    effect: Number
    """Positive where the claim is seen; None where a run is not possible."""


Configurations = Mapping[str, Configuration]


class Reading(NamedTuple):
    """Another way to read a claim."""

    configurations: Configurations
    is_judged: bool = False
    """Whether its numbers have the unit of the finding, so that the rule can be applied to them, too."""


Effects = Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A claim of the paper, and when it counts as seen."""

    name: str
    claim: str
    unit: str
    """Unit of the effect, and against what."""
    configurations: Configurations
    least: float
    """An effect above this shows the claim."""
    size: float | None = None
    """What the headline has to reach for the claim at the size that the paper gives; None: it gives none."""
    headline: str = "median"
    """Which of the effects stands for all: a key of HEADLINES."""
    some: bool = False
    """Whether the claim is about some configurations ("up to", "can"), not about all."""
    is_thermal: bool = False
    """Whether it rests on temperatures or on clocks, so that air, caps and dies decide about it."""
    note: str = ""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """Other readings of the claim, in words: those that mistakes of the artifact lead to, or other measures."""
    circular: str = ""
    """Why a verdict is no evidence: a constant that was derived from this very claim."""

    @property
    def rule(self) -> str:
        """Say when it holds, in words."""
        which = "at least one configuration shows" if self.some else "every configuration shows"
        size = f" and the {self.headline} effect reaches {self.size:g}" if self.size is not None else ""
        return f"holds where {which} an effect above {self.least:g} ({self.unit}){size}; partly where some show it"

    @property
    def runs(self) -> list[Request]:
        """All runs that it needs."""
        return [run for one in self.configurations.values() for run in one.runs]

    @property
    def reading_runs(self) -> list[Request]:
        """Those that its other readings need."""
        return [run for other in self.readings.values() for one in other.configurations.values() for run in one.runs]


class Verdict(NamedTuple):
    """What the runs say of a claim."""

    verdict: str
    effect: float | None
    """The headline; None where no configuration could be run."""
    supporting: list[str]
    against: list[str]


def effects_of(
    configurations: Configurations, rows: Rows, change: Callable[[Request], Request] = lambda run: run
) -> dict[str, float | None]:
    """Return the effect of each configuration, of its runs under some change."""
    return {
        name: one.effect(*(rows.get(key_of(change(run)), {}) for run in one.runs))
        for name, one in configurations.items()
    }


def judge(finding: Finding, effects: Effects) -> Verdict:
    """Apply the rule of a finding to the effects of its configurations."""
    known = {name: effect for name, effect in effects.items() if effect is not None}
    if not known:
        return Verdict(FAILS, None, [], [])
    seen = [name for name, effect in known.items() if effect > finding.least]
    headline = HEADLINES[finding.headline](known.values())
    large = finding.size is None or headline >= finding.size
    enough = bool(seen) if finding.some else len(seen) == len(known)
    verdict = HOLDS if enough and large else PARTLY if seen else FAILS
    return Verdict(verdict, headline, seen, [name for name in known if name not in seen])


def _known(name: str, rows: Sequence[Row]) -> list[float] | None:
    values = [row.get(name) for row in rows]
    return None if None in values else [float(value) for value in values if value is not None]


def percent_more(name: str) -> Number:
    """Return by how many per cent the first run exceeds the second."""

    def number(*rows: Row) -> float | None:
        values = _known(name, rows)
        return None if values is None or not values[1] else 100 * (values[0] / values[1] - 1)

    return number


def percent_less(name: str) -> Number:
    """Return by how many per cent the first run stays below the second."""

    def number(*rows: Row) -> float | None:
        more = percent_more(name)(*rows)
        return None if more is None else -more

    return number


def times(name: str) -> Number:
    """Return how many times the second run's figure the first one's is."""

    def number(*rows: Row) -> float | None:
        values = _known(name, rows)
        return None if values is None or not values[1] else values[0] / values[1]

    return number


def more(name: str, scale: float = 1.0) -> Number:
    """Return by how much the first run exceeds the second, in units of `scale`."""

    def number(*rows: Row) -> float | None:
        values = _known(name, rows)
        return None if values is None else (values[0] - values[1]) / scale

    return number


POINT = 0.01
"""A point of clock: a hundredth of the requested one."""


def read(name: str, scale: float = 1.0) -> Number:
    """Return a figure of one run, in units of `scale`."""

    def number(row: Row) -> float | None:
        value = row.get(name)
        return None if value is None else float(value) / scale

    return number
