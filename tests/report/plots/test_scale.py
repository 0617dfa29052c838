"""Every value lies in its cell, and a higher value is never drawn lower."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.report.plots.scale import Scale, label, scale_of, ticks

numbers = st.floats(-1e6, 1e6)
positive = st.floats(1e-6, 1e9)


@given(st.lists(numbers, min_size=1, max_size=30), st.integers(1, 200), st.booleans())
def test_a_value_lies_between_the_edges_of_its_cell(values: list[float], cells: int, from_zero: bool) -> None:
    scale = scale_of(values, cells, from_zero=from_zero)
    assert scale is not None
    room = 1e-9 * max(1.0, abs(scale.low), abs(scale.high))
    for value in values:
        low, high = scale.bounds(scale.cell(value))
        assert low - room <= value <= high + room


@given(st.lists(positive, min_size=2, max_size=30), st.integers(1, 200), st.booleans())
def test_a_higher_value_is_never_in_a_lower_cell(values: list[float], cells: int, is_log: bool) -> None:
    scale = scale_of(values, cells, is_log=is_log, room=0.05)
    assert scale is not None
    found = [scale.cell(value) for value in sorted(values)]
    assert found == sorted(found)
    assert 0 <= found[0] <= found[-1] < cells


@given(positive, positive, st.integers(2, 12), st.booleans())
def test_labels_are_few_in_order_and_on_the_scale(first: float, second: float, count: int, is_log: bool) -> None:
    scale = scale_of([first, second], 40, is_log=is_log)
    assert scale is not None
    found = ticks(scale, count)
    assert 1 <= len(found) <= max(2, count)
    assert found == sorted(found)
    room = 1e-6 * (scale.high - scale.low)
    assert all(scale.low - room <= tick <= scale.high + room for tick in found)


def test_values_too_close_for_a_round_number_are_their_own_labels() -> None:
    assert ticks(Scale(0.0, 5e-324, 40), 4) == [0.0, 5e-324]


def test_bars_begin_at_zero_and_nothing_known_has_no_scale() -> None:
    scale = scale_of([5.0, 10.0], 10, from_zero=True)
    assert scale == Scale(0.0, 10.0, 10)
    assert scale_of([None, math.nan], 10) is None


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.25, "0.25"), (1500.0, "1,500"), (32768.0, "32,768"), (2e7, "2e+07")]
)
def test_numbers_of_an_axis_are_short(value: float, text: str) -> None:
    assert label(value) == text
