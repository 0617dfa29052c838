"""What a GPU's power sensors show of its true power, and what can be inferred back.

Source: on Hopper three readings exist (SC'24, "Accurate and Convenient Energy Measurements for GPUs"; read again on an
H200).
Equation: *instant* is the mean over a 25 ms box, shown anew every 100 ms; *average* is the mean over the last second;
the *counter* adds up energy and advances every 100 ms. Measurement and attribution infer energy from these; simulation
computes power in boxes of that length (simulate/step_loop.py).

Ignores: calibration errors of the sensor (some per cent) and jitter of its refresh (about 2 ms).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from charllm.arrays import Floats


@dataclass(frozen=True, slots=True)
class Sensor:
    """How a board shows its power."""

    refresh_s: float = 0.1
    """Time between new readings."""
    box_s: float = 0.025
    """Length of the box the instant reading averages."""
    average_s: float = 1.0
    """Length of the average reading."""

    @property
    def coverage_fraction(self) -> float:
        """Share of time that instant readings have seen."""
        return min(1.0, self.box_s / self.refresh_s)


HOPPER = Sensor()


class Estimate(NamedTuple):
    """A value and how far off it may be."""

    value: float
    error: float


class CounterSteps(NamedTuple):
    """The counter's changes as seen: when each new value was first read, and the value."""

    times_s: Floats
    energy_j: Floats
    peak_w: float = float("inf")
    """No part of a step drew more than this."""
    counter: "CounterSteps | None" = None
    """The steps these were shaped from, where they are not the counter's own."""

    def between(self, start_s: float, end_s: float) -> Estimate:
        """Infer the energy of a window.

        Between two points energy is taken to grow evenly; the error bound is the energy that the cut steps could hide
        on the other side of the cut, for power between 0 and `peak_w`. Adjoining windows add up exactly.

        Ignores: that a change is seen up to one poll late.
        """
        edges = np.array([start_s, end_s])
        energy = np.interp(edges, self.times_s, self.energy_j)
        return Estimate(float(energy[1] - energy[0]), sum(self._hidden_j(edge) for edge in (start_s, end_s)))

    def _hidden_j(self, edge_s: float) -> float:
        """Bound what is wrong at one edge: how far the truth may lie from what is taken, inside the step it cuts."""
        steps = self if self.counter is None else self.counter
        after = int(np.searchsorted(steps.times_s, edge_s))
        if after == 0 or after == len(steps.times_s) or steps.times_s[after] == edge_s:
            return 0.0
        (start_s, end_s), (start_j, end_j) = (column[after - 1 : after + 1] for column in steps[:2])
        taken_j = float(np.interp(edge_s, self.times_s, self.energy_j))
        least_j = max(start_j, end_j - self.peak_w * (end_s - edge_s))
        most_j = min(end_j, start_j + self.peak_w * (edge_s - start_s))
        return float(max(most_j - taken_j, taken_j - least_j))

    def covers(self, start_s: float, end_s: float) -> bool:
        """Tell whether a window lies inside what was seen."""
        return len(self.times_s) > 1 and bool(self.times_s[0] <= start_s and end_s <= self.times_s[-1])


def without_resets(counts: Floats) -> Floats:
    """Continue a counter over its resets: a smaller value begins a new count on top of the old."""
    changes = np.diff(counts, prepend=counts[:1])
    return np.asarray(counts + np.cumsum(np.where(changes < 0, counts - changes, 0.0)))


def find_steps(times_s: ArrayLike, energy_j: ArrayLike) -> CounterSteps:
    """Reduce polled counter readings to its changes; a reset (a smaller value) begins a new count on top of the old.

    A counter that was not read (NaN) leaves no step.
    """
    times, energy = np.asarray(times_s, dtype=np.float64), np.asarray(energy_j, dtype=np.float64)
    known = np.isfinite(energy)
    times, energy = times[known], energy[known]
    if len(times) == 0:
        return CounterSteps(times, energy)
    energy = without_resets(energy)
    changed = np.concatenate([[True], np.diff(energy) > 0])
    return CounterSteps(times[changed], energy[changed])


def on_grid(steps: CounterSteps, phase_s: float, sensor: Sensor = HOPPER) -> CounterSteps:
    """Move the counter's changes back to when the board counted them.

    A board adds energy up at fixed moments, every `refresh_s` from some phase; a reading shows the last of them, up to
    0.1 s old. On an H200 the phase stays within 5 ms for 100 s, while the refresh of instant power wanders by tens of
    milliseconds (known work beside the counter: benchmarks/device/traced_steps.py).
    """
    counted = np.floor((steps.times_s - phase_s) / sensor.refresh_s)
    first = np.concatenate([[True], np.diff(counted) > 0]) if len(counted) else np.zeros(0, bool)
    return CounterSteps(counted[first] * sensor.refresh_s + phase_s, steps.energy_j[first], steps.peak_w)


def shape_steps(steps: CounterSteps, times_s: ArrayLike, instant_w: ArrayLike, sensor: Sensor = HOPPER) -> CounterSteps:
    """Spread each step of the counter over time as instant readings inside it suggest; its energy stays the counter's.

    Where the counter is read less often than instant power, this tells on which side of a window's edge energy went.
    A reading tells of the time before it was shown, so that it is taken to hold for the refresh period before. Errors
    are bounded by the largest reading, or step where one is larger.
    """
    times, power = np.asarray(times_s, dtype=np.float64), np.asarray(instant_w, dtype=np.float64)
    known = np.isfinite(power)
    times, power = times[known], power[known]
    if len(steps.times_s) < 2 or len(times) < 2:
        return steps
    inside = (times > steps.times_s[0]) & (times < steps.times_s[-1])
    grid = np.unique(np.concatenate([steps.times_s, times[inside]]))
    shown = np.searchsorted(times, grid[:-1] + sensor.refresh_s, side="right") - 1
    held = power[np.clip(shown, 0, len(power) - 1)]
    seen = np.concatenate([[0.0], np.cumsum(np.diff(grid) * held)])
    at_steps = np.interp(steps.times_s, grid, seen)
    place = np.clip(np.searchsorted(steps.times_s, grid, side="right") - 1, 0, len(steps.times_s) - 2)
    span = np.diff(at_steps)[place]
    even = (grid - steps.times_s[place]) / np.diff(steps.times_s)[place]
    fraction = np.where(span > 0, (seen - at_steps[place]) / np.where(span > 0, span, 1.0), even)
    energy = steps.energy_j[place] + fraction * np.diff(steps.energy_j)[place]
    peak_w = max(np.max(power), np.max(np.diff(steps.energy_j) / np.diff(steps.times_s)))
    return CounterSteps(grid, energy, float(peak_w), steps)


def integrate_instant(
    times_s: ArrayLike, instant_w: ArrayLike, start_s: float, end_s: float, sensor: Sensor = HOPPER
) -> float:
    """Add instant readings up to an energy: each stands for the refresh period before it was shown; NaN without any.

    Of the time it stands for, a reading has seen only its box: for loads that repeat with the refresh period this
    can be wrong by tens of per cent, for others it averages out.
    """
    times, power = np.asarray(times_s, dtype=np.float64), np.asarray(instant_w, dtype=np.float64)
    known = np.isfinite(power)
    if not known.any():
        return float("nan")
    times, power = times[known] - sensor.refresh_s, power[known]
    edges = np.clip(np.append(times, end_s), start_s, end_s)
    edges[0] = start_s
    return float(np.sum(np.diff(edges) * power))
