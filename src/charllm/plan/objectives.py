"""What a plan makes best: one metric, and which way."""

from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from charllm.errors import SpecError, unknown_name
from charllm.plan.limits import parse_limit
from charllm.result.metric import HIGHER, LOWER, metric_value
from charllm.result.metrics import PLAN_METRICS


class Objective(NamedTuple):
    """A metric to make as high, or as low, as possible."""

    name: str
    metric: str
    better: str
    """higher or lower."""
    meaning: str

    @property
    def needs_coupled(self) -> bool:
        """Whether only the coupled simulator knows the metric."""
        return PLAN_METRICS[self.metric.partition(".")[0]].needs_heat

    def key(self, metrics: Mapping[str, Any]) -> float:
        """Return a number to sort by, the best first; a metric that is not known comes last."""
        value = metric_value(metrics, self.metric)
        return inf if value is None else -value if self.better == HIGHER else value

    def gain_fraction(self, metrics: Mapping[str, Any], over: Mapping[str, Any]) -> float | None:
        """Return by how much metrics are better than others; negative where they are worse."""
        ours, theirs = metric_value(metrics, self.metric), metric_value(over, self.metric)
        if not ours or not theirs:
            return None
        return ours / theirs - 1 if self.better == HIGHER else theirs / ours - 1


OBJECTIVES = {
    name: Objective(name, metric, PLAN_METRICS[metric].better, meaning)
    for name, metric, meaning in (
        ("throughput", "tokens_per_s", "highest throughput"),
        ("tokens-per-joule", "tokens_per_j", "most tokens per joule of GPU energy"),
        ("edp", "energy_delay_product_j_s", "lowest energy x time of a step"),
        ("peak-power", "cluster_power_peak_w", "lowest peak power of all nodes together"),
        ("temperature", "temperature_peak_c", "lowest peak temperature"),
        ("cost", "money_per_trillion_tokens", "lowest cost of a trillion tokens"),
        ("run-time", "run_time_s", "shortest whole run, with checkpoints and failures"),
        ("run-cost", "run_money", "lowest cost of the whole run"),
    )
}
"""Name: objective."""
WAYS: dict[str, str] = {"min": LOWER, "max": HIGHER}


def parse_objective(text: str, *, whole_run: bool = True) -> Objective:
    """Return an objective by its name, or of any metric as ``min:METRIC`` or ``max:METRIC``.

    Without a whole run its metrics are not known, and none of them can be an objective.
    """
    found = _parse_objective(text)
    if not whole_run and found.metric.startswith("run_"):
        raise SpecError("--whole-run", None, f"tokens=N, e.g. tokens=1e12: objective {text} is of a whole run")
    return found


def _parse_objective(text: str) -> Objective:
    way, colon, metric = text.partition(":")
    if not colon:
        if text not in OBJECTIVES:
            raise unknown_name("objective", text, (*OBJECTIVES, "min:METRIC", "max:METRIC"))
        return OBJECTIVES[text]
    if way not in WAYS:
        raise SpecError("objective", text, "min:METRIC or max:METRIC")
    name = parse_limit(f"{metric}<0").metric
    return Objective(text, name, WAYS[way], f"{'lowest' if way == 'min' else 'highest'} {metric}")
