"""Laws of a board's power and of the poles of its heat."""

from dataclasses import replace

import numpy as np
import pytest

from charllm.evaluate.ops import bench_machine
from charllm.gpu.physics import (
    BRAKE,
    POWER,
    THERMAL,
    Board,
    Energy,
    board_of,
    decay,
    dynamic_j,
    next_clock,
    operating_point,
    relax,
    standing_w,
    voltage,
    voltage_growth,
    working_w,
)
from charllm.spec.hardware import Gpu
from charllm.spec.run import Conditions

GPUS = ("h200", "h100", "a100-80gb", "b200", "b300", "mi250", "mi300x", "gb200")
WORK = Energy(matrix_j=2.0, core_j=1.0, board_j=0.5)


def gpu_of(name: str) -> Gpu:
    return bench_machine(name).gpu


@pytest.mark.parametrize("name", GPUS)
def test_a_higher_clock_never_draws_less(name: str) -> None:
    board = board_of(gpu_of(name))
    clocks_hz = np.linspace(board.clock_min_hz, board.clock_max_hz, 60)
    at = operating_point(board, clocks_hz, clocks_hz)
    assert np.all(np.diff(standing_w(board, at.level, 50.0)) >= 0)
    assert np.all(np.diff(working_w(board, at, 50.0, WORK, board.clock_max_hz / clocks_hz)) > 0)


@pytest.mark.parametrize("name", GPUS)
def test_hotter_never_draws_less(name: str) -> None:
    assert np.all(np.diff(standing_w(board_of(gpu_of(name)), 1.0, np.arange(20.0, 90.0, 5.0))) >= 0)


def test_a_cold_board_never_gives_power_back() -> None:
    leaky = board_of(gpu_of("h200"))._replace(leakage_w_per_k=20.0)
    assert standing_w(leaky, 0.1, -20.0) > 0


def test_energy_of_work_does_not_depend_on_how_long_it_takes() -> None:
    board = board_of(gpu_of("h200"))
    at, seconds = operating_point(board, 1.6e9, 1.5e9), np.array([0.5, 1.0, 7.0])
    standing = standing_w(board, at.level, 50.0, active=1.0)
    assert (working_w(board, at, 50.0, WORK, seconds) - standing) * seconds == pytest.approx(dynamic_j(at, WORK))


def test_work_adds_up() -> None:
    assert WORK.plus(WORK, 2.0) == Energy(6.0, 3.0, 1.5)


def test_voltage_is_1_at_the_reference_and_never_below_the_floor() -> None:
    board = board_of(gpu_of("h200"))
    assert voltage(board, board.voltage_reference_hz) == pytest.approx(1.0)
    assert voltage(board, 0.0) == board.voltage_floor_fraction


def test_growth_of_voltage_is_its_slope_on_logarithmic_axes() -> None:
    board = board_of(gpu_of("h200"))
    low, high = voltage(board, 1.7999e9), voltage(board, 1.8001e9)
    assert voltage_growth(board, 1.8e9) == pytest.approx(np.log(high / low) / np.log(1.8001 / 1.7999))
    assert voltage_growth(board, board.clock_min_hz) == 0.0


BOARD = Board(
    static_w=80.0, context_w=40.0, active_w=20.0, polling_w=100.0, leakage_w_per_k=0.5, reference_c=40.0,
    voltage_slope_per_hz=0.5e-9, voltage_reference_hz=1.5e9, voltage_floor_fraction=0.9, clock_max_hz=2.0e9,
    matrix_clock_hz=1.8e9, off_die_fraction=0.1, asked_clock_hz=2.0e9, clock_min_hz=0.3e9, hold_w=600.0, burst_w=650.0,
    band_w=10.0, tick_s=0.025, climb_fraction=0.4, mean_s=0.5, mean_left_fraction=0.95, operating_c=85.0,
    memory_operating_c=95.0, thermal_step_fraction=0.2, thermal_hysteresis_k=0.0, slowdown_fraction=0.3,
)  # fmt: skip
"""Round constants, for which powers are worked out by hand."""


