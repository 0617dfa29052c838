"""The clock at which a kernel that runs on and on is held, and what it then takes and draws.

Equation: the highest clock up to the one asked for at which board power stays at or below what the governor holds
(gpu/physics.py), found by halving; power grows with the clock for every kernel.
Over a window that follows a pause, the burst's target holds until the mean over a second has caught up. That mean
starts at the power before and follows with half its length: this takes mean / 2 ln((burst - before) / (burst - hold +
band)). A pause that leaves the mean above REARM_FRACTION of the hold changes nothing.
Source: ops in windows of 1 to 5 s on three H200 boards: 716 W from starts below 57 C (1 s windows), 692 W from 57 C on.
Ignores: dithering around the hold, what the clock reads in the first tick.
"""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.kernels import (
    KernelEnergies,
    KernelTimes,
    Shapes,
    energy_of_kernels,
    matrix_clock_hz,
    time_kernels,
)
from charllm.gpu.physics import Board, board_of, operating_point, working_w
from charllm.spec.hardware import Gpu
from charllm.spec.run import Conditions

HALVINGS, SECANTS = 12, 3
REARM_FRACTION = 0.85
"""Derived: mean over a second, over the hold, below which a burst is allowed again."""


class Held(NamedTuple):
    """Kernels at the clocks they are held at."""

    clock_hz: Floats
    seconds: Floats
    power_w: Floats


def hold_clocks(
    shapes: Shapes, gpu: Gpu, temperature_c: Floats, conditions: Conditions | None = None,
    silicon: float | Floats = 1.0, *, bursting: bool = False,
) -> Held:  # fmt: skip
    """Return clock, seconds a call and watts of kernels that run for long; `silicon`: a die's power over typical."""
    board = board_of(gpu, conditions)
    held_w = board.burst_w if bursting else board.hold_w
    clock = _highest_hz(shapes, gpu, temperature_c, silicon, held_w, board)
    clock = np.where(clock > 0.9995 * board.asked_clock_hz, board.asked_clock_hz, clock)
    times, watts = draw(shapes, gpu, clock, temperature_c, silicon)
    return Held(matrix_clock_hz(shapes, gpu, clock), times.seconds, watts)


def _highest_hz(
    shapes: Shapes, gpu: Gpu, temperature_c: Floats, silicon: float | Floats, held_w: float, board: Board
) -> Floats:
    """Halve the range, then draw lines through its ends, which power nearly follows there."""
    low, high = (np.full(len(shapes.flop), hz) for hz in (board.clock_min_hz, board.asked_clock_hz))
    below, above = (draw(shapes, gpu, hz, temperature_c, silicon)[1] - held_w for hz in (low, high))
    free = above <= 0
    for turn in range(HALVINGS + SECANTS):
        share = 0.5 if turn < HALVINGS else np.clip(-below / np.maximum(above - below, 1e-9), 0.0, 1.0)
        middle = low + share * (high - low)
        over = draw(shapes, gpu, middle, temperature_c, silicon)[1] - held_w
        fits = over <= 0
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        below, above = np.where(fits, over, below), np.where(fits, above, over)
    return np.where(
        free, board.asked_clock_hz, low + np.clip(-below / np.maximum(above - below, 1e-9), 0, 1) * (high - low)
    )


def hold_window(
    shapes: Shapes, gpu: Gpu, temperature_c: Floats, before_w: Floats, window_s: Floats,
    conditions: Conditions | None = None, silicon: float | Floats = 1.0,
) -> Held:  # fmt: skip
    """Return means over a window in which a kernel is called on and on, after some power before it."""
    lasting = hold_clocks(shapes, gpu, temperature_c, conditions, silicon)
    bursting = hold_clocks(shapes, gpu, temperature_c, conditions, silicon, bursting=True)
    board = board_of(gpu, conditions)
    # Whatever stays below the hold never makes the mean catch up: both are then the same.
    near = board.burst_w - board.hold_w + board.band_w
    wait_s = board.mean_s * np.log(np.maximum(board.burst_w - before_w, near) / near)
    share = np.where(before_w < REARM_FRACTION * board.hold_w, np.minimum(1.0, wait_s / window_s), 0.0)
    calls = share / bursting.seconds + (1 - share) / lasting.seconds
    clock, watts = (
        share * burst + (1 - share) * last
        for burst, last in ((bursting.clock_hz, lasting.clock_hz), (bursting.power_w, lasting.power_w))
    )
    return Held(clock, 1 / calls, watts)


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
    """Return the board's power while kernels follow each other."""
    board = board_of(gpu)
    at = operating_point(board, clock_hz, matrix_hz)
    return np.asarray(working_w(board, at, temperature_c, energies, seconds, silicon))
