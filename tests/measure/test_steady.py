import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.arrays import Floats
from charllm.measure.steady import (
    STEADY_K_PER_S,
    WINDOW_S,
    Interval,
    interval,
    noise_floor_fraction,
    settled_from,
)
from tests.measure.replayed import recording

RATE_HZ, REFRESH_HZ = 100, 10
NOISE_K, TAU_S = 1.5, 30.0


def polls_s(duration_s: float) -> Floats:
    return np.arange(round(duration_s * RATE_HZ)) / RATE_HZ


def sensor(truth_c: Floats, seed: int, noise_k: float = NOISE_K) -> Floats:
    """What is polled at 100 Hz of a sensor that shows whole degrees, anew ten times a second, and is disturbed."""
    shown = truth_c[:: RATE_HZ // REFRESH_HZ]
    noise = np.random.default_rng(seed).normal(0.0, noise_k, len(shown))
    return np.asarray(np.round(np.repeat(shown + noise, RATE_HZ // REFRESH_HZ)))


def approach(times_s: Floats, rise_k: float) -> Floats:
    return np.asarray(60.0 - rise_k * np.exp(-times_s / TAU_S))


def slow_enough_s(rise_k: float) -> float:
    """When the slope of an exponential approach falls under the limit."""
    return TAU_S * math.log(abs(rise_k) / TAU_S / STEADY_K_PER_S)


def test_a_noisy_settled_trace_is_settled() -> None:
    times = polls_s(60.0)
    found = [settled_from(times, sensor(np.full(len(times), 60.3), seed)) for seed in range(100)]
    assert None not in found
    # By chance one in some hundred windows looks as if it moved; the trace then counts from behind it.
    assert found.count(0.0) >= 80


@pytest.mark.parametrize("rise_k", [40.0, 20.0, -20.0, 5.0])
def test_an_exponential_approach_settles_when_its_slope_is_small_enough_and_not_before(rise_k: float) -> None:
    times = polls_s(180.0)
    found = settled_from(times, approach(times, rise_k))
    assert found is not None
    # The line through a window has the slope of its middle.
    assert found + WINDOW_S / 2 == pytest.approx(slow_enough_s(rise_k), abs=1.5)


@pytest.mark.parametrize("rise_k", [40.0, 20.0, -20.0])
def test_an_approach_that_is_cut_before_has_not_settled(rise_k: float) -> None:
    times = polls_s(slow_enough_s(rise_k) - 2.0)
    assert settled_from(times, approach(times, rise_k)) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_noisy_approach_is_not_settled_while_it_surely_moves(seed: int) -> None:
    times = polls_s(180.0)
    found = settled_from(times, sensor(approach(times, 40.0), seed))
    assert found is not None
    slope = 40.0 / TAU_S * math.exp(-(found + WINDOW_S / 2) / TAU_S)
    # The limit, the two standard errors that noise is allowed (0.1 K/s), and as much again for the luck of the draw.
    assert slope < STEADY_K_PER_S + 0.2


@pytest.mark.parametrize("seed", range(20))
def test_whole_degrees_alone_settle_within_seconds_of_the_truth(seed: int) -> None:
    times = polls_s(180.0)
    found = settled_from(times, sensor(approach(times, 20.0), seed, noise_k=0.3))
    assert found is not None
    assert abs(found + WINDOW_S / 2 - slow_enough_s(20.0)) < 25.0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("k_per_s", [0.4, -0.4])
def test_a_steady_drift_never_settles_however_noisy(seed: int, k_per_s: float) -> None:
    times = polls_s(60.0)
    assert settled_from(times, sensor(50.0 + k_per_s * times, seed)) is None


def test_a_late_burst_of_heat_moves_the_start_behind_it() -> None:
    times = polls_s(80.0)
    temperature = np.where(times < 40.0, 60.0, 70.0)
    assert settled_from(times, temperature) == pytest.approx(40.0, abs=1.0)


@pytest.mark.parametrize("duration_s", [0.0, 0.01, 5.0, 9.9])
def test_too_short_a_trace_has_not_settled(duration_s: float) -> None:
    times = polls_s(duration_s)
    assert settled_from(times, np.full(len(times), 60.0)) is None


def test_readings_with_a_gap_are_judged_where_there_are_any() -> None:
    times = np.concatenate([polls_s(11.0), 40.0 + polls_s(20.0)])
    assert settled_from(times, np.full(len(times), 60.0)) == 0.0


def test_the_real_job_was_too_short_to_settle() -> None:
    times, temperature = recording().known(0, "temperature_c")
    running = (times > 44.0) & (times < 48.0)
    assert settled_from(times[running], temperature[running]) is None
    # And its temperature was still moving in the last window of the capture.
    assert settled_from(times, temperature) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_the_interval_is_around_the_mean(values: list[float]) -> None:
    found = interval(np.array(values))
    assert found.low <= found.mean + 1e-6
    assert found.mean - 1e-6 <= found.high
    assert found.mean - found.low == pytest.approx(found.high - found.mean, abs=1e-6)


def test_the_interval_is_students() -> None:
    found = interval(np.array([9.0, 10.0, 11.0]))
    assert found == pytest.approx((10.0, 10.0 - 4.302653 / 3**0.5, 10.0 + 4.302653 / 3**0.5, 3))
    assert interval(np.array([9.0, 11.0] * 50)).high == pytest.approx(10.0 + 1.984 * 1.005 / 10, rel=1e-3)


def test_without_scipy_the_interval_is_unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert interval(np.array([9.0, 10.0, 11.0])) == Interval(10.0, -math.inf, math.inf, 3)
    assert interval(np.array([9.0, 10.0, 11.0])).bounds == [None, None]


def test_95_of_100_intervals_hold_the_truth() -> None:
    random = np.random.default_rng(7)
    found = [interval(random.normal(5.0, 1.0, 6)) for _ in range(2000)]
    assert np.mean([one.low <= 5.0 <= one.high for one in found]) == pytest.approx(0.95, abs=0.015)


def test_one_value_has_no_interval() -> None:
    assert interval(np.array([3.0])) == Interval(3.0, -math.inf, math.inf, 1)


def test_the_noise_floor_is_the_difference_of_two_halves_of_the_same() -> None:
    assert noise_floor_fraction(np.array([10.0, 11.0, 10.0, 11.0])) == pytest.approx(1 / 10.5)
    assert noise_floor_fraction(np.full(10, 3.0)) == 0.0
    assert noise_floor_fraction(np.array([1.0, 2.0, 3.0])) is None
    assert noise_floor_fraction(np.zeros(8)) is None
