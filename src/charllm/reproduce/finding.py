"""A finding: a claim of the paper, the configurations that it is judged by, and the numbers that these give."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from charllm.report.claims import Claim
from charllm.reproduce.looks import Row, Rows, key_of
from charllm.reproduce.paper import Request

Number = Callable[..., float | None]
"""Takes the rows of a configuration's runs, in their order."""


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
    """A claim of the paper with the configurations that it is judged by."""

    claim: Claim
    configurations: Configurations
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """Other readings of the claim, in words: those that mistakes of the artifact lead to, or other measures."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return self.claim.name

    @property
    def unit(self) -> str:
        """Unit of its effects."""
        return self.claim.unit

    @property
    def runs(self) -> list[Request]:
        """All runs that it needs."""
        return [run for one in self.configurations.values() for run in one.runs]

    @property
    def reading_runs(self) -> list[Request]:
        """Those that its other readings need."""
        return [run for other in self.readings.values() for one in other.configurations.values() for run in one.runs]


def effects_of(
    configurations: Configurations, rows: Rows, change: Callable[[Request], Request] = lambda run: run
) -> dict[str, float | None]:
    """Return the effect of each configuration, of its runs under some change."""
    return {
        name: one.effect(*(rows.get(key_of(change(run)), {}) for run in one.runs))
        for name, one in configurations.items()
    }


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


DURING_GEMMS = "clock lost during GEMMs (weighted by power), points"
"""Reading of a claim about throttling: a mean over the step counts waiting as less throttling."""
during_gemms = more("gemm_clock_loss", POINT)


def read(name: str, scale: float = 1.0) -> Number:
    """Return a figure of one run, in units of `scale`."""

    def number(row: Row) -> float | None:
        value = row.get(name)
        return None if value is None else float(value) / scale

    return number
