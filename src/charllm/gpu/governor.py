"""What holds a GPU's clock down: the power cap, heat, a brake.

Equation, at every tick (25 ms), from the mean power of the last two: above its target the clock falls at once to where
dynamic power, which grows as f v^2, meets it; below, it climbs part of the way back. The target is `burst` times the
cap while the mean over a second is below `hold` times the cap, and `hold` from then on; full matrix units never clock
above `burst_clock`. Above the operating temperature each degree takes a share of the clock; above the slowdown
threshold each takes a larger one, until half of the clock is left.

Source: read on H200 boards (evaluate/h200/readings): a burst after idle reads 820 to 980 W for one box, 722 to 735 W
at 1485 MHz until 1 s has passed, then 660 to 712 W around 692 W; the clock is back at 1965 MHz within two readings;
zeros as operands run at 1754 MHz with power named as the reason. Climb and highest matrix clock are chosen on five
square waves, seven others and duty cycles are scored. Thermal gain: assumed, no board was that hot.
Ignores: 15 MHz steps, limits on peak current below a millisecond, HBM temperature.
"""

from typing import NamedTuple

from charllm.spec.hardware import Gpu
from charllm.spec.run import Conditions

BAND_FRACTION = 0.02
"""Assumed: how far below its hold the mean over a second still lowers the target, over the cap."""
SLOWDOWN_PER_K = 0.2
"""Assumed: share of the clock that each degree above the slowdown threshold takes. Hardware leaps between the full and
the halved clock there, faster than a tick: this is its mean, which falls over the 2 K that a die moves meanwhile."""
POWER, THERMAL, BRAKE = 1, 2, 3
"""Why the clock is below what was asked for, the places of CAUSES (gpu/limits.py) from 1 on; 0: it is not."""


class Limits(NamedTuple):
    """One GPU's limits, as the governor knows them."""

    hold_w: float
    burst_w: float
    band_w: float
    clock_max_hz: float
    """Asked for: the board's highest, or a lower cap."""
    clock_min_hz: float
    matrix_clock_hz: float
    tick_s: float
    climb: float
    mean_s: float
    slope_per_hz: float
    reference_hz: float
    floor: float
    operating_c: float
    slowdown_c: float
    thermal_step: float
    slowdown: float


def power_cap_w(gpu: Gpu, conditions: Conditions) -> float:
    """Return the power limit of a board (a package): the one asked for, or as delivered."""
    return conditions.power_cap_w or gpu.power_cap_w


def limits_of(gpu: Gpu, conditions: Conditions) -> Limits:
    """Return what holds one GPU of a run."""
    governor, power = gpu.governor, gpu.power
    cap_w = power_cap_w(gpu, conditions) / gpu.package_gpus
    asked_hz = min(gpu.clock_max_hz, conditions.clock_cap_hz or gpu.clock_max_hz)
    return Limits(
        hold_w=governor.hold_fraction * cap_w,
        burst_w=governor.burst_fraction * cap_w,
        band_w=BAND_FRACTION * cap_w,
        clock_max_hz=asked_hz,
        clock_min_hz=min(gpu.clock_idle_hz, asked_hz),
        matrix_clock_hz=gpu.burst_clock_hz,
        tick_s=governor.tick_s,
        climb=governor.climb_fraction,
        mean_s=governor.mean_s / 2,
        slope_per_hz=power.voltage_slope_per_hz,
        reference_hz=power.voltage_reference_hz,
        floor=power.voltage_floor_fraction,
        operating_c=gpu.max_operating_temperature_c,
        slowdown_c=gpu.slowdown_temperature_c,
        thermal_step=governor.thermal_step_fraction,
        slowdown=governor.slowdown_fraction,
    )


def next_clock(
    limits: Limits, clock_hz: float, seen_w: float, mean_w: float, standing_w: float, temperature_c: float,
    brake_hz: float,
) -> tuple[float, int]:  # fmt: skip
    """Return the clock after a tick, and what holds it below the one asked for; a brake leaves at most `brake_hz`."""
    room = min(1.0, max(0.0, (limits.hold_w - mean_w) / limits.band_w))
    target_w = limits.hold_w + (limits.burst_w - limits.hold_w) * room
    volts = max(limits.floor, 1 + limits.slope_per_hz * (clock_hz - limits.reference_hz))
    # Dynamic power grows as f v(f)^2: this is its slope on logarithmic axes.
    exponent = 1 + 2 * (limits.slope_per_hz * clock_hz / volts if volts > limits.floor else 0.0)
    dynamic_w = max(1.0, seen_w - standing_w)
    wanted = clock_hz * (max(1.0, target_w - standing_w) / dynamic_w) ** (1 / exponent)
    climbed = clock_hz + limits.climb * (min(wanted, limits.clock_max_hz) - clock_hz)
    allowed = wanted if wanted < clock_hz else climbed
    allowed = max(limits.clock_min_hz, min(allowed, limits.clock_max_hz))
    cause = POWER if allowed < 0.998 * limits.clock_max_hz and wanted < limits.clock_max_hz else 0
    over_k = temperature_c - limits.operating_c
    if over_k > 0:
        hunted = SLOWDOWN_PER_K * max(0.0, temperature_c - limits.slowdown_c)
        cool_hz = limits.clock_max_hz * max(limits.slowdown, 1 - limits.thermal_step * over_k - hunted)
        if cool_hz < allowed:
            allowed, cause = max(limits.clock_min_hz, cool_hz), THERMAL
    if brake_hz < allowed:
        allowed, cause = brake_hz, BRAKE
    return allowed, cause
