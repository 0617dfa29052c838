"""The clocks at which a step is timed, its knots; between two of them times are linear in 1 / clock.

A clock moves while a step is simulated, and kernels, exposed communication and the host's lead depend on it in their
own ways. A step is therefore priced at every knot, and each slice of it holds one line for each interval between knots.
Equation: t(f) = cycles / f + fixed for knots f1 >= f >= f2, exact at both; cycles = (t2 - t1) / (1 / f2 - 1 / f1).
Knots depend on the GPU alone, so that limits and conditions change which clocks are reached and not what they cost.
Source: a kernel between two knots 8 % apart is longer than its line by 0.03 % at most (gpu/kernels.py).
Ignores: where between two knots a slice turns from waiting for its host to working.
"""

from collections.abc import Sequence

import numpy as np

from charllm.arrays import Floats
from charllm.spec.hardware import Gpu

CLOCK_FRACTIONS = (1.0, 0.92, 0.85, 0.78, 0.71, 0.64, 0.57, 0.5, 0.42, 0.34, 0.25)
"""Knots over the highest clock; that of an idle GPU is the last, and that of full matrix units another."""
NEVER_S = -1e9
"""In place of minus infinity, of which no line can be drawn."""


def knots_hz(gpu: Gpu) -> Floats:
    """Return the knots of a GPU, highest first."""
    high = gpu.clock_max_hz
    low = min(gpu.clock_idle_hz, CLOCK_FRACTIONS[-1] * high)
    between = (*(fraction * high for fraction in CLOCK_FRACTIONS), gpu.burst_clock_hz)
    return np.array(sorted({high, low, *(hertz for hertz in between if low < hertz < high)}, reverse=True))


def draw_lines(times_s: Floats, knots: Floats) -> tuple[Floats, Floats]:
    """Return cycles and fixed seconds of each interval between knots, given [knot, ...] times."""
    shape = (-1, *[1] * (times_s.ndim - 1))
    rate = (1 / knots).reshape(shape)
    cycles = np.diff(times_s, axis=0) / np.diff(rate, axis=0)
    return cycles, times_s[:-1] - cycles * rate[:-1]


def interval_of(knots: Floats, clock_hz: float) -> int:
    """Return the interval in which a clock lies."""
    return int(np.clip(np.searchsorted(-knots, -clock_hz) - 1, 0, len(knots) - 2))


def stack_knots(each: Sequence[Floats]) -> Floats:
    """Return the knots of some kinds of GPUs as rows; one with fewer of them ends in zeros, which no clock is below."""
    most = max(map(len, each))
    return np.array([np.pad(one, (0, most - len(one))) for one in each])
