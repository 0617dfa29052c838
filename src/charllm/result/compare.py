"""Two results side by side."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from charllm.result.metrics import numbers_of
from charllm.result.result import RunResult
from charllm.spec.request import dotted_fields


class Difference(NamedTuple):
    """One metric of two runs."""

    metric: str
    first: float | None
    second: float | None

    @property
    def ratio(self) -> float | None:
        """Second over first, where both are known and the first is not zero."""
        if self.first is None or self.second is None or self.first == 0:
            return None
        return self.second / self.first


def compare_runs(first: RunResult, second: RunResult) -> list[Difference]:
    """List every numeric metric that at least one of two runs knows; tables are flattened with dots."""
    left, right = numbers_of(first.metrics), numbers_of(second.metrics)
    names = [*left, *(name for name in right if name not in left)]
    return [
        Difference(name, left.get(name), right.get(name))
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
