"""Laws of a board's power."""

from dataclasses import replace

import numpy as np
import pytest

from charllm.evaluate.ops import bench_machine
from charllm.gpu.board import Energy, standing_w, voltage, working_w
from charllm.spec.board import Power
from charllm.spec.hardware import Gpu

GPUS = ("h200", "h100", "a100-80gb", "b200", "b300", "mi250", "mi300x", "gb200")
WORK = Energy(matrix_j=2.0, core_j=1.0, board_j=0.5)


def gpu_of(name: str) -> Gpu:
    return bench_machine(name).gpu


@pytest.mark.parametrize("name", GPUS)
def test_a_higher_clock_never_draws_less(name: str) -> None:
    gpu = gpu_of(name)
    clocks = np.linspace(gpu.clock_idle_hz, gpu.clock_max_hz, 60)
    standing = [standing_w(gpu.power, gpu.clock_max_hz, clock, 50.0) for clock in clocks]
    working = [working_w(gpu.power, WORK, gpu.clock_max_hz / clock, clock, clock) for clock in clocks]
    assert np.all(np.diff(standing) >= 0)
    assert np.all(np.diff(working) > 0)


@pytest.mark.parametrize("name", GPUS)
def test_hotter_never_draws_less(name: str) -> None:
    gpu = gpu_of(name)
    drawn = [standing_w(gpu.power, gpu.clock_max_hz, gpu.clock_max_hz, degrees) for degrees in range(20, 90, 5)]
    assert np.all(np.diff(drawn) >= 0)


def test_a_cold_board_never_gives_power_back() -> None:
    gpu = gpu_of("h200")
    assert standing_w(replace(gpu.power, leakage_w_per_k=20.0), gpu.clock_max_hz, gpu.clock_idle_hz, -20.0) > 0


def test_energy_of_work_does_not_depend_on_how_long_it_takes() -> None:
    power = replace(gpu_of("h200").power, active_w=0.0)
    joules = [working_w(power, WORK, seconds, 1.6e9, 1.5e9) * seconds for seconds in (0.5, 1.0, 7.0)]
    assert joules == pytest.approx([joules[0]] * 3)


def test_work_adds_up() -> None:
    assert WORK.plus(WORK, 2.0) == Energy(6.0, 3.0, 1.5)


def test_voltage_is_1_at_the_reference_and_never_below_the_floor() -> None:
    power: Power = gpu_of("h200").power
    assert voltage(power, power.voltage_reference_hz) == pytest.approx(1.0)
    assert voltage(power, 0.0) == power.voltage_floor_fraction


def test_levels_that_were_read_hold() -> None:
    h200, h100, a100 = gpu_of("h200"), gpu_of("h100"), gpu_of("a100-80gb")
    for gpu, low, high in ((h200, 119, 125), (h100, 117, 126), (a100, 78, 82)):
        assert low <= standing_w(gpu.power, gpu.clock_max_hz, gpu.clock_max_hz, 41.0) <= high


def test_an_a100_at_locked_clocks_draws_what_was_published() -> None:
    # giordano/gpu-power-frequency-benchmarks: a compute kernel of an A100-PCIe; one activity for all.
    read_w = {1005e6: 135, 1110e6: 152, 1200e6: 179, 1305e6: 225, 1410e6: 296}
    power = gpu_of("a100-80gb").power
    activity = (296 - 55) / (1410e6 * voltage(power, 1410e6) ** 2)
    for clock, watts in read_w.items():
        assert 55 + activity * clock * voltage(power, clock) ** 2 == pytest.approx(watts, rel=0.05)


def test_a_b300_under_caps_draws_what_was_published() -> None:
    # sinkers/gpu-power-lab: watts and the clocks they were held at.
    power = gpu_of("b300").power
    read_w = {926e6: 448, 1152e6: 547, 1457e6: 692, 1935e6: 886, 2032e6: 1037}
    activity = np.mean([(watts - 184) / (clock * voltage(power, clock) ** 2) for clock, watts in read_w.items()])
    for clock, watts in read_w.items():
        assert 184 + activity * clock * voltage(power, clock) ** 2 == pytest.approx(watts, rel=0.1)


def test_power_is_what_a_hand_makes_it() -> None:
    power = replace(
        gpu_of("h200").power, static_w=100.0, leakage_w_per_k=2.0, reference_c=45.0, context_w=20.0, active_w=10.0,
        voltage_slope_per_hz=0.5e-9, voltage_reference_hz=1.5e9, voltage_floor_fraction=0.8,
    )  # fmt: skip
    # Voltages at 1, 1.5 and 2 GHz: the floor of 0.8 (not 0.75), 1, and 1.25.
    assert [float(voltage(power, clock)) for clock in (1e9, 1.5e9, 2e9)] == [0.8, 1.0, 1.25]
    # 100 W and 10 K of leakage; of the context half a clock at (0.8 / 1.25)^2 = 0.4096 of the power.
    assert standing_w(power, 2e9, 1e9, 55.0) == pytest.approx(100 + 20 + 20 * 0.5 * 0.4096)
    assert standing_w(power, 2e9, 2e9, 45.0) == pytest.approx(100 + 20)
    # In 10 ms, on a die that draws a tenth more: 2 J of matrix units at 1.5 GHz, 1 J of the core at 2, 0.5 beside.
    drawn_w = working_w(power, WORK, 0.01, 2e9, 1.5e9, 1.1)
    assert drawn_w == pytest.approx(10 + (1.1 * (2.0 * 1.0 + 1.0 * 1.25**2) + 0.5) / 0.01)
