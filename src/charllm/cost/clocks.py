"""How much slower arithmetic runs under a lower power or clock cap than in the surroundings its rates were found in.

Equation: board power P = static + dynamic (f / f_max)^e. At the delivered cap C0 a class of ops runs at f0, so under a
cap C f = min(f_max, f0 ((C - static) / (C0 - static))^(1/e)), and never above a clock cap. Time scales with f0 / f.

Source: exponent 2.2 and static 90 W of 700 W: clocks and watts of products on an H200 between 1.36 and 1.55 GHz
(2.18 +- 0.08).
Ignores: temperature, bursts shorter than a second, ops that leave power to spare.
"""

from charllm.spec.hardware import Gpu
from charllm.spec.run import Conditions

POWER_EXPONENT, STATIC_FRACTION = 2.2, 0.13
"""Derived on an H200, taken over for other GPUs: how power grows with the clock, and what of the cap does not."""


def time_factor(gpu: Gpu, conditions: Conditions, clock_fraction: float) -> float:
    """Return the time of a class of ops over that at the delivered caps, given the clock it has there."""
    allowed = clock_fraction
    if conditions.power_cap_w is not None:
        static = STATIC_FRACTION * gpu.power_cap_w
        room = max(0.02, (conditions.power_cap_w - static) / (gpu.power_cap_w - static))
        allowed = min(1.0, clock_fraction * room ** (1 / POWER_EXPONENT))
    if conditions.clock_cap_hz is not None:
        allowed = min(allowed, conditions.clock_cap_hz / gpu.clock_max_hz)
    return clock_fraction / allowed
