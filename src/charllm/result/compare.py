"""Two results side by side."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from charllm.result.differences import Difference, changed_settings, difference
from charllm.result.metrics import numbers_of
from charllm.result.result import RunResult
from charllm.spec.request import dotted_fields


class Compared(NamedTuple):
    """One metric of two runs."""

    metric: str
    first: float | None
    second: float | None
    difference: Difference | None = None
    """Of two simulated runs: the effect with its interval, where errors of differences of this metric are known."""

    @property
    def ratio(self) -> float | None:
        """Second over first, where both are known and the first is not zero."""
        if self.first is None or self.second is None or self.first == 0:
            return None
        return self.second / self.first

    def as_row(self) -> dict[str, Any]:
        """Return the values, their ratio, and the difference with its interval as plain cells."""
        found = self.difference
        row = {"metric": self.metric, "first": self.first, "second": self.second, "ratio": self.ratio}
        if found is None:
            return {**row, **dict.fromkeys(("effect", "low", "high", "is_clear", "basis"))}
        ends = {"effect": found.effect, "low": found.low, "high": found.high}
        return {**row, **ends, "is_clear": found.is_clear, "basis": found.basis}


def compare_runs(first: RunResult, second: RunResult) -> list[Compared]:
    """List every numeric metric that at least one of two runs knows; tables are flattened with dots."""
    left, right = numbers_of(first.metrics), numbers_of(second.metrics)
    names = [*left, *(name for name in right if name not in left)]
    changed = changed_settings(first.spec, second.spec)
    are_predicted = bool(changed) and first.origin == second.origin == "simulated"

    def effect(name: str) -> Difference | None:
        before, after = left.get(name), right.get(name)
        return difference(name, before, after, changed) if are_predicted and before and after else None

    return [
        Compared(name, left.get(name), right.get(name), effect(name))
        for name in names
        if left.get(name) is not None or right.get(name) is not None
    ]


def spec_differences(first: RunResult, second: RunResult) -> dict[str, tuple[Any, Any]]:
    """List the settings in which two runs differ, with both values."""
    return {name: (values[0], values[1]) for name, values in differing_settings([first, second]).items()}


def differing_settings(runs: Sequence[RunResult]) -> dict[str, list[Any]]:
    """List the settings in which runs differ, with the value of each run; None where a run does not set it."""
    tables = [dotted_fields(run.spec) for run in runs]
    names = dict.fromkeys(name for table in tables for name in table)
    found = {name: [table.get(name) for table in tables] for name in names}
    return {name: values for name, values in found.items() if any(value != values[0] for value in values)}
