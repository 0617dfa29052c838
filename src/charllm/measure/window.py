"""What a recording says about one GPU in one window of time."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.limits import CAUSES, LIMITS
from charllm.gpu.sensor import Estimate, find_steps, integrate_instant, shape_steps, without_resets
from charllm.measure.gaps import NO_GAPS, Gaps, Mean, find_gaps, time_mean, usual_interval_s
from charllm.measure.quantities import COUNTERS
from charllm.measure.recording import Recording, Series


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
    gaps: Gaps = NO_GAPS
    bounds: Mapping[str, tuple[float, float]] = {}
    """Mean: between what it lies, where a part of its time was not read."""


def look(recording: Recording, gpu: int, start_s: float, end_s: float) -> Window:
    """Describe one GPU between two times of the monotonic clock."""
    series = recording.fast(gpu)
    energy = _energy(recording, gpu, start_s, end_s)
    known_instant = recording.known(gpu, "power_instant_w")
    _, instant = _inside(series, "power_instant_w", start_s, end_s)
    power_times, power = _inside(series, recording.power_quantity(gpu), start_s, end_s)
    temperature_times, temperature = _inside(series, "temperature_c", start_s, end_s)
    clock_times, clock = _inside(series, "clock_hz", start_s, end_s)
    usual_s = usual_interval_s(series.times_s)
    gaps = find_gaps(series.times_s, start_s, end_s)
    power_mean = time_mean(power_times, power, start_s, end_s, usual_s)
    whole = power_mean is not None and not gaps.number
    means = {
        "power_mean_w": _of_energy(energy, end_s - start_s, unread=gaps.number > 0) if energy else power_mean,
        "temperature_mean_c": time_mean(temperature_times, temperature, start_s, end_s, usual_s),
        "clock_mean_hz": time_mean(clock_times, clock, start_s, end_s, usual_s),
    }
    known = {name: None if mean is None else mean.value for name, mean in means.items()}
    clock_mean = known["clock_mean_hz"]
    return Window(
        duration_s=end_s - start_s,
        energy_j=energy,
        # A sum of readings cannot bridge a gap, as the counter does.
        instant_energy_j=integrate_instant(*known_instant, start_s, end_s) if len(instant) and whole else None,
        power_mean_w=known["power_mean_w"],
        power_peak_sensor_w=_extreme(instant, np.max),
        temperature_start_c=float(temperature[0]) if len(temperature) else None,
        temperature_end_c=float(temperature[-1]) if len(temperature) else None,
        temperature_mean_c=known["temperature_mean_c"],
        temperature_peak_c=_extreme(temperature, np.max),
        clock_mean_hz=clock_mean,
        clock_std_fraction=float(np.std(clock) / clock_mean) if clock_mean else None,
        limited_fraction=_limited(series, start_s, end_s),
        readings=len(power),
        gaps=gaps,
        bounds={
            name: (mean.low, mean.high) for name, mean in means.items() if mean is not None and mean.low < mean.high
        },
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


def _of_energy(energy: Estimate, duration_s: float, *, unread: bool) -> Mean:
    """Return the mean power that a counter gives, which counts on while nobody reads it."""
    error = energy.error if unread else 0.0
    return Mean(*((energy.value + one) / duration_s for one in (0.0, -error, error)))


def _extreme(values: Floats, of: "np.ufunc | object") -> float | None:
    return float(of(values)) if len(values) else None  # type: ignore[operator]


def _limited(series: Series, start_s: float, end_s: float) -> dict[str, float] | None:
    _, limits = _inside(series, "limits", start_s, end_s)
    if not len(limits):
        return None
    bits = limits.astype(np.int64)
    return {cause: float(np.mean(bits & LIMITS[cause] > 0)) for cause in CAUSES}
