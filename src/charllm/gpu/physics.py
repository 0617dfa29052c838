"""What a GPU's board draws, how its governor moves the clock, and how a pole of its heat follows power.

Each equation stands here once. Python calls these functions with numbers or with arrays; simulate/step_loop.py calls
them as machine code, so that they contain only what numba compiles.

Power: P = static + leakage (T - T_ref) + (context + polling) (f / f_max) v^2 / v_max^2 + active + E / seconds, with
E = v^2 E_core + E_board: joules of matrix operations, instructions and bytes on the die at the core's voltage, of bytes
of memory and links at their own. v(f) = max(floor, 1 + slope (f - f_ref)) is voltage over that at f_ref; active and E
are there while kernels run, polling while a collective waits.
Source: 265 ops on three H200 boards at known clocks (benchmarks/calibrate_h200.py); slope 0.44 +- 0.015 per GHz, within
one op 0.38 +- 0.03; idle and context levels read on the same boards.
Ignores: operand values beyond random and zeros; hot spots; conversion losses that grow with current.

Governor: at every tick (25 ms), from the mean power of the last two: above its target the clock falls at once to where
dynamic power, which grows as f v^2, meets it; below, it climbs part of the way back. The target is `burst` times the
cap while the mean over a second is below `hold` times the cap, and `hold` from then on; full matrix units never clock
above `burst_clock`. Above the operating temperature each degree takes a share of the clock, down to the lowest that
heat leaves, where it stays until the die is cooler by the hysteresis; memory above its own limit counts alike.
Source: read on H200 boards (evaluate/h200/readings): a burst after idle reads 820 to 980 W for one box, 722 to 735 W
at 1485 MHz until 1 s has passed, then 660 to 712 W around 692 W; the clock is back at 1965 MHz within two readings;
zeros as operands run at 1754 MHz with power named as the reason. Climb and highest matrix clock are chosen on five
square waves, seven others and duty cycles are scored. Thermal gain: assumed, so that an H100 at 88 C has 450 to 550 of
1755 MHz, as one was read (matt.sh/cloud-gpu-thermal-throttling). Hysteresis: V100 nodes that heat limits take longer
at 1597 MHz than at 1410, and there than at 1380 (evaluate/clock_locked.py), as a clock that swings does. Memory: NVML
names one reason for both limits.
Ignores: 15 MHz steps, limits on peak current below a millisecond, memory that is itself slowed by heat.

Heat: under constant power a pole goes to its target as x = target + (x0 - target) exp(-t / time constant).
Source and targets: gpu/heat.py.
"""

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from charllm.spec.hardware import Gpu
from charllm.spec.run import Conditions

BAND_FRACTION = 0.02
"""Assumed: how far below its hold the mean over a second still lowers the target, over the cap."""
POWER, THERMAL, BRAKE = 1, 2, 3
"""Why the clock is below what was asked for, the places of CAUSES (gpu/limits.py) from 1 on; 0: it is not."""


class Board(NamedTuple):
    """Constants of one GPU's board and governor, under the limits of a run."""

    static_w: float
    context_w: float
    active_w: float
    polling_w: float
    leakage_w_per_k: float
    reference_c: float
    voltage_slope_per_hz: float
    voltage_reference_hz: float
    voltage_floor_fraction: float
    clock_max_hz: float
    matrix_clock_hz: float
    """Highest clock of full matrix units."""
    off_die_fraction: float
    """Share of memory's power that the die's sensor never feels."""
    asked_clock_hz: float
    """The board's highest, or a lower cap."""
    clock_min_hz: float
    hold_w: float
    burst_w: float
    band_w: float
    tick_s: float
    climb_fraction: float
    mean_s: float
    mean_left_fraction: float
    """What a tick leaves of the mean power before it."""
    operating_c: float
    memory_operating_c: float
    """Infinite where no limit is known."""
    thermal_step_fraction: float
    thermal_hysteresis_k: float
    slowdown_fraction: float


