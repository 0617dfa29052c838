"""Every metric that a plan may limit or optimise: those of a run, and those that follow from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from charllm.plan.facility import FACILITY_METRICS, facility_metrics
from charllm.plan.money import MONEY_METRICS, Tariff, money_metrics
from charllm.plan.whole_run import ALWAYS_WARM, WHOLE_RUN_METRICS, WarmUp, WholeRun, whole_run_metrics
from charllm.result.metrics import METRICS, Metrics
from charllm.spec.run import RunSpec

DERIVED_METRICS = {**FACILITY_METRICS, **MONEY_METRICS, **WHOLE_RUN_METRICS}
PLAN_METRICS = {**METRICS, **DERIVED_METRICS}
"""Name: meaning."""
FAST_METRICS = frozenset((
    "step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "parameters", "active_parameters", "model_flop",
    "executed_flop", "microbatches", "fits", "memory_need_bytes",
    "memory_margin_fraction", "memory_fit_probability", "memory_allocated_bytes", "memory_reserved_bytes",
    "memory_peak_bytes",
    "memory_breakdown_bytes", "memory_rank", "power_mean_w", "energy_per_step_j", "tokens_per_j", "clock_mean_hz",
    "breakdown_s", "hidden_communication_s", "link_bytes", "axis_bytes", "link_utilization_fraction",
    "message_bytes_median", "messages", "cluster_power_mean_w", "rack_power_mean_w", "facility_power_mean_w",
    "energy_delay_product_j_s", *MONEY_METRICS, *WHOLE_RUN_METRICS,
))  # fmt: skip
"""Metrics that need no heat: the fast path gives them, too."""


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
    found = Metrics(metrics)
    found |= facility_metrics(run, found, tariff.pue, tariff.nodes_per_rack)
    found |= money_metrics(run, found, tariff)
    found |= whole_run_metrics(run, found, whole, tariff, warm) if whole else dict.fromkeys(WHOLE_RUN_METRICS)
    return found


def metric_value(metrics: Mapping[str, Any], name: str) -> float | None:
    """Return a metric by name, of a table by ``name.key``; None where it is not known."""
    stem, _, key = name.partition(".")
    value = metrics.get(stem)
    if key:
        value = None if value is None else value.get(key)
    return None if value is None else float(value)
