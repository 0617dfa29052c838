"""Draws of unknown conditions: their ranges, and the interval that they give an effect."""

import pytest

from charllm.network.constants import NETWORK
from charllm.reproduce.draws import BEST_NIC_SHARE, draws, interval, ranges
from charllm.result.uncertainty import errors


def test_draws_are_the_same_every_time_and_cover_every_range() -> None:
    draws.cache_clear()
    first = draws()
    draws.cache_clear()
    assert draws() == first
    for name, (label, low, high, source) in ranges().items():
        values = sorted(getattr(one, name) for one in first)
        assert low <= values[0] < low + (high - low) / len(first) * 1.01
        assert high - (high - low) / len(first) * 1.01 < values[-1] <= high
        assert source.startswith(("assumed", "derived", "measured", "published"))
        assert label


def test_ranges_have_the_spread_of_held_out_errors() -> None:
    rate, nic = ranges()["rate"], ranges()["nic_share"]
    # An even distribution of half width w has a standard deviation of w / sqrt(3).
    assert (rate.high - rate.low) / 2 / 3**0.5 == pytest.approx(errors()["step_time"]["spreads"]["own"])
    assert nic.high * NETWORK.nic_fraction == pytest.approx(BEST_NIC_SHARE)


def test_an_interval_leaves_a_twentieth_out_on_each_side() -> None:
    assert interval(50.0, [float(value) for value in range(101)]) == pytest.approx([5.0, 95.0])


def test_an_interval_always_holds_the_nominal_effect() -> None:
    assert interval(-3.0, [0.0, 1.0, 2.0])[0] == -3.0  # type: ignore[index]
    assert interval(7.0, [0.0, 1.0, 2.0])[1] == 7.0  # type: ignore[index]


def test_there_is_no_interval_without_two_draws_or_a_nominal_effect() -> None:
    assert interval(1.0, [1.0, None]) is None
    assert interval(None, [1.0, 2.0]) is None
