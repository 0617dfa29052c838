"""Intervals derived from held-out errors."""

import numpy as np
import pytest
from scipy.stats import t as student

from charllm.evaluate.intervals import BOARD_METRICS, quantiles, score_takes, take_bounds
from charllm.result.uncertainty import LEVEL


def test_takes_that_err_as_a_whole_widen_an_interval_more_than_their_runs_do() -> None:
    runs = [-0.5, 0.0, 0.5] * 10
    alike, apart = take_bounds([runs, runs, runs]), take_bounds([[run + mean for run in runs] for mean in (-3, 0, 3)])
    within = quantiles(runs)
    assert (alike["low"], alike["high"]) == pytest.approx((within["low"], within["high"]))
    assert apart["high"] > 3 * student.ppf((1 + LEVEL) / 2, 2)
    assert apart["low"] == pytest.approx(-apart["high"])
    assert apart["rows"] == 90


def test_a_take_to_come_lies_in_the_interval_as_often_as_it_says() -> None:
    drawn = np.random.default_rng(3)
    inside = []
    for _ in range(400):
        *known, coming = [(mean + 0.5 * drawn.standard_normal(20)).tolist() for mean in 2 * drawn.standard_normal(5)]
        bounds = take_bounds(known)
        inside.append(bounds["low"] <= coming[0] <= bounds["high"])
    assert np.mean(inside) == pytest.approx(LEVEL, abs=0.04)


@pytest.mark.parametrize("metric", BOARD_METRICS)
def test_readings_of_a_board_lie_in_intervals_that_other_takes_give(metric: str) -> None:
    assert score_takes(metric)["covered_fraction"] >= 0.85
