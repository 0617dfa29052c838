"""The clock at which a kernel that runs on and on is held, and what it then takes and draws.

Equation: the highest clock up to the one asked for at which board power stays at or below what the governor holds
(clocks/governor.py), found by bisection; power grows with the clock for every kernel.
Ignores: the first second, in which bursts draw more; dithering around the hold.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from charllm.clocks.governor import limits_of
from charllm.power.kernels import (
    KernelEnergies,
    KernelTimes,
    Shapes,
    energy_of_kernels,
    matrix_clock_hz,
    time_kernels,
)
from charllm.spec.board import Power
from charllm.spec.hardware import Gpu
from charllm.spec.run import Conditions

Floats = NDArray[np.float64]

HALVINGS = 26


class Held(NamedTuple):
    """Kernels at the clocks they are held at."""

    clock_hz: Floats
    seconds: Floats
    power_w: Floats


def hold_clocks(
    shapes: Shapes, gpu: Gpu, temperature_c: Floats, conditions: Conditions | None = None, silicon: float | Floats = 1.0
) -> Held:
    """Return clock, seconds a call, watts of kernels that run for long; `silicon`: a die's power over the typical."""
    limits = limits_of(gpu, conditions or Conditions())
    low = np.full(len(shapes.flop), limits.clock_min_hz)
    high = np.full(len(shapes.flop), limits.clock_max_hz)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        fits = draw(shapes, gpu, middle, temperature_c, silicon)[1] <= limits.hold_w
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    clock = np.where(low > 0.9995 * limits.clock_max_hz, limits.clock_max_hz, low)
    times, watts = draw(shapes, gpu, clock, temperature_c, silicon)
    return Held(clock, times.seconds, watts)


def draw(
    shapes: Shapes, gpu: Gpu, clock_hz: Floats, temperature_c: Floats, silicon: float | Floats = 1.0
) -> tuple[KernelTimes, Floats]:
    """Return times and board power of kernels called back to back at a clock."""
    times = time_kernels(shapes, gpu, clock_hz)
    energies = energy_of_kernels(shapes, gpu, times)
    return times, board_w(gpu, energies, times.seconds, clock_hz, matrix_clock_hz(shapes, gpu, clock_hz), temperature_c,
                          silicon)  # fmt: skip


def board_w(
    gpu: Gpu, energies: KernelEnergies, seconds: Floats, clock_hz: Floats, matrix_hz: Floats, temperature_c: Floats,
    silicon: float | Floats,
) -> Floats:  # fmt: skip
    """Return board power (power/board.py) of kernels as arrays."""
    power = gpu.power
    core, matrix = voltages(power, clock_hz) ** 2, voltages(power, matrix_hz) ** 2
    level = clock_hz / gpu.clock_max_hz * core / voltages(power, np.asarray(gpu.clock_max_hz)) ** 2
    leaking = power.leakage_w_per_k * (temperature_c - power.reference_c)
    standing = power.static_w + leaking + power.context_w * level + power.active_w
    on_die = silicon * (matrix * energies.matrix_j + core * energies.core_j)
    return np.asarray(standing + (on_die + energies.board_j) / seconds)


def voltages(power: Power, clock_hz: Floats) -> Floats:
    """Return the core's voltage at many clocks."""
    slope = 1 + power.voltage_slope_per_hz * (clock_hz - power.voltage_reference_hz)
    return np.maximum(power.voltage_floor_fraction, slope)
