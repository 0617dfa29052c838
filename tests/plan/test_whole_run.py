from dataclasses import replace
from math import exp, inf

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
from charllm.simulate.predict import simulate
from charllm.units import DAY_S
from tests.plan.candidates import TOKENS, mine
from tests.plan.round import METRICS, round_run

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


@pytest.mark.parametrize(
    ("stall_s", "mean_s", "best_s"),
    [
        # Daly 2006, equation 37: c / 2m = 0.01: 2000 (1 + 0.1 / 3 + 0.01 / 9) - 200.
        (200.0, 10_000.0, 2000 * (1 + 1 / 30 + 1 / 900) - 200),
        # c / 2m = 0.25: 1000 (1 + 0.5 / 3 + 0.25 / 9) - 500.
        (500.0, 1000.0, 1000 * (1 + 1 / 6 + 1 / 36) - 500),
        (2000.0, 1000.0, 1000.0),  # from c = 2m on: m
        (3000.0, 1000.0, 1000.0),
        (0.0, 1000.0, 1.0),
    ],
)
def test_the_best_interval_is_daly_s(stall_s: float, mean_s: float, best_s: float) -> None:
    assert best_interval_s(stall_s, 1 / mean_s) == pytest.approx(best_s)


def test_nothing_is_best_where_nothing_fails() -> None:
    assert best_interval_s(60.0, 0.0) == inf


def test_interruptions_are_what_a_hand_makes_them() -> None:
    # Ten pieces of 1000 s and a checkpoint of 100 s, a failure every 1000 s, 200 s to restart.
    found = interrupted(10_000.0, 1000.0, 100.0, 1e-3, 200.0)
    working_s = 10 * (exp(1.1) - 1) * 1000
    assert found.checkpoint_s == pytest.approx(1000.0)
    assert found.lost_s == pytest.approx(working_s - 11_000)
    assert found.restart_s == pytest.approx(working_s * (exp(0.2) - 1))
    assert found.failures == pytest.approx(working_s * exp(0.2) / 1000)
    assert found.total_s == pytest.approx(working_s * exp(0.2))
    assert interrupted(10_000.0, 1000.0, 100.0, 0.0, 200.0).total_s == 11_000.0


def test_a_run_that_fails_five_hundred_times_in_an_interval_never_ends() -> None:
    assert interrupted(1e3, 1e3, 0.0, 0.499, 0.0).total_s < inf
    assert interrupted(1e3, 1e3, 0.0, 0.501, 0.0).total_s == inf


def test_a_whole_run_is_what_a_hand_makes_it() -> None:
    # 32 GPUs that fail 2.7 times a day each: once in 1000 s. 8e9 parameters of 14 bytes over 4 nodes of 1 GB/s take
    # 28 s, for half of which training waits. 3.6e9 tokens at 1e6 a second: an hour, four pieces of 900 s.
    whole = WholeRun(
        tokens=3.6e9, checkpoint_interval_s=900.0, checkpoint_stall_fraction=0.5, failures_per_gpu_day=2.7,
        restart_s=100.0,
    )  # fmt: skip
    tariff = Tariff(electricity_per_kwh=0.1, gpu_per_hour=2.0, pue=1.5, demand_per_kw_month=0.0)
    run = round_run()
    found = whole_run_metrics(run, METRICS, whole, tariff)
    working_s = 4 * (exp(0.914) - 1) * 1000
    restart_s = working_s * (exp(0.1) - 1)
    # Nodes draw 5 kW at work; 1 kW beside their GPUs when these idle.
    idle_w = 1000.0 + 8 * run.cluster.gpu.idle_draw_w
    energy_j = 1.5 / 0.8 * 4 * (5000 * (working_s - 56) + idle_w * (56 + restart_s))
    by_hand = {
        "run_time_s": working_s + restart_s,
        "run_energy_j": energy_j,
        "run_money": energy_j / 3.6e6 * 0.1 + 32 * 2.0 * (working_s + restart_s) / 3600,
        "run_useful_fraction": 3600 / (working_s + restart_s),
        "run_failures": (working_s + restart_s) / 1000,
        "run_checkpoints": 4.0,
        "run_checkpoint_s": 4 * 14.0,
        "run_lost_s": working_s - 3600 - 56,
        "run_restart_s": restart_s,
        "checkpoint_interval_s": 900.0,
        "checkpoint_interval_best_s": best_interval_s(14.0, 1e-3),
        "power_dip_w": 4 * (5000.0 - idle_w),
    }
    assert found == pytest.approx(by_hand)


def test_a_checkpoint_whose_time_is_given_takes_it_and_a_run_is_never_cut_finer_than_once() -> None:
    whole = replace(WHOLE, tokens=3.6e9, checkpoint_write_s=40.0, checkpoint_interval_s=1e6, failures_per_gpu_day=0.0)
    found = whole_run_metrics(round_run(), METRICS, whole, Tariff())
    assert (found["checkpoint_interval_s"], found["run_checkpoints"]) == (3600.0, 1.0)
    assert found["run_time_s"] == 3640.0


def test_what_is_not_given_of_a_whole_run_is_that_of_its_sources() -> None:
    # Llama 3: 419 interruptions of 16,384 GPUs in 54 days, 2 TB/s for 2,048 nodes; the others are assumed.
    assert WHOLE.failures_per_gpu_day == pytest.approx(419 / 54 / 16_384)
    assert WHOLE.checkpoint_bytes_per_s == pytest.approx(1e9)
    assert (WHOLE.checkpoint_stall_fraction, WHOLE.restart_s) == (1.0, 600.0)


def test_each_start_costs_what_ten_minutes_from_cold_cost_beyond_as_many_steady_steps() -> None:
    run = round_run()
    cold = simulate(replace(run, conditions=replace(run.conditions, seconds_s=600.0)), ignore_memory=True).metrics
    steps = 600 / cold["step_time_s"]
    steady = {"step_time_s": 0.5 * cold["step_time_s"], "energy_per_step_j": 3 * cold["energy_per_step_j"]}
    warm = warm_up(run, steady)
    assert warm.time_s == pytest.approx(300.0)
    assert warm.energy_j == pytest.approx(-2 * steps * cold["energy_per_step_j"])
    found, without = (whole_run_metrics(run, METRICS, WHOLE, Tariff(), *extra) for extra in ((warm,), ()))
    starts = 1 + without["run_failures"]
    assert found["run_time_s"] - without["run_time_s"] == pytest.approx(300 * starts)
    assert found["run_energy_j"] - without["run_energy_j"] == pytest.approx(1.2 / 0.8 * starts * warm.energy_j)