def test_power_is_what_the_equation_says() -> None:
    assert [float(voltage(BOARD, clock)) for clock in (1e9, 1.5e9, 2e9)] == [0.9, 1.0, 1.25]
    # v(1.7 GHz) = 1.1, v(1.5 GHz) = 1, v(2 GHz) = 1.25.
    at = operating_point(BOARD, 1.7e9, 1.5e9)
    assert at == pytest.approx((1.21, 1.0, 0.85 * 1.21 / 1.5625))
    # 80 + 1.2 x 0.5 x 20 idle; (40 + 0.25 x 100) at the level; 20 active.
    drawn_w = standing_w(BOARD, 0.5, 60.0, 1.2, polling=0.25, active=1.0)
    assert drawn_w == pytest.approx(92.0 + 32.5 + 20.0)
    assert dynamic_j(at, WORK, 1.2) == pytest.approx(1.2 * (2.0 * 1.0 + 1.0 * 1.21) + 0.5)
    assert working_w(BOARD, at, 40.0, WORK, 0.5) == pytest.approx(80.0 + 40.0 * at.level + 20.0 + 3.71 / 0.5)


# Clock, watts of the last two boxes, mean over a second, degrees, brake: the clock after a tick and what holds it.
# 100 W rest; below 1.3 GHz voltage stands at its floor, and dynamic power grows as the clock; at 1.5 GHz it grows as
# its power of 1 + 2 x 0.5 x 1.5 = 2.5.
TICKS = {
    "nothing to hold": ((2.0e9, 300.0, 300.0, 60.0, 2.0e9), (2.0e9, 0)),
    "above the hold": ((1.0e9, 850.0, 700.0, 60.0, 2.0e9), (1.0e9 * 500 / 750, POWER)),
    "above the hold, voltage follows": ((1.5e9, 850.0, 700.0, 60.0, 2.0e9), (1.5e9 * (500 / 750) ** 0.4, POWER)),
    "above the burst": ((1.0e9, 850.0, 500.0, 60.0, 2.0e9), (1.0e9 * 550 / 750, POWER)),
    "in the band, halfway": ((1.0e9, 850.0, 595.0, 60.0, 2.0e9), (1.0e9 * 525 / 750, POWER)),
    "climbs to the highest": ((1.0e9, 350.0, 500.0, 60.0, 2.0e9), (1.0e9 + 0.4 * 1.0e9, 0)),
    "climbs to what power allows": ((1.0e9, 600.0, 500.0, 60.0, 2.0e9), (1.0e9 + 0.4 * 0.1e9, POWER)),
    "no lower than the lowest": ((0.35e9, 2000.0, 2000.0, 60.0, 2.0e9), (0.3e9, POWER)),
    "at the operating limit": ((2.0e9, 300.0, 300.0, 85.0, 2.0e9), (2.0e9, 0)),
    "a degree above": ((2.0e9, 300.0, 300.0, 86.0, 2.0e9), (0.8 * 2.0e9, THERMAL)),
    "three degrees above": ((2.0e9, 300.0, 300.0, 88.0, 2.0e9), (0.4 * 2.0e9, THERMAL)),
    "far above": ((2.0e9, 300.0, 300.0, 99.0, 2.0e9), (0.3 * 2.0e9, THERMAL)),
    "hot, but power holds more": ((1.0e9, 850.0, 700.0, 86.0, 2.0e9), (1.0e9 * 500 / 750, POWER)),
    "braked": ((2.0e9, 300.0, 300.0, 87.0, 0.8e9), (0.8e9, BRAKE)),
    "a brake above": ((1.0e9, 850.0, 700.0, 60.0, 0.9e9), (1.0e9 * 500 / 750, POWER)),
}


@pytest.mark.parametrize("name", TICKS)
def test_a_tick_moves_the_clock_to_where_a_hand_puts_it(name: str) -> None:
    (clock_hz, seen_w, mean_w, degrees_c, brake_hz), (after_hz, cause) = TICKS[name]
    found_hz, found_cause = next_clock(BOARD, clock_hz, seen_w, mean_w, 100.0, degrees_c, brake_hz, 60.0)
    assert found_hz == pytest.approx(after_hz)
    assert found_cause == cause


