"""What the sensors of a board show of a power curve that is known: readings to infer it back from."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from charllm.arrays import Floats
from charllm.gpu.sensor import HOPPER, Sensor
from charllm.units import KILO


class PowerCurve(NamedTuple):
    """True power as steps: `power_w[i]` from `edges_s[i]` to `edges_s[i + 1]`."""

    edges_s: Floats
    power_w: Floats

    def energy_until_j(self, times_s: ArrayLike) -> Floats:
        """Return the energy from the first edge until each time; before and after the curve power is held."""
        times = np.asarray(times_s, dtype=np.float64)
        total = np.concatenate([[0.0], np.cumsum(np.diff(self.edges_s) * self.power_w)])
        inside = np.interp(times, self.edges_s, total)
        before = np.minimum(times - self.edges_s[0], 0.0) * self.power_w[0]
        after = np.maximum(times - self.edges_s[-1], 0.0) * self.power_w[-1]
        return np.asarray(inside + before + after)

    def mean_w(self, starts_s: ArrayLike, ends_s: ArrayLike) -> Floats:
        """Return the mean power over each window."""
        starts, ends = np.asarray(starts_s, dtype=np.float64), np.asarray(ends_s, dtype=np.float64)
        return np.asarray((self.energy_until_j(ends) - self.energy_until_j(starts)) / (ends - starts))


def refresh_times(start_s: float, end_s: float, sensor: Sensor = HOPPER, phase_s: float = 0.0) -> Floats:
    """List the moments in a window at which the board shows new readings; adjoining windows share none."""
    first, end = (np.ceil((edge_s - phase_s) / sensor.refresh_s) for edge_s in (start_s, end_s))
    return np.asarray(np.arange(first, end) * sensor.refresh_s + phase_s)


def show_instant(curve: PowerCurve, times_s: ArrayLike, sensor: Sensor = HOPPER) -> Floats:
    """Return the instant readings shown at refresh times: the mean of the box before each."""
    times = np.asarray(times_s, dtype=np.float64)
    return curve.mean_w(times - sensor.box_s, times)


def show_average(curve: PowerCurve, times_s: ArrayLike, sensor: Sensor = HOPPER) -> Floats:
    """Return the average readings shown at refresh times."""
    times = np.asarray(times_s, dtype=np.float64)
    return curve.mean_w(times - sensor.average_s, times)


def show_counter(curve: PowerCurve, times_s: ArrayLike) -> Floats:
    """Return the counter shown at refresh times, in joules, in steps of a millijoule."""
    return np.asarray(np.floor(curve.energy_until_j(times_s) * KILO) / KILO)
