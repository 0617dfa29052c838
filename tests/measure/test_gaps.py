"""What was not read is counted, and means say how far they may be off for it."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.arrays import Floats
from charllm.measure.gaps import Gaps, bound_unread, find_gaps, time_mean, usual_interval_s, widen

BEAT_S = 0.01


def beats(*spans: tuple[float, float]) -> Floats:
    """Times of readings a hundredth of a second apart, in some spans."""
    return np.concatenate([np.arange(start, end, BEAT_S) for start, end in spans])


def test_a_gap_is_counted_beyond_the_usual_interval() -> None:
    found = find_gaps(beats((0.0, 2.0), (5.0, 8.0), (9.0, 10.0)), 0.0, 10.0)
    assert (found.number, found.unread_s, found.longest_s) == pytest.approx((2, 4.0, 3.0), abs=1e-9)


def test_gaps_at_the_edges_of_a_window_count_too() -> None:
    assert find_gaps(beats((2.0, 8.0)), 0.0, 10.0)[:2] == pytest.approx((2, 4.0 - BEAT_S), abs=1e-9)
    assert find_gaps(beats((0.0, 20.0)), 5.0, 15.0).number == 0


def test_readings_that_are_a_little_late_leave_no_gap() -> None:
    late = beats((0.0, 2.0), (2.2, 10.0))
    assert find_gaps(late, 0.0, 9.99) == Gaps(0, 0.0, 0.0)
    # A log of one reading a second has none between them.
    assert find_gaps(np.arange(0.0, 60.0), 0.5, 59.0).number == 0
    assert find_gaps(np.delete(np.arange(0.0, 60.0), range(20, 30)), 0.0, 59.0)[:2] == (1, 10.0)
    assert find_gaps(np.delete(np.arange(0.0, 60.0), range(4, 56, 5)), 0.0, 59.0)[:2] == (11, 11.0)


def test_a_window_that_was_not_read_is_one_gap() -> None:
    assert find_gaps(beats((0.0, 1.0)), 5.0, 7.0) == pytest.approx(Gaps(1, 2.0 - BEAT_S, 2.0 - BEAT_S))


def test_a_reading_does_not_hold_over_a_gap() -> None:
    times = beats((0.0, 2.0), (5.0, 10.0))
    values = np.where(times < 1.995, 100.0, 300.0)
    values[199] = 900.0
    found = time_mean(times, values, 0.0, 10.0, BEAT_S)
    assert found is not None
    assert found.value == pytest.approx((1.99 * 100 + 0.01 * 900 + 5 * 300) / 7)
    assert found.low == pytest.approx(0.7 * found.value + 0.3 * 100, rel=0.01)
    assert found.high == pytest.approx(0.7 * found.value + 0.3 * 300, rel=0.01)


def test_without_gaps_a_mean_is_its_own_bounds() -> None:
    found = time_mean(beats((0.0, 1.0)), np.full(100, 5.0), 0.0, 1.0, BEAT_S)
    assert found is not None
    assert found.low == found.value == found.high == pytest.approx(5.0)


def test_a_mean_of_time_that_was_mostly_not_read_is_not_known() -> None:
    times = beats((0.0, 2.0), (8.0, 10.0))
    assert time_mean(times, np.ones(len(times)), 0.0, 10.0, BEAT_S) is None
    assert time_mean(beats((0.0, 6.0)), np.ones(600), 0.0, 10.0, BEAT_S) is not None


@given(
    levels=st.lists(st.floats(80.0, 700.0), min_size=2, max_size=6),
    period_s=st.floats(0.05, 0.5),
    cuts=st.lists(st.tuples(st.floats(0.0, 9.0), st.floats(0.3, 1.5)), min_size=1, max_size=3),
)
def test_the_mean_of_a_periodic_load_lies_between_the_bounds(
    levels: list[float], period_s: float, cuts: list[tuple[float, float]]
) -> None:
    times = beats((0.0, 10.0))
    power = np.array(levels)[(times / period_s * len(levels)).astype(int) % len(levels)]
    read = np.ones(len(times), bool)
    for start_s, length_s in cuts:
        read &= (times < start_s) | (times >= start_s + length_s)
    found = time_mean(times[read], power[read], 0.0, 10.0, usual_interval_s(times[read]))
    assert found is not None
    # What was read holds parts of periods.
    slack_w = (max(levels) - min(levels)) * period_s * (1 + len(cuts)) / 10.0 + 1e-9
    assert found.low - slack_w <= float(np.mean(power)) <= found.high + slack_w


def test_bounds_widen_with_the_time_that_was_not_read() -> None:
    values = np.linspace(100.0, 700.0, 101)
    found = [bound_unread(400.0, values, fraction) for fraction in (0.0, 0.02, 0.2, 0.5)]
    assert found[0] == (400.0, 400.0)
    assert found[2] == pytest.approx((400.0 - 0.2 * 285.0, 400.0 + 0.2 * 285.0))
    assert all(after[1] - after[0] > before[1] - before[0] for before, after in itertools.pairwise(found))


def test_an_interval_over_blocks_and_unread_time_add_up_in_quadrature() -> None:
    assert widen(10.0, [7.0, 13.0], (6.0, 14.0)) == [5.0, 15.0]
    assert widen(10.0, None, (6.0, 15.0)) == [6.0, 15.0]
    assert widen(10.0, [None, None], (6.0, 14.0)) == [None, None]
