"""Peak, ramp and swing of a power over time, by hand: 40 boxes of 25 ms in a second."""

from typing import Any

import numpy as np
import pytest

from charllm.simulate.signals import swing_metrics

BOX_S = 0.025
TIMES_S = np.arange(1200) * BOX_S


def swing_of(power_w: Any) -> dict[str, float]:
    found = swing_metrics(power_w, BOX_S)
    return {name.removeprefix("cluster_power_"): float(value or 0.0) for name, value in found.items()}


@pytest.mark.parametrize(("hertz", "seen"), [(1.0, True), (0.1, True), (3.0, True), (1 / 30, False), (4.0, False)])
def test_a_sine_swings_from_peak_to_peak_where_grids_care(hertz: float, seen: bool) -> None:
    found = swing_of(1000 + 250 * np.sin(2 * np.pi * hertz * TIMES_S))
    assert found["swing_w"] == pytest.approx(500.0 if seen else 0.0, abs=1e-6)
    assert found["peak_w"] == pytest.approx(1250.0, rel=0.01)


def test_two_sines_swing_as_one_of_their_energy() -> None:
    power_w = 300 * np.sin(2 * np.pi * TIMES_S) + 400 * np.sin(4 * np.pi * TIMES_S)
    assert swing_of(power_w)["swing_w"] == pytest.approx(2 * 500.0)


def test_a_ramp_is_the_change_in_a_second() -> None:
    assert swing_of(70 * TIMES_S)["ramp_w_per_s"] == pytest.approx(70.0)
    assert swing_of(5000 - 70 * TIMES_S)["ramp_w_per_s"] == pytest.approx(70.0)
    jump = np.where(TIMES_S < 15, 0.0, 800.0)
    assert swing_of(jump)["ramp_w_per_s"] == pytest.approx(800.0)
    # What is back within a second is no ramp.
    assert swing_of(100 * np.sin(2 * np.pi * TIMES_S))["ramp_w_per_s"] == pytest.approx(0.0, abs=1e-9)


def test_less_than_a_second_has_no_ramp() -> None:
    assert set(swing_metrics(np.ones(41), BOX_S).values()) == {None}
    assert set(swing_metrics(np.ones(42), BOX_S).values()) == {0.0, 1.0}
