from dataclasses import replace
from typing import Any

import pytest

from charllm.errors import SpecError
from charllm.plan.alternatives import (
    COOLEST,
    SIMPLEST,
    _cool,
    _differs,
    _worse,
    traits_of,
    try_simulating,
    twin_fraction,
)
from charllm.plan.axes import default_axes
from charllm.plan.candidate import Candidate
from charllm.plan.feasible import Feasible
from charllm.plan.metrics import Economics
from charllm.plan.objectives import OBJECTIVES
from charllm.plan.scores import score_of
from charllm.plan.space import Space
from charllm.result.differences import find_error, half_width
from tests.plan.candidates import candidates, mine


def with_metrics(**metrics: Any) -> Candidate:
    return mine()._replace(metrics={**mine().metrics, **metrics})


def test_a_twin_is_worse_by_no_more_than_the_error_of_a_change_of_strategy() -> None:
    assert 1 + twin_fraction() == pytest.approx(2.718281828459045 ** half_width(find_error("step time", "strategy"), 0))
    assert 0.01 < twin_fraction() < 0.15


def test_a_strategy_is_worse_by_what_the_best_gains_over_it() -> None:
    best, one = with_metrics(tokens_per_s=120.0), with_metrics(tokens_per_s=100.0)
    assert _worse(one, best, OBJECTIVES["throughput"]) == pytest.approx(0.2)
    assert _worse(best, best, OBJECTIVES["throughput"]) == 0
    assert _worse(with_metrics(tokens_per_s=None), best, OBJECTIVES["throughput"]) == 1


def test_settings_that_vary_among_the_like_are_given_as_a_span_and_others_as_they_are() -> None:
    traits = traits_of(candidates()[:3])
    assert (traits["tp"], traits["pp"], traits["dp"], traits["vpp"]) == ("4 to 8", "4 to 8", "1 to 2", "1")
    assert traits["recompute"] == mine().run.training.recompute
    assert traits["mbs"] == str(mine().run.training.micro_batch_size)
    run = mine().run
    hidden = [replace(run, parallelism=replace(run.parallelism, overlap=one)) for one in (("dp", "pp"), ("dp",))]
    assert traits_of([mine()._replace(run=one) for one in hidden])["overlap"] == "dp+pp or dp"


def feasible(*stated: str) -> Feasible:
    run = mine().run
    return Feasible(Space(run, default_axes(run), stated), [], 0.05)


def test_a_cooler_row_has_a_limit_of_four_fifths_of_the_boards_where_none_is_stated() -> None:
    score = score_of(mine().run, OBJECTIVES["throughput"], Economics())
    found = _cool(mine(), feasible(), score, [])
    assert found is not None
    assert found.conditions.power_cap_w == pytest.approx(0.8 * 700)
    assert _cool(mine()._replace(run=found), feasible(), score, []) is None
    assert _cool(mine(), feasible("power_cap"), score, []) is None


@pytest.mark.parametrize(
    ("cooler_k", "power_fraction", "differs"),
    [(2.01, 1.0, True), (1.9, 1.0, False), (0.0, 0.949, True), (0.0, 0.951, False), (-5.0, 0.9, True)],
)
def test_a_cooler_row_is_two_kelvin_cooler_or_draws_a_twentieth_less(
    cooler_k: float, power_fraction: float, differs: bool
) -> None:
    best = with_metrics(temperature_peak_c=80.0, power_mean_w=500.0)
    one = with_metrics(temperature_peak_c=80.0 - cooler_k, power_mean_w=500.0 * power_fraction)
    assert _differs(COOLEST, one, best) is differs
    assert _differs(SIMPLEST, one, best)


def test_a_refused_alternative_is_left_out() -> None:
    def refuse(_run: object) -> Candidate:
        raise SpecError("parallelism.tp", 3, "a divisor of heads")

    assert try_simulating(refuse)(mine().run) is None
    assert try_simulating(lambda _run: mine())(mine().run) is mine()
