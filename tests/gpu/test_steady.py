"""The clock a kernel is held at."""

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_cluster
from charllm.evaluate.ops import bench_machine
from charllm.gpu.kernels import Shapes, read_shapes
from charllm.gpu.physics import POWER, THERMAL, board_of, next_clock
from charllm.gpu.shape import KernelShape
from charllm.gpu.steady import draw, hold_clocks, hold_window
from charllm.spec.hardware import Gpu
from charllm.spec.run import Conditions

SHAPES = (
    KernelShape("gemm", (1, 4096, 12288, 12288)),
    KernelShape("attention", (1, 64, 8, 8192, 128)),
    KernelShape("gemm", (1, 128, 28672, 4096)),
    KernelShape("copy", (2**29,)),
    KernelShape("gemm", (1, 512, 512, 512)),
)
WARM = np.full(len(SHAPES), 57.0)


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return bench_machine("h200").gpu


@pytest.fixture(scope="module")
def shapes(gpu: Gpu) -> Shapes:
    return read_shapes(SHAPES, gpu)


def test_a_capped_product_draws_the_hold_and_a_copy_does_not_reach_it(gpu: Gpu, shapes: Shapes) -> None:
    held = hold_clocks(shapes, gpu, WARM)
    hold_w = board_of(gpu).hold_w
    assert held.power_w[:3] == pytest.approx([hold_w] * 3, rel=1e-3)
    assert held.power_w[3] < 0.95 * hold_w
    assert held.clock_hz[3] == gpu.clock_max_hz
    assert 1.40e9 < held.clock_hz[0] < 1.52e9
    assert held.clock_hz[1] > held.clock_hz[0]


def test_a_higher_cap_never_lowers_the_clock(gpu: Gpu, shapes: Shapes) -> None:
    clocks = [hold_clocks(shapes, gpu, WARM, Conditions(power_cap_w=cap)).clock_hz for cap in range(300, 701, 50)]
    assert np.all(np.diff(clocks, axis=0) >= -1e3)


def test_power_grows_with_the_clock_for_every_kernel(gpu: Gpu, shapes: Shapes) -> None:
    watts = [draw(shapes, gpu, np.full(len(SHAPES), clock), WARM)[1] for clock in np.linspace(6e8, 1.98e9, 40)]
    assert np.all(np.diff(watts, axis=0) > -0.5)


def test_heat_and_weak_silicon_lower_the_clock(gpu: Gpu, shapes: Shapes) -> None:
    usual = hold_clocks(shapes, gpu, WARM).clock_hz[:3]
    assert np.all(hold_clocks(shapes, gpu, WARM + 20).clock_hz[:3] < usual)
    assert np.all(hold_clocks(shapes, gpu, WARM, silicon=1.05).clock_hz[:3] < usual)


def test_a_window_after_a_pause_begins_with_a_burst(gpu: Gpu, shapes: Shapes) -> None:
    hot, rested = np.full(len(SHAPES), 690.0), np.full(len(SHAPES), 124.0)
    lasting = hold_clocks(shapes, gpu, WARM)
    straight = hold_window(shapes, gpu, WARM, hot, np.ones(len(SHAPES)))
    burst = hold_window(shapes, gpu, WARM, rested, np.ones(len(SHAPES)))
    long = hold_window(shapes, gpu, WARM, rested, np.full(len(SHAPES), 60.0))
    short = hold_window(shapes, gpu, WARM, rested, np.full(len(SHAPES), 1e-3))
    # A window that ends before the mean has caught up is all burst.
    assert short.power_w == pytest.approx(hold_clocks(shapes, gpu, WARM, bursting=True).power_w)
    assert straight.power_w == pytest.approx(lasting.power_w)
    assert np.all(burst.power_w[:3] > lasting.power_w[:3] + 20)
    assert np.all(burst.seconds[:2] < lasting.seconds[:2])
    assert long.power_w == pytest.approx(lasting.power_w, rel=0.003)
    assert burst.power_w[3] == pytest.approx(lasting.power_w[3])


def test_the_governor_falls_at_once_and_names_power(gpu: Gpu) -> None:
    board = board_of(gpu)
    clock, cause = next_clock(board, 1.98e9, 900.0, 690.0, 120.0, 55.0, board.asked_clock_hz, 60.0)
    assert clock < 1.8e9
    assert cause == POWER
    climbed, _ = next_clock(board, 1.4e9, 300.0, 300.0, 120.0, 55.0, board.asked_clock_hz, 60.0)
    assert 1.4e9 < climbed < 1.98e9


def test_above_its_operating_limit_temperature_takes_clock(gpu: Gpu) -> None:
    board = board_of(gpu)
    clock, cause = next_clock(board, 1.98e9, 300.0, 300.0, 120.0, 88.0, board.asked_clock_hz, 60.0)
    assert cause == THERMAL
    assert clock < board.asked_clock_hz
    lowest, _ = next_clock(board, 1.98e9, 300.0, 300.0, 120.0, 92.0, board.asked_clock_hz, 60.0)
    assert lowest == pytest.approx(board.slowdown_fraction * board.asked_clock_hz)


def test_memory_above_its_own_limit_takes_clock_as_the_die_does(gpu: Gpu) -> None:
    board = board_of(gpu)
    beyond_c = board.memory_operating_c + 1
    clock, cause = next_clock(board, 1.98e9, 300.0, 300.0, 120.0, 60.0, board.asked_clock_hz, beyond_c)
    assert cause == THERMAL
    assert clock == pytest.approx((1 - board.thermal_step_fraction) * board.asked_clock_hz)


def test_an_h100_at_88_degrees_has_the_clock_that_was_read() -> None:
    board = board_of(resolve_cluster("h100x1").gpu, Conditions(clock_cap_hz=1.755e9))
    clocks = [
        next_clock(board, 1.755e9, 300.0, 300.0, 120.0, degrees_c, 1.755e9, 60.0)[0] for degrees_c in (87.5, 88.5)
    ]
    # 450 to 550 MHz, with a sensor that reads whole degrees.
    assert clocks[1] <= 0.45e9
    assert clocks[0] >= 0.55e9


def test_the_clock_leaps_nowhere_as_a_gpu_warms_up(gpu: Gpu) -> None:
    board = board_of(gpu)
    clocks = [next_clock(board, 1.98e9, 300.0, 300.0, 120.0, degrees, board.asked_clock_hz, 60.0)[0]
              for degrees in np.arange(80.0, 96.0, 0.01)]  # fmt: skip
    assert np.all(np.diff(clocks) <= 0)
    assert np.max(np.abs(np.diff(clocks))) < 0.01 * board.asked_clock_hz


def test_a_clock_cap_is_kept(gpu: Gpu, shapes: Shapes) -> None:
    held = hold_clocks(shapes, gpu, WARM, Conditions(clock_cap_hz=1.2e9))
    assert np.all(held.clock_hz <= 1.2e9)