def power_cap_w(gpu: Gpu, conditions: Conditions) -> float:
    """Return the power limit of a board (a package): the one asked for, or as delivered."""
    return conditions.power_cap_w or gpu.power_cap_w


def board_of(gpu: Gpu, conditions: Conditions | None = None) -> Board:
    """Return the constants of one GPU of a run, or of one without limits of a user's."""
    conditions = conditions or Conditions()
    governor, power = gpu.governor, gpu.power
    cap_w = power_cap_w(gpu, conditions) / gpu.package_gpus
    asked_hz = min(gpu.clock_max_hz, conditions.clock_cap_hz or gpu.clock_max_hz)
    return Board(
        static_w=power.static_w,
        context_w=power.context_w,
        active_w=power.active_w,
        polling_w=power.polling_w,
        leakage_w_per_k=power.leakage_w_per_k,
        reference_c=power.reference_c,
        voltage_slope_per_hz=power.voltage_slope_per_hz,
        voltage_reference_hz=power.voltage_reference_hz,
        voltage_floor_fraction=power.voltage_floor_fraction,
        clock_max_hz=gpu.clock_max_hz,
        matrix_clock_hz=gpu.burst_clock_hz,
        off_die_fraction=min(1.0, gpu.heat.memory_byte_heat_j / max(power.memory_byte_j, 1e-15)),
        asked_clock_hz=asked_hz,
        clock_min_hz=min(gpu.clock_idle_hz, asked_hz),
        hold_w=governor.hold_fraction * cap_w,
        burst_w=governor.burst_fraction * cap_w,
        band_w=BAND_FRACTION * cap_w,
        tick_s=governor.tick_s,
        climb_fraction=governor.climb_fraction,
        mean_s=governor.mean_s / 2,
        mean_left_fraction=math.exp(-governor.tick_s / (governor.mean_s / 2)),
        operating_c=gpu.max_operating_temperature_c,
        memory_operating_c=gpu.memory_operating_temperature_c or math.inf,
        thermal_step_fraction=governor.thermal_step_fraction,
        thermal_hysteresis_k=governor.thermal_hysteresis_k,
        slowdown_fraction=governor.slowdown_fraction,
    )


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
        """In memory and links, whatever the core's voltage."""


class Energy(NamedTuple):
    """Joules of a piece of work, apart from what the board draws all the time."""

    matrix_j: Any = 0.0
    core_j: Any = 0.0
    board_j: Any = 0.0

    def plus(self, other: "Energy", times: float = 1.0) -> "Energy":
        """Add another piece of work, `times` over."""
        return Energy(*(mine + times * theirs for mine, theirs in zip(self, other, strict=True)))


class OperatingPoint(NamedTuple):
    """What a clock decides about a board's power; numbers or arrays."""

    core: Any
    """Square of the core's voltage."""
    matrix: Any
    """Square of the matrix units' voltage, whose clock may be lower."""
    level: Any
    """Clock times square of voltage, over that at the highest clock."""


def voltage(board: Board, clock_hz: Any) -> Any:
    """Return the core's voltage over that at the reference clock."""
    rising = 1 + board.voltage_slope_per_hz * (clock_hz - board.voltage_reference_hz)
    return np.maximum(board.voltage_floor_fraction, rising)


def voltage_growth(board: Board, clock_hz: Any) -> Any:
    """Return the slope of the core's voltage over its clock on logarithmic axes."""
    volts = voltage(board, clock_hz)
    return (volts > board.voltage_floor_fraction) * (board.voltage_slope_per_hz * clock_hz / volts)


def operating_point(board: Board, clock_hz: Any, matrix_clock_hz: Any) -> OperatingPoint:
    """Return what the clocks of the core and of its matrix units decide."""
    volts = voltage(board, clock_hz)
    level = clock_hz / board.clock_max_hz * (volts / voltage(board, board.clock_max_hz)) ** 2
    return OperatingPoint(volts**2, voltage(board, matrix_clock_hz) ** 2, level)


