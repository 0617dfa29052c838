"""What a recording says about one GPU in one window of time."""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.limits import CAUSES, LIMITS
from charllm.gpu.sensor import Estimate, find_steps, integrate_instant, shape_steps, without_resets
from charllm.measure.quantities import COUNTERS
from charllm.measure.recording import Recording, Series

GAP_S, GAP_FRACTION, GAP_BEATS = 1.0, 0.1, 2.0
"""A mean is not known where readings leave out more than each of these: seconds, of the window, beats."""


class Window(NamedTuple):
    """One GPU in one window; what was not read is None, and so are means of what was read in a part of it only."""

    duration_s: float
    energy_j: Estimate | None
    """From the counter, with its error."""
    instant_energy_j: float | None
    """The same from instant readings: their difference tells how far to trust both."""
    power_mean_w: float | None
    power_peak_sensor_w: float | None
    """Largest box that was shown; a quarter of the time is seen."""
    temperature_start_c: float | None
    temperature_end_c: float | None
    temperature_mean_c: float | None
    temperature_peak_c: float | None
    clock_mean_hz: float | None
    clock_std_fraction: float | None
    limited_fraction: dict[str, float] | None
    """Share of readings in which each cause held the clock down."""
    readings: int


def look(recording: Recording, gpu: int, start_s: float, end_s: float) -> Window:
    """Describe one GPU between two times of the monotonic clock."""
    series = recording.fast(gpu)
    energy = _energy(recording, gpu, start_s, end_s)
    known_instant = recording.known(gpu, "power_instant_w")
    _, instant = _inside(series, "power_instant_w", start_s, end_s)
    power_times, power = _inside(series, recording.power_quantity(gpu), start_s, end_s)
    temperature_times, temperature = _inside(series, "temperature_c", start_s, end_s)
    clock_times, clock = _inside(series, "clock_hz", start_s, end_s)
    gap_s = _longest_gap_s(series, end_s - start_s)
    clock_mean = _time_mean(clock_times, clock, start_s, end_s, gap_s)
    power_mean = _time_mean(power_times, power, start_s, end_s, gap_s)
    instant_mean = power_mean if len(instant) else None
    return Window(
        duration_s=end_s - start_s,
        energy_j=energy,
        instant_energy_j=None if instant_mean is None else integrate_instant(*known_instant, start_s, end_s),
        power_mean_w=energy.value / (end_s - start_s) if energy else power_mean,
        power_peak_sensor_w=_extreme(instant, np.max),
        temperature_start_c=float(temperature[0]) if len(temperature) else None,
        temperature_end_c=float(temperature[-1]) if len(temperature) else None,
        temperature_mean_c=_time_mean(temperature_times, temperature, start_s, end_s, gap_s),
        temperature_peak_c=_extreme(temperature, np.max),
        clock_mean_hz=clock_mean,
        clock_std_fraction=float(np.std(clock) / clock_mean) if clock_mean else None,
        limited_fraction=_limited(series, start_s, end_s),
        readings=len(power),
    )


def counted(recording: Recording, gpu: int, quantity: str, start_s: float, end_s: float) -> float | None:
    """Return how much a counter grew in a window, between the readings nearest to its edges."""
    if quantity not in COUNTERS:
        raise KeyError(quantity)
    times, values = recording.known(gpu, quantity)
    if len(times) < 2 or times[-1] <= start_s or times[0] >= end_s:
        return None
    grown = np.interp([start_s, end_s], times, without_resets(values))
    return float(grown[1] - grown[0])


def highest(recording: Recording, gpu: int, quantity: str, start_s: float, end_s: float) -> float | None:
    """Return the largest reading of a slow quantity in a window."""
    times, values = recording.known(gpu, quantity)
    return _extreme(values[(times >= start_s) & (times <= end_s)], np.max)


def _energy(recording: Recording, gpu: int, start_s: float, end_s: float) -> Estimate | None:
    steps = shape_steps(find_steps(*recording.known(gpu, "energy_j")), *recording.known(gpu, "power_instant_w"))
    return steps.between(start_s, end_s) if steps.covers(start_s, end_s) else None


def _inside(series: Series, quantity: str, start_s: float, end_s: float) -> tuple[Floats, Floats]:
    times, values = series.known(quantity)
    inside = (times >= start_s) & (times <= end_s)
    return times[inside], values[inside]


def _longest_gap_s(series: Series, duration_s: float) -> float:
    beats_s = np.diff(series.times_s)
    return max(GAP_S, GAP_FRACTION * duration_s, GAP_BEATS * float(np.median(beats_s)) if len(beats_s) else 0.0)


def _time_mean(times_s: Floats, values: Floats, start_s: float, end_s: float, gap_s: float) -> float | None:
    """Return the mean over time, each reading holding until the next; None where one would hold too long."""
    if not len(values) or end_s <= start_s or np.max(np.diff(times_s, prepend=start_s, append=end_s)) > gap_s:
        return None
    edges = np.concatenate([[start_s], times_s[1:], [end_s]])
    weights = np.diff(edges)
    return float(np.sum(weights * values) / np.sum(weights))


def _extreme(values: Floats, of: "np.ufunc | object") -> float | None:
    return float(of(values)) if len(values) else None  # type: ignore[operator]


def _limited(series: Series, start_s: float, end_s: float) -> dict[str, float] | None:
    _, limits = _inside(series, "limits", start_s, end_s)
    if not len(limits):
        return None
    bits = limits.astype(np.int64)
    return {cause: float(np.mean(bits & LIMITS[cause] > 0)) for cause in CAUSES}
