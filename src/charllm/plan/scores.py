"""What strategies are ranked by on the fast path: a number to make small, and a bound of it from time and energy."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from charllm.arrays import Floats
from charllm.plan.metrics import Economics, derive_metrics
from charllm.plan.money import energy_money
from charllm.plan.objectives import Objective
from charllm.result.metric import HIGHER, metric_value
from charllm.result.metrics import quantity, selected
from charllm.spec.run import RunSpec
from charllm.units import HOUR_S

BY_TIME = selected("step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "run_time_s")
BY_ENERGY = selected("energy_per_step_j", "tokens_per_j")
BY_BOTH = selected("energy_delay_product_j_s")
BY_MONEY = selected("money_per_trillion_tokens")
"""Metrics that follow from step time, from energy, from their product or from both."""


class Score(NamedTuple):
    """A number that is small where a strategy is good."""

    of: Callable[[RunSpec, Mapping[str, Any]], float]
    """From the metrics of the fast path."""
    bound: Callable[[Floats, Floats], Floats]
    """From the least step time and the least energy of one GPU."""
    exact: bool
    """Whether `bound` is one; otherwise it is an estimate, and the ranking may miss the best."""
    by_time: bool = False
    """Whether `bound` grows with step time where energy is not known (0)."""
    fastest_wins: bool = False
    """Whether it follows from step time alone, so that no cap can make it better."""


def score_of(base: RunSpec, objective: Objective, economics: Economics) -> Score:
    """Return what ranks strategies for an objective."""
    metric, gpus = objective.metric, base.cluster.gpus
    if objective.better != quantity(metric).better:
        return _estimate(objective, economics)
    if metric in BY_TIME:
        return Score(
            lambda _run, metrics: float(metrics["step_time_s"]), lambda time_s, _energy_j: time_s, True, True, True
        )
    if metric in BY_ENERGY:
        return Score(
            lambda _run, metrics: float(metrics["energy_per_step_j"]), lambda _time_s, energy_j: gpus * energy_j, True
        )
    if metric in BY_BOTH:
        return Score(
            lambda _run, metrics: float(metrics["energy_per_step_j"] * metrics["step_time_s"]),
            lambda time_s, energy_j: gpus * energy_j * time_s, True,
        )  # fmt: skip
    if metric in BY_MONEY or metric == "run_money":
        # On one cluster a whole run costs more where its tokens do.
        return _money_score(base, economics)
    return _estimate(objective, economics)


def _money_score(base: RunSpec, economics: Economics) -> Score:
    """Rank by money of a step; the bound leaves out what nodes draw beside their GPUs."""
    tariff, gpus = economics.tariff, base.cluster.gpus
    rent_per_s = gpus * tariff.gpu_per_hour / HOUR_S
    per_j = energy_money(1.0, tariff)

    def money(run: RunSpec, metrics: Mapping[str, Any]) -> float:
        facility_w = derive_metrics(run, metrics, economics)["facility_power_mean_w"]
        return float((rent_per_s + per_j * facility_w) * metrics["step_time_s"])

    return Score(money, lambda time_s, energy_j: rent_per_s * time_s + per_j * gpus * energy_j, True, True)


def _estimate(objective: Objective, economics: Economics) -> Score:
    """Rank by the metric where the fast path knows it, else by mean power, which heat and peaks follow."""

    def value(run: RunSpec, metrics: Mapping[str, Any]) -> float:
        if objective.needs_coupled:
            return float(metrics["power_mean_w"])
        found = metric_value(derive_metrics(run, metrics, economics), objective.metric)
        return float("inf") if found is None else -found if objective.better == HIGHER else found

    return Score(value, lambda time_s, energy_j: energy_j / time_s, False)
