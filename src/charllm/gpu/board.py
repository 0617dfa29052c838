"""Board power of a GPU.

Equation: P = static + leakage (T - T_ref) + context (f / f_max) v^2 / v_max^2 + v^2 E_core + E_board, where E_core and
E_board are joules a second of what runs: matrix operations, instructions and bytes on the die at the core's voltage,
bytes of memory and links at their own. v(f) = max(floor, 1 + slope (f - f_ref)) is voltage over that at f_ref.

Source: 265 ops on three H200 boards at known clocks (benchmarks/calibrate_h200.py); slope 0.44 +- 0.015 per GHz, within
one op 0.38 +- 0.03; idle and context levels read on the same boards.
Ignores: operand values beyond random and zeros; hot spots; conversion losses that grow with current.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from charllm.spec.board import Power


class Joules(Protocol):
    """What work takes, as numbers or as arrays of many pieces of it."""

    @property
    def matrix_j(self) -> Any:
        """In matrix units, at the reference voltage."""

    @property
    def core_j(self) -> Any:
        """Elsewhere on the die, at the reference voltage."""

    @property
    def board_j(self) -> Any:
        """In memory and links."""


class Energy(NamedTuple):
    """Joules of a piece of work, apart from what the board draws all the time."""

    matrix_j: float = 0.0
    """In matrix units, at the reference voltage."""
    core_j: float = 0.0
    """Elsewhere on the die, at the reference voltage."""
    board_j: float = 0.0
    """In memory and links, whatever the core's voltage."""

    def plus(self, other: "Energy", times: float = 1.0) -> "Energy":
        """Add another piece of work, `times` over."""
        return Energy(*(mine + times * theirs for mine, theirs in zip(self, other, strict=True)))


def voltage(power: Power, clock_hz: Any) -> Any:
    """Return the core's voltage over that at the reference clock; of one clock or of many."""
    rising = 1 + power.voltage_slope_per_hz * (clock_hz - power.voltage_reference_hz)
    return np.maximum(power.voltage_floor_fraction, rising)


def standing_w(power: Power, clock_max_hz: float, clock_hz: Any, temperature_c: Any) -> Any:
    """Return what a board with a context draws before any work: static, leakage, clocks."""
    level = (voltage(power, clock_hz) / voltage(power, clock_max_hz)) ** 2
    leaking = power.leakage_w_per_k * (temperature_c - power.reference_c)
    # Leakage is a line through temperatures that were measured; far below them it would take all power away.
    return np.maximum(0.0, power.static_w + leaking) + power.context_w * clock_hz / clock_max_hz * level


def working_w(
    power: Power, energy: Joules, seconds: Any, clock_hz: Any, matrix_clock_hz: Any, silicon: Any = 1.0
) -> Any:
    """Return what work adds that takes some seconds, at the clock of the core and of its matrix units.

    `silicon` is a die's power over the typical one's, at equal work.
    """
    matrix, core = voltage(power, matrix_clock_hz) ** 2, voltage(power, clock_hz) ** 2
    on_die = silicon * (matrix * energy.matrix_j + core * energy.core_j)
    return power.active_w + (on_die + energy.board_j) / seconds
