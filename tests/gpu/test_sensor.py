"""The sensor model as laws: what is shown of a known curve, and what can be inferred back from it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.arrays import Floats
from charllm.gpu.sensor import (
    HOPPER,
    CounterSteps,
    Estimate,
    find_steps,
    integrate_instant,
    shape_steps,
)
from tests.gpu.readings import PowerCurve, refresh_times, show_average, show_counter, show_instant

COUNTER_STEP_J = 1e-3
POLL_S = 0.01


def make_curve(pieces: list[tuple[float, float]]) -> PowerCurve:
    durations, powers = zip(*pieces, strict=True)
    return PowerCurve(np.concatenate([[0.0], np.cumsum(durations)]), np.array(powers))


def curves(shortest_s: float = 0.001) -> st.SearchStrategy[PowerCurve]:
    piece = st.tuples(st.floats(shortest_s, 0.5), st.floats(0.0, 1000.0))
    return st.lists(piece, min_size=4, max_size=20).map(make_curve)


def shown_steps(curve: PowerCurve, phase_s: float = 0.0) -> CounterSteps:
    """The counter of a curve, read at every refresh from before its first edge to after its last."""
    times = refresh_times(-0.2, curve.edges_s[-1] + 0.2, phase_s=phase_s)
    return find_steps(times, show_counter(curve, times))


def shown_shape(curve: PowerCurve, phase_s: float = 0.0, every: int = 3) -> CounterSteps:
    """The same read at every third refresh only, and shaped by the instant readings of all of them."""
    times = refresh_times(-0.2, curve.edges_s[-1] + 0.6, phase_s=phase_s)
    steps = find_steps(times[::every], show_counter(curve, times[::every]))
    return shape_steps(steps, times, show_instant(curve, times))


def truth_j(curve: PowerCurve, start_s: float, end_s: float) -> float:
    start_j, end_j = curve.energy_until_j([start_s, end_s])
    return float(end_j - start_j)


fractions = st.floats(0.0, 1.0)
phases_s = st.floats(0.0, 0.099)


@given(curves(), fractions)
def test_energy_is_the_integral_of_power(curve: PowerCurve, place: float) -> None:
    time_s = place * float(curve.edges_s[-1])
    overlaps = np.clip(time_s - curve.edges_s[:-1], 0.0, np.diff(curve.edges_s))
    assert curve.energy_until_j(time_s) == pytest.approx(np.sum(overlaps * curve.power_w), abs=1e-9)


def test_power_is_held_before_and_after_the_curve() -> None:
    curve = make_curve([(1.0, 100.0), (1.0, 300.0)])
    assert curve.energy_until_j([-1.0, 0.0, 2.0, 3.0]) == pytest.approx([-100.0, 0.0, 400.0, 700.0])
    assert curve.mean_w(0.5, 1.5) == pytest.approx(200.0)


@given(st.floats(0.0, 1000.0), phases_s)
def test_constant_power_is_shown_exactly_by_all_three(power_w: float, phase_s: float) -> None:
    curve = PowerCurve(np.array([0.0, 5.0]), np.array([power_w]))
    times = refresh_times(1.0, 4.0, phase_s=phase_s)
    assert show_instant(curve, times) == pytest.approx(power_w, abs=1e-6)
    assert show_average(curve, times) == pytest.approx(power_w, abs=1e-6)
    assert np.diff(show_counter(curve, times)) == pytest.approx(power_w * HOPPER.refresh_s, abs=COUNTER_STEP_J * 1.001)


@given(curves(), phases_s)
def test_instant_is_the_mean_of_the_25_ms_before_each_refresh(curve: PowerCurve, phase_s: float) -> None:
    times = refresh_times(0.0, curve.edges_s[-1], phase_s=phase_s)
    expected = [truth_j(curve, time_s - 0.025, time_s) / 0.025 for time_s in times]
    assert show_instant(curve, times) == pytest.approx(np.array(expected), abs=1e-6)


@given(curves(), phases_s)
def test_average_is_the_mean_of_the_second_before_each_refresh(curve: PowerCurve, phase_s: float) -> None:
    times = refresh_times(0.0, curve.edges_s[-1], phase_s=phase_s)
    expected = [truth_j(curve, time_s - 1.0, time_s) for time_s in times]
    assert show_average(curve, times) == pytest.approx(np.array(expected), abs=1e-6)


@given(curves(), phases_s)
def test_the_counter_counts_whole_millijoules_up_to_each_refresh(curve: PowerCurve, phase_s: float) -> None:
    times = refresh_times(0.0, curve.edges_s[-1], phase_s=phase_s)
    shown = show_counter(curve, times)
    missing = curve.energy_until_j(times) - shown
    assert np.all((missing > -1e-9) & (missing < COUNTER_STEP_J + 1e-9))
    assert shown * 1e3 == pytest.approx(np.round(shown * 1e3), abs=1e-6)


def test_a_square_wave_of_the_refresh_period_is_seen_on_one_side_only() -> None:
    pieces = [(0.05, 700.0), (0.05, 100.0)] * 20
    curve = make_curve(pieces)
    low, high = refresh_times(1.0, 2.0), refresh_times(1.0, 2.0, phase_s=0.05)
    assert show_instant(curve, low) == pytest.approx(100.0)
    assert show_instant(curve, high) == pytest.approx(700.0)
    assert show_average(curve, low) == pytest.approx(400.0)
    # So that adding boxes up is wrong by tens of per cent here, and the counter is not.
    assert integrate_instant(low, show_instant(curve, low), 1.2, 1.8) == pytest.approx(60.0)
    assert shown_steps(curve).between(1.2, 1.8).value == pytest.approx(240.0, abs=2 * COUNTER_STEP_J)


def test_a_jump_is_in_the_next_box_and_in_the_average_a_second_later() -> None:
    curve = make_curve([(2.0, 100.0), (3.0, 700.0)])
    times = np.array([2.0, 2.1, 2.5, 3.0])
    assert show_instant(curve, times) == pytest.approx([100.0, 700.0, 700.0, 700.0])
    assert show_average(curve, times) == pytest.approx([100.0, 160.0, 400.0, 700.0])


@given(st.floats(0.0, 50.0), st.floats(0.0, 3.0), st.floats(0.0, 3.0), phases_s)
def test_adjoining_windows_share_the_refreshes_between_them(
    start_s: float, first_s: float, second_s: float, phase_s: float
) -> None:
    cut_s, end_s = start_s + first_s, start_s + first_s + second_s
    parts = [refresh_times(start_s, cut_s, phase_s=phase_s), refresh_times(cut_s, end_s, phase_s=phase_s)]
    whole = refresh_times(start_s, end_s, phase_s=phase_s)
    assert np.array_equal(np.concatenate(parts), whole)
    assert np.diff(whole) == pytest.approx(HOPPER.refresh_s)


def test_a_quarter_of_the_time_is_seen() -> None:
    assert HOPPER.coverage_fraction == pytest.approx(0.25)


@given(curves(), fractions, fractions, fractions, phases_s)
def test_adjoining_windows_add_to_the_whole(
    curve: PowerCurve, first: float, second: float, third: float, phase_s: float
) -> None:
    start_s, cut_s, end_s = np.sort([first, second, third]) * curve.edges_s[-1]
    for steps in (shown_steps(curve, phase_s), shown_shape(curve, phase_s)):
        parts_j = steps.between(start_s, cut_s).value + steps.between(cut_s, end_s).value
        assert parts_j == pytest.approx(steps.between(start_s, end_s).value, abs=1e-9)


@given(curves(), fractions, fractions, phases_s)
def test_inferred_energy_is_within_its_error_of_the_truth(
    curve: PowerCurve, first: float, second: float, phase_s: float
) -> None:
    start_s, end_s = np.sort([first, second]) * curve.edges_s[-1]
    peak_w = float(np.max(curve.power_w))
    known = shown_steps(curve, phase_s)
    # Nothing but that power is not negative; then its true peak; then the same with fewer steps, shaped.
    for steps in (known, known._replace(peak_w=peak_w), shown_shape(curve, phase_s)._replace(peak_w=peak_w)):
        found = steps.between(start_s, end_s)
        assert abs(found.value - truth_j(curve, start_s, end_s)) <= found.error + 3 * COUNTER_STEP_J


@given(curves(shortest_s=0.126), fractions, fractions, phases_s)
def test_the_error_of_shaped_steps_holds_where_boxes_have_seen_the_peak(
    curve: PowerCurve, first: float, second: float, phase_s: float
) -> None:
    """Plateaus of a refresh and a box are each shown once, so that the largest reading is the peak."""
    start_s, end_s = np.sort([first, second]) * curve.edges_s[-1]
    found = shown_shape(curve, phase_s).between(start_s, end_s)
    assert abs(found.value - truth_j(curve, start_s, end_s)) <= found.error + 3 * COUNTER_STEP_J


@given(curves(), fractions, fractions, phases_s)
def test_a_counter_that_is_polled_is_late_by_a_poll_at_most(
    curve: PowerCurve, first: float, second: float, phase_s: float
) -> None:
    shown_s = refresh_times(-0.3, curve.edges_s[-1] + 0.3, phase_s=phase_s)
    shown_j = show_counter(curve, shown_s)
    polls_s = np.arange(-0.2, curve.edges_s[-1] + 0.2, POLL_S)
    polled_j = shown_j[np.searchsorted(shown_s, polls_s, side="right") - 1]
    steps = find_steps(polls_s, polled_j)
    start_s, end_s = np.sort([first, second]) * curve.edges_s[-1]
    if steps.covers(start_s, end_s):
        found = steps.between(start_s, end_s)
        late_j = 2 * POLL_S * float(np.max(curve.power_w))
        assert abs(found.value - truth_j(curve, start_s, end_s)) <= found.error + late_j + 3 * COUNTER_STEP_J


def test_the_error_is_none_at_a_step_and_largest_inside_one() -> None:
    steps = CounterSteps(np.array([0.0, 1.0, 2.0]), np.array([0.0, 100.0, 200.0]), peak_w=200.0)
    assert steps.between(0.0, 1.0) == Estimate(100.0, 0.0)
    assert steps.between(0.0, 1.5) == Estimate(150.0, 50.0)
    assert steps.between(0.0, 1.1).error == pytest.approx(10.0)
    assert steps._replace(peak_w=math.inf).between(0.0, 1.1).error == pytest.approx(90.0)
    assert steps._replace(peak_w=math.inf).between(1.0, 2.0).error == 0.0


@given(curves(), phases_s)
def test_shaping_never_changes_the_energy_of_a_step(curve: PowerCurve, phase_s: float) -> None:
    times = refresh_times(-0.2, curve.edges_s[-1] + 0.6, phase_s=phase_s)
    steps = find_steps(times[::3], show_counter(curve, times[::3]))
    shaped = shape_steps(steps, times, show_instant(curve, times))
    assert np.interp(steps.times_s, shaped.times_s, shaped.energy_j) == pytest.approx(steps.energy_j, abs=1e-9)
    assert np.all(np.diff(shaped.energy_j) >= -1e-9)


def test_a_shape_tells_on_which_side_of_an_edge_energy_went() -> None:
    curve = make_curve([(1.0, 100.0), (2.0, 700.0)])
    times = np.arange(0.0, 3.0, 0.1)
    steps = find_steps(times[::6], show_counter(curve, times[::6]))
    shaped = shape_steps(steps, times, show_instant(curve, times))
    truth, plain, better = truth_j(curve, 0.6, 1.0), steps.between(0.6, 1.0).value, shaped.between(0.6, 1.0).value
    assert plain == pytest.approx(3 * truth, rel=0.01)
    assert better == pytest.approx(truth, rel=0.01)


def test_steps_without_readings_inside_stay_as_they_are() -> None:
    steps = CounterSteps(np.array([0.0, 1.0]), np.array([0.0, 100.0]))
    unread = np.array([np.nan, np.nan, np.nan])
    assert shape_steps(steps, [0.2, 0.4, 0.6], unread) is steps
    idle = shape_steps(steps, [0.2, 0.4, 0.6], [0.0, 0.0, 0.0])
    assert idle.between(0.0, 0.5).value == pytest.approx(50.0)


def test_a_missing_instant_reading_leaves_the_shape_to_its_neighbours() -> None:
    curve = make_curve([(1.0, 100.0), (2.0, 700.0)])
    times = np.arange(0.0, 3.0, 0.1)
    steps = find_steps(times[::6], show_counter(curve, times[::6]))
    power = show_instant(curve, times)
    power[[3, 17]] = np.nan
    assert shape_steps(steps, times, power).between(0.6, 1.0).value == pytest.approx(40.0, rel=0.01)


def test_polled_readings_become_one_step_for_each_change() -> None:
    steps = find_steps([0.0, 0.1, 0.2, 0.3, 0.4], [5.0, 5.0, 7.0, 7.0, 9.0])
    assert np.array_equal(steps.times_s, [0.0, 0.2, 0.4])
    assert np.array_equal(steps.energy_j, [5.0, 7.0, 9.0])


def test_a_reset_counter_begins_anew_on_top_of_the_old() -> None:
    steps = find_steps([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [100.0, 150.0, 10.0, 40.0, 0.0, 5.0])
    assert np.array_equal(steps.energy_j, [100.0, 150.0, 160.0, 190.0, 195.0])
    assert np.all(np.diff(steps.energy_j) > 0)


@given(st.lists(st.floats(0.0, 1e6), min_size=2, max_size=30), st.integers(1, 29))
def test_a_reset_loses_nothing_that_was_counted(growth_j: list[float], reset_at: int) -> None:
    counter = 1e9 + np.cumsum(growth_j)
    shown = np.where(np.arange(len(counter)) >= reset_at, counter - counter[min(reset_at, len(counter)) - 1], counter)
    steps = find_steps(np.arange(float(len(shown))), shown)
    assert steps.energy_j[-1] - steps.energy_j[0] == pytest.approx(counter[-1] - counter[0], rel=1e-12, abs=1e-6)


def test_a_counter_that_was_not_read_leaves_no_step() -> None:
    steps = find_steps([0.0, 1.0, 2.0, 3.0], [np.nan, 10.0, np.nan, 30.0])
    assert np.array_equal(steps.times_s, [1.0, 3.0])
    assert steps.covers(1.0, 3.0)
    assert not steps.covers(0.5, 3.0)
    nothing = find_steps([0.0, 1.0], [np.nan, np.nan])
    assert len(nothing.times_s) == 0
    assert not nothing.covers(0.0, 0.0)


@given(st.floats(1.0, 1000.0), st.floats(0.3, 1.0), st.floats(1.1, 3.0))
def test_constant_instant_readings_add_up_to_power_times_time(power_w: float, start_s: float, end_s: float) -> None:
    times = np.arange(0.0, 4.0, POLL_S)
    found_j = integrate_instant(times, np.full(len(times), power_w), start_s, end_s)
    assert found_j == pytest.approx(power_w * (end_s - start_s))


def test_instant_readings_stand_for_the_time_before_them() -> None:
    curve = make_curve([(1.0, 100.0), (2.0, 700.0)])
    polls: Floats = np.arange(0.0, 3.0, POLL_S)
    shown = show_instant(curve, np.floor(polls / 0.1 + 1e-9) * 0.1)
    assert integrate_instant(polls, shown, 0.5, 1.0) == pytest.approx(50.0, rel=0.02)
    assert integrate_instant(polls, shown, 1.0, 2.0) == pytest.approx(700.0, rel=0.02)


def test_no_instant_reading_is_no_energy_rather_than_none_of_it() -> None:
    assert math.isnan(integrate_instant([0.0, 1.0], [np.nan, np.nan], 0.0, 1.0))
    assert math.isnan(integrate_instant([], [], 0.0, 1.0))
