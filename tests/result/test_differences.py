"""Differences: which error belongs to which change, and which effects are clear."""

from math import expm1, log

import pytest

from charllm.result.differences import (
    ANY,
    CHANGES,
    FREED,
    QUANTITIES,
    TEMPERATURES,
    difference,
    find_error,
    half_width,
    read_errors,
)

MBS = {"training.micro_batch_size": (1, 2)}


def test_an_effect_lies_in_its_interval_and_is_clear_where_zero_does_not() -> None:
    small, large = (difference("step_time_s", 10.0, second_s, MBS) for second_s in (10.01, 3.0))
    assert small is not None
    assert large is not None
    assert small.effect == pytest.approx(0.001)
    assert small.low < small.effect < small.high
    assert not small.is_clear
    assert large.high < 0
    assert large.is_clear
    assert small.change == "microbatch"
    assert str(small.pairs) in small.basis


def test_an_effect_and_its_opposite_are_equally_clear() -> None:
    there, back = difference("energy_per_step_j", 2.0, 3.0, MBS), difference("tokens_per_j", 3.0, 2.0, MBS)
    assert there is not None
    assert back is not None
    assert log(1 + there.low) == pytest.approx(-log(1 + back.high))


def test_temperatures_differ_in_kelvin() -> None:
    found = difference("temperature_peak_c", 60.0, 75.0, MBS)
    assert found is not None
    assert found.is_kelvin
    assert found.effect == 15.0
    assert found.noise >= 0.4


def test_a_change_without_pairs_has_the_errors_of_all_kinds_and_says_so() -> None:
    warmer = difference("temperature_peak_c", 60.0, 70.0, {"cluster.cooling.inlet_c": (25.0, 35.0)})
    assert warmer is not None
    assert warmer.change == ANY
    assert "no pairs of this kind" in warmer.basis


def test_a_metric_without_known_errors_has_no_interval() -> None:
    assert difference("tokens_per_step", 10.0, 20.0, MBS) is None
    assert difference("step_time_s", 0.0, 1.0, MBS) is None


def test_a_clock_limit_against_none_has_errors_of_its_own() -> None:
    found = difference("step_time_s", 1.0, 1.2, {"conditions.clock_cap_hz": (None, 1e9)})
    assert found is not None
    assert found.change == FREED


@pytest.mark.parametrize("quantity", sorted(set(QUANTITIES.values())))
def test_every_quantity_has_errors_of_every_kind_of_change(quantity: str) -> None:
    for change in (*CHANGES, FREED, ANY):
        error = find_error(quantity, change)
        assert error["change"] in (change, ANY)
        assert error["pairs"] > 0
        assert half_width(error, 0.0) > 0
        small, large = (half_width(error, 0.2 * times) for times in (1, 3))
        assert small <= large
        if quantity not in TEMPERATURES:
            assert expm1(half_width(error, 0.0)) < (0.5 if change != FREED else 1.0)


def test_nine_in_ten_pairs_of_other_sources_lie_inside() -> None:
    together = [row for row in read_errors()["held_out"] if row["source"] == "all"]
    assert {row["quantity"] for row in together} == set(QUANTITIES.values())
    for row in together:
        assert 0.8 <= row["covered_fraction"] <= 0.96