def standing_w(
    board: Board, level: Any, temperature_c: Any, silicon: Any = 1.0, polling: Any = 0.0, active: Any = 0.0
) -> Any:
    """Return what a board with a context draws before any work: static, leakage, clocks, polling.

    `silicon` is a die's power over the typical one's, `polling` the share of multiprocessors that poll, and `active` is
    1 while kernels run.
    """
    leaking = silicon * board.leakage_w_per_k * (temperature_c - board.reference_c)
    # Leakage is a line through temperatures that were measured; far below them it would take all power away.
    idle = np.maximum(0.0, board.static_w + leaking)
    return idle + (level * (board.context_w + polling * board.polling_w) + active * board.active_w)


def dynamic_j(at: OperatingPoint, work: Joules, silicon: Any = 1.0) -> Any:
    """Return the joules of work at an operating point, beside what the board draws all the time."""
    return silicon * (work.matrix_j * at.matrix + work.core_j * at.core) + work.board_j


def working_w(
    board: Board, at: OperatingPoint, temperature_c: Any, work: Joules, seconds: Any, silicon: Any = 1.0
) -> Any:
    """Return the power of a board while it does work that takes some seconds."""
    return standing_w(board, at.level, temperature_c, silicon, active=1.0) + dynamic_j(at, work, silicon) / seconds


def idle_w(board: Board) -> float:
    """Return the power of an idle context at the highest clock and the reference temperature."""
    return float(standing_w(board, 1.0, board.reference_c))


def next_clock(
    board: Board, clock_hz: float, seen_w: float, mean_w: float, resting_w: float, temperature_c: float,
    brake_hz: float, memory_c: float,
) -> tuple[float, int]:  # fmt: skip
    """Return the clock after a tick, and what holds it below the one asked for; a brake leaves at most `brake_hz`."""
    room = min(1.0, max(0.0, (board.hold_w - mean_w) / board.band_w))
    target_w = board.hold_w + (board.burst_w - board.hold_w) * room
    # Dynamic power grows as f v(f)^2: this is its slope on logarithmic axes.
    exponent = 1 + 2 * voltage_growth(board, clock_hz)
    dynamic_w = max(1.0, seen_w - resting_w)
    wanted = clock_hz * (max(1.0, target_w - resting_w) / dynamic_w) ** (1 / exponent)
    climbed = clock_hz + board.climb_fraction * (min(wanted, board.asked_clock_hz) - clock_hz)
    allowed = wanted if wanted < clock_hz else climbed
    allowed = max(board.clock_min_hz, min(allowed, board.asked_clock_hz))
    cause = POWER if allowed < 0.998 * board.asked_clock_hz and wanted < board.asked_clock_hz else 0
    over_k = max(temperature_c - board.operating_c, memory_c - board.memory_operating_c)
    least_hz = board.slowdown_fraction * board.asked_clock_hz
    # A clock that heat has taken to its least stays there until the hysteresis is over.
    slowed = board.thermal_hysteresis_k > 0 and clock_hz < 1.01 * least_hz and over_k > -board.thermal_hysteresis_k
    if over_k > 0 or slowed:
        left_hz = least_hz if slowed else board.asked_clock_hz * (1 - board.thermal_step_fraction * over_k)
        cool_hz = max(least_hz, left_hz)
        if cool_hz < allowed:
            allowed, cause = max(board.clock_min_hz, cool_hz), THERMAL
    if brake_hz < allowed:
        allowed, cause = brake_hz, BRAKE
    return allowed, cause


def decay(time_s: Any, constant_s: Any) -> Any:
    """Return the share of a pole's distance from its target that is left after a time."""
    return np.exp(-time_s / constant_s)


def relax(rise_k: Any, target_k: Any, left: Any) -> Any:
    """Return the rise of a pole of whose distance from its target a share is left."""
    return target_k + (rise_k - target_k) * left
