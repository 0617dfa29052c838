from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.plan.money import Tariff
from charllm.plan.whole_run import (
    LLAMA3_FAILURES_PER_GPU_DAY,
    WholeRun,
    best_interval_s,
    interrupted,
    warm_up,
    whole_run_metrics,
)
from charllm.units import DAY_S
from tests.plan.candidates import TOKENS, mine

WHOLE = WholeRun(tokens=TOKENS)


@given(st.floats(1.0, 600.0), st.floats(3600.0, 1e6))
def test_no_interval_is_much_better_than_daly_s(stall_s: float, mean_s: float) -> None:
    best_s = best_interval_s(stall_s, 1 / mean_s)
    found_s = interrupted(1e7, best_s, stall_s, 1 / mean_s, 300.0).total_s
    others_s = [
        interrupted(1e7, best_s * factor, stall_s, 1 / mean_s, 300.0).total_s for factor in np.geomspace(0.2, 5)
    ]
    assert found_s <= 1.002 * min(others_s)


def test_parts_of_the_time_and_of_the_energy_add_up() -> None:
    found = whole_run_metrics(mine().run, mine().metrics, WHOLE, Tariff())
    useful_s = TOKENS / mine().metrics["tokens_per_s"]
    parts_s = useful_s + found["run_checkpoint_s"] + found["run_lost_s"] + found["run_restart_s"]
    assert parts_s == pytest.approx(found["run_time_s"])
    assert found["run_useful_fraction"] == pytest.approx(useful_s / parts_s)
    idle_w = mine().metrics["cluster_power_mean_w"] - found["power_dip_w"]
    working_s = useful_s + found["run_lost_s"]
    nodes_j = mine().metrics["cluster_power_mean_w"] * working_s + idle_w * (found["run_time_s"] - working_s)
    assert found["run_energy_j"] == pytest.approx(1.2 * nodes_j / mine().run.cluster.node.supply_fraction)


def test_a_simulated_run_with_random_failures_takes_as_long_as_expected() -> None:
    random, rate_per_s, interval_s, stall_s, restart_s, pieces = (
        np.random.default_rng(0),
        1 / 5000,
        3000.0,
        60.0,
        400.0,
        20_000,
    )
    time_s = 0.0
    for _ in range(pieces):
        while (failed_s := random.exponential(1 / rate_per_s)) < interval_s + stall_s:
            time_s += failed_s
            while (failed_s := random.exponential(1 / rate_per_s)) < restart_s:
                time_s += failed_s
            time_s += restart_s
        time_s += interval_s + stall_s
    expected = interrupted(pieces * interval_s, interval_s, stall_s, rate_per_s, restart_s)
    assert expected.total_s == pytest.approx(time_s, rel=0.01)


def test_few_failures_lose_half_an_interval_each() -> None:
    found = interrupted(1e8, 1000.0, 0.0, 1e-7, 0.0)
    assert found.lost_s / found.failures == pytest.approx(500.0, rel=1e-3)


def test_llama_3_s_rate_of_failures_leaves_most_of_the_time_useful() -> None:
    # The paper: more than 90 % effective training time on 16,384 GPUs.
    rate_per_s = 16_384 * LLAMA3_FAILURES_PER_GPU_DAY / DAY_S
    stall_s = 14 * 405e9 / 2e12
    found = interrupted(54 * DAY_S, best_interval_s(stall_s, rate_per_s), stall_s, rate_per_s, 600.0)
    assert found.failures == pytest.approx(419, rel=0.1)
    assert 0.9 < found.useful_s / found.total_s < 0.97


def test_nothing_fails_where_the_rate_is_zero_and_nothing_ends_where_it_is_huge() -> None:
    calm = whole_run_metrics(mine().run, mine().metrics, replace(WHOLE, failures_per_gpu_day=0.0), Tariff())
    assert (calm["run_failures"], calm["checkpoint_interval_best_s"]) == (0, None)
    assert interrupted(1e7, 1e7, 10.0, 1.0, 10.0).total_s == inf


def test_a_cold_start_changes_a_run_by_less_than_itself() -> None:
    warm = warm_up(mine().run, mine().metrics)
    assert abs(warm.time_s) < 30
    assert warm.energy_j != 0
    usual, cold = (whole_run_metrics(mine().run, mine().metrics, WHOLE, Tariff(), *extra) for extra in ((), (warm,)))
    assert cold["run_time_s"] == pytest.approx(usual["run_time_s"] + warm.time_s * (1 + usual["run_failures"]))
