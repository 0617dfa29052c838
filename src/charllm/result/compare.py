"""Two results side by side."""

from typing import Any, NamedTuple

from charllm.result.result import RunResult


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
    left, right = flatten(first.metrics), flatten(second.metrics)
    names = [*left, *(name for name in right if name not in left)]
    return [
        Difference(name, left.get(name), right.get(name))
        for name in names
        if left.get(name) is not None or right.get(name) is not None
    ]


def spec_differences(first: RunResult, second: RunResult) -> dict[str, tuple[Any, Any]]:
    """List the settings in which two runs differ, with both values."""
    left, right = _settings(first.spec), _settings(second.spec)
    names = [*left, *(name for name in right if name not in left)]
    return {name: (left.get(name), right.get(name)) for name in names if left.get(name) != right.get(name)}


def flatten(metrics: dict[str, Any]) -> dict[str, float | None]:
    """Turn nested metrics into one level of numbers; yes and no become 1 and 0."""
    flat: dict[str, float | None] = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{key}": item for key, item in flatten(value).items()})
        elif value is None or isinstance(value, int | float):
            flat[name] = None if value is None else float(value)
    return flat


def _settings(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat.update(_settings(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat
