"""Caps and cooling: more of either never hurts, and every lost hertz is charged to its cause."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.simulate.step_loop import UPDATE_HOST_S
from tests.simulate.runs import GPT3, REPLICAS, cooled, done, ran, under

SLACK, HUNTING = 1.003, 1.02
EXPERTS: dict[str, Any] = {
    "model": "mixtral-8x7b", "cluster": "charllm-ppt-h200", "parallelism": {"pp": 4, "ep": 8},
    "training": {"global_batch_size": 64},
}  # fmt: skip
RUNS = {"one replica": GPT3, "replicas": REPLICAS, "experts": EXPERTS}


@pytest.mark.parametrize("base", RUNS)
def test_raising_the_power_cap_is_never_slower(base: str) -> None:
    times_s = [ran(under(power_cap_w=float(cap)), RUNS[base]).metrics["step_time_s"] for cap in range(200, 701, 50)]
    for lower_s, higher_s in pairwise(times_s):
        assert higher_s <= lower_s * SLACK


def test_a_step_that_ends_with_waiting_for_its_host_is_no_faster_under_a_power_cap() -> None:
    # A cap slows the last kernels, and nothing that the host launches.
    request = {"model": "qwen3-30b-a3b", "cluster": "b200x1",
               "training": {"micro_batch_size": 2, "global_batch_size": 8}}  # fmt: skip
    usual, capped = (done(resolve_run({**request, **more})) for more in ({}, under(power_cap_w=532.0)))
    waited_s, capped_s = (float(found.simulated_step.sums[0, UPDATE_HOST_S]) for found in (usual, capped))
    assert waited_s > 0.1 * usual.metrics["step_time_s"]
    assert capped_s < waited_s
    assert capped.metrics["clock_mean_hz"] < 0.8 * usual.metrics["clock_mean_hz"]
    assert capped.metrics["step_time_s"] >= usual.metrics["step_time_s"]


@settings(max_examples=15, deadline=None)
@given(st.floats(200, 700), st.floats(200, 700), st.floats(20, 60))
def test_raising_the_power_cap_is_never_slower_at_any_inlet(one_w: float, other_w: float, inlet_c: float) -> None:
    low, high = (
        ran({**under(power_cap_w=cap), **cooled(inlet_c=inlet_c)}).metrics["step_time_s"]
        for cap in sorted((one_w, other_w))
    )
    # Where heat holds the clock it hunts: a step that swings more is longer at the same mean.
    assert high <= low * HUNTING


@pytest.mark.parametrize("cap_w", [300.0, 400.0, 500.0, 600.0, 700.0])
@pytest.mark.parametrize("base", RUNS)
def test_no_gpu_draws_more_than_its_cap_for_long(base: str, cap_w: float) -> None:
    rows = ran(under(power_cap_w=cap_w), RUNS[base]).gpus
    assert max(row["power_mean_w"] for row in rows) <= cap_w


@pytest.mark.parametrize("clock_mhz", [600, 1000, 1500, 1980])
def test_a_clock_cap_gives_at_most_that_clock(clock_mhz: int) -> None:
    found = ran(under(clock_cap_hz=1e6 * clock_mhz))
    assert found.simulated_step.series[:, :, 2].max() <= 1e6 * clock_mhz
    assert max(row["clock_mean_hz"] for row in found.gpus) <= 1e6 * clock_mhz * (1 + 1e-12)
    # What the user asks for is no loss.
    assert clock_mhz > 1100 or found.metrics["clock_loss_fraction"]["power"] < 1e-3


def test_a_lower_clock_cap_is_never_faster() -> None:
    times_s = [ran(under(clock_cap_hz=1e6 * mhz)).metrics["step_time_s"] for mhz in (400, 700, 1000, 1300, 1600, 1980)]
    for lower_s, higher_s in pairwise(times_s):
        assert higher_s <= lower_s * SLACK


def worst(metrics: dict[str, Any]) -> tuple[float, float, float]:
    return metrics["step_time_s"], metrics["temperature_mean_c"], metrics["temperature_peak_c"]


COOLINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a cooler inlet": ({"inlet_c": 35.0}, {"inlet_c": 20.0}),
    "a much cooler inlet": ({"inlet_c": 60.0}, {"inlet_c": 25.0}),
    "more air": ({"flow_fraction": 0.6}, {"flow_fraction": 1.0}),
    "much more air": ({"flow_fraction": 1.0}, {"flow_fraction": 2.0}),
    "cold plates": ({"kind": "air"}, {"kind": "liquid"}),
    "a bath": ({"kind": "air"}, {"kind": "immersion"}),
}


@pytest.mark.parametrize("base", RUNS)
@pytest.mark.parametrize("what", COOLINGS)
def test_better_cooling_is_never_slower_nor_hotter(what: str, base: str) -> None:
    worse, better = (ran(cooled(**cooling), RUNS[base]).metrics for cooling in COOLINGS[what])
    (slow_s, mean_c, peak_c), (fast_s, cool_c, cool_peak_c) = worst(worse), worst(better)
    assert fast_s <= slow_s * SLACK
    assert cool_c < mean_c
    assert cool_peak_c < peak_c


def test_a_hotter_inlet_is_never_faster() -> None:
    times_s = [ran(cooled(inlet_c=float(inlet))).metrics["step_time_s"] for inlet in range(20, 66, 5)]
    for cooler_s, hotter_s in pairwise(times_s):
        assert cooler_s <= hotter_s * SLACK


def test_leakage_of_a_warmer_die_costs_power_or_clock() -> None:
    cool, warm = (ran(cooled(inlet_c=inlet)).metrics for inlet in (20.0, 40.0))
    assert warm["clock_loss_fraction"]["power"] > cool["clock_loss_fraction"]["power"]
    assert warm["tokens_per_j"] < cool["tokens_per_j"]


def test_heat_holds_clocks_back_behind_a_very_hot_inlet_and_is_named() -> None:
    mild, hot = ran().metrics, ran(cooled(inlet_c=65.0)).metrics
    assert mild["throttled_time_fraction"]["thermal"] == 0
    assert hot["throttled_time_fraction"]["thermal"] > 0.3
    assert hot["clock_loss_fraction"]["thermal"] > hot["clock_loss_fraction"]["power"]
    assert hot["step_time_s"] > 1.2 * mild["step_time_s"]
    assert hot["margin_to_slowdown_k"] < 1 < mild["margin_to_slowdown_k"]
    assert hot["energy_per_step_j"] > 0


CAUSES: dict[str, dict[str, Any]] = {
    "power": under(power_cap_w=300.0),
    "thermal": cooled(inlet_c=70.0),
    "brake": under(braked_nodes=[0, 1, 2, 3]),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_lost_clock_is_charged_to_what_holds_it(cause: str) -> None:
    found = ran(CAUSES[cause])
    time, loss = found.metrics["throttled_time_fraction"], found.metrics["clock_loss_fraction"]
    assert max(loss, key=lambda name: loss[name]) == cause
    assert 0 <= sum(time.values()) <= 1 + 1e-9
    for name in time:
        assert 0 <= loss[name] <= time[name] <= 1 + 1e-9
    asked_hz = found.machine.board.asked_clock_hz
    lost = 1 - found.metrics["clock_mean_hz"] / asked_hz
    # A clock that climbs back is below the one asked for, and nothing holds it any more.
    assert sum(loss.values()) <= lost + 1e-9
    assert sum(loss.values()) > 0.7 * lost
    for row in found.gpus:
        assert sum(row[f"throttled_{name}_fraction"] for name in time) <= 1 + 1e-9
        assert all(0 <= row[f"clock_loss_{name}_fraction"] <= 1 for name in time)