def test_the_limits_of_a_run_are_those_of_its_gpu_by_hand() -> None:
    gpu = gpu_of("mi250")
    governor = replace(gpu.governor, hold_fraction=0.9, burst_fraction=1.1, mean_s=1.0, tick_s=0.025)
    gpu = replace(gpu, governor=governor, clock_max_hz=1.7e9)
    board = board_of(gpu, Conditions(power_cap_w=400.0, clock_cap_hz=1.5e9))
    # Two dies share a package's 400 W; the band is 2 % of a die's cap, the mean follows in half a second.
    assert (board.hold_w, board.burst_w, board.band_w) == pytest.approx((180.0, 220.0, 4.0))
    assert (board.asked_clock_hz, board.clock_max_hz) == (1.5e9, 1.7e9)
    assert board.mean_s == 0.5
    assert board.mean_left_fraction == pytest.approx(np.exp(-0.05))
    assert board.off_die_fraction == min(1.0, gpu.heat.memory_byte_heat_j / gpu.power.memory_byte_j)
    assert board_of(gpu).asked_clock_hz == 1.7e9


def test_a_pole_is_e_times_nearer_its_target_after_its_time_constant() -> None:
    assert relax(10.0, 30.0, decay(4.0, 4.0)) == pytest.approx(30.0 - 20.0 / np.e)
    assert relax(30.0, 30.0, decay(1.0, 4.0)) == 30.0


def test_levels_that_were_read_hold() -> None:
    h200, h100, a100 = gpu_of("h200"), gpu_of("h100"), gpu_of("a100-80gb")
    for gpu, low, high in ((h200, 119, 125), (h100, 117, 126), (a100, 78, 82)):
        assert low <= standing_w(board_of(gpu), 1.0, 41.0) <= high


def test_an_a100_at_locked_clocks_draws_what_was_published() -> None:
    # giordano/gpu-power-frequency-benchmarks: a compute kernel of an A100-PCIe; one activity for all.
    read_w = {1005e6: 135, 1110e6: 152, 1200e6: 179, 1305e6: 225, 1410e6: 296}
    board = board_of(gpu_of("a100-80gb"))
    activity = (296 - 55) / (1410e6 * voltage(board, 1410e6) ** 2)
    for clock, watts in read_w.items():
        assert 55 + activity * clock * voltage(board, clock) ** 2 == pytest.approx(watts, rel=0.05)


def test_a_b300_under_caps_draws_what_was_published() -> None:
    # sinkers/gpu-power-lab: watts and the clocks they were held at.
    board = board_of(gpu_of("b300"))
    read_w = {926e6: 448, 1152e6: 547, 1457e6: 692, 1935e6: 886, 2032e6: 1037}
    activity = np.mean([(watts - 184) / (clock * voltage(board, clock) ** 2) for clock, watts in read_w.items()])
    for clock, watts in read_w.items():
        assert 184 + activity * clock * voltage(board, clock) ** 2 == pytest.approx(watts, rel=0.1)


def test_a_clock_that_heat_took_returns_when_the_hysteresis_is_over() -> None:
    swings = BOARD._replace(thermal_hysteresis_k=2.0)
    least_hz, hot_c = swings.slowdown_fraction * swings.asked_clock_hz, swings.operating_c
    watts = 0.5 * swings.hold_w

    def after(board: Board, clock_hz: float, degrees_c: float) -> tuple[float, int]:
        return next_clock(board, clock_hz, watts, watts, 100.0, degrees_c, board.asked_clock_hz, 60.0)

    assert after(swings, least_hz, hot_c - 1.9) == (least_hz, THERMAL)
    assert after(swings, least_hz, hot_c - 2.1)[0] > least_hz
    assert after(BOARD, least_hz, hot_c - 0.1)[0] > least_hz
    fast_hz = 0.9 * swings.asked_clock_hz
    assert after(swings, fast_hz, hot_c - 0.1)[0] > fast_hz
    assert after(swings, fast_hz, hot_c + 100) == (least_hz, THERMAL)
