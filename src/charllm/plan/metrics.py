"""Every metric that a plan may limit or optimise: those of a run, and those that follow from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from charllm.plan.facility import facility_metrics
from charllm.plan.money import Tariff, money_metrics
from charllm.plan.whole_run import ALWAYS_WARM, WarmUp, WholeRun, whole_run_metrics
from charllm.result.metric import PLAN
from charllm.result.metrics import PLAN_METRICS, Metrics
from charllm.spec.run import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Economics:
    """What metrics of money, racks and whole runs need beside a simulated step."""

    tariff: Tariff = field(default_factory=Tariff)
    whole_run: WholeRun | None = None
    """Without it there are no metrics of a whole run."""


USUAL = Economics()


def derive_metrics(
    run: RunSpec, metrics: Mapping[str, Any], economics: Economics = USUAL, warm: WarmUp = ALWAYS_WARM
) -> Metrics:
    """Return the metrics of a run with those that follow from them."""
    tariff, whole = economics.tariff, economics.whole_run
    found = Metrics({**metrics, **{name: None for name, one in PLAN_METRICS.items() if one.part == PLAN}})
    found |= facility_metrics(run, found, tariff.pue, tariff.nodes_per_rack)
    found |= money_metrics(run, found, tariff)
    if whole:
        found |= whole_run_metrics(run, found, whole, tariff, warm)
    return found
