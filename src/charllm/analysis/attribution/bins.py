"""What was counted between two moments: joules, cycles and seconds under a limit, in bins that lie in known work."""

import numpy as np

from charllm.arrays import Bools, Floats
from charllm.errors import SpecError, Words
from charllm.gpu.sensor import HOPPER, CounterSteps, find_steps, on_grid, without_resets
from charllm.measure.recording import Recording
from charllm.trace.attribution import Bins, non_negative
from charllm.trace.states import States

Spans = list[tuple[float, float]]
"""Windows of time, in order."""
PHASES_TRIED = 50
"""Phases of the counter's beat that are tried."""
APART_S = 1e-3
"""Windows closer than this follow one another."""
MOST_PERIODS = 20_000_000
"""Refresh periods of a recording: 23 days."""
LIMITS = {"power": "power_limited_s", "thermal": "thermally_limited_s", "board": "board_limited_s"}
"""Cause: the counter of the seconds in which it held the clock down."""
LEAST_LIMITED_FRACTION = 0.01
"""A limit that was met for less of the time is left out."""
MOST_OF_PEAK = 1.1
"""Power that a class may draw in the mean over the highest 25 ms box that was seen (assumed)."""


def energy_bins(recording: Recording, gpu: int, states: States, windows: Spans, classes: int) -> tuple[Bins, float]:
    """Return the steps of the energy counter in the windows, and the phase of its beat.

    When the board counts is not told: its phase is the one with which the classes explain the steps best.
    """
    steps = find_steps(*recording.known(gpu, "energy_j"))
    first_s = float(steps.times_s[0]) if len(steps.times_s) else 0.0
    tried = first_s + np.linspace(0.0, HOPPER.refresh_s, PHASES_TRIED, endpoint=False)
    found = [_inside(on_grid(steps, float(phase_s)), windows) for phase_s in tried]
    # All at once: adding up what a GPU did is most of the work.
    starts_s, ends_s = (np.concatenate([bins[side] for bins in found]) for side in (0, 1))
    seconds = states.seconds_in(starts_s, ends_s, classes)
    parts = np.split(seconds, np.cumsum([len(bins.amount) for bins in found])[:-1])
    best = int(np.argmin([_misfit(bins.amount, part) for bins, part in zip(found, parts, strict=True)]))
    return found[best], float(tried[best]) % HOPPER.refresh_s


def _inside(steps: CounterSteps, windows: Spans) -> Bins:
    start_s, end_s = steps.times_s[:-1], steps.times_s[1:]
    inside = covered(start_s, end_s, windows)
    return Bins(start_s[inside], end_s[inside], np.diff(steps.energy_j)[inside])


def _misfit(amount: Floats, seconds: Floats) -> float:
    rates = non_negative(seconds.T @ seconds, seconds.T @ amount)
    return float(np.mean((amount - seconds @ rates) ** 2)) if len(amount) else float("inf")


def covered(start_s: Floats, end_s: Floats, windows: Spans) -> Bools:
    """Tell which bins lie in windows that follow one another without a gap."""
    joined: list[list[float]] = []
    for begin, end in windows:
        if joined and begin - joined[-1][1] < APART_S:
            joined[-1][1] = max(end, joined[-1][1])
        else:
            joined.append([begin, end])
    found = np.zeros(len(start_s), bool)
    for begin, end in joined:
        found |= (start_s >= begin) & (end_s <= end)
    return found


def possible_power_w(recording: Recording, gpu: int) -> tuple[float, float]:
    """Return the least that the board has drawn, and the most that a kernel may draw for a short while."""
    _, power = recording.power(gpu)
    return (float(power.min()), MOST_OF_PEAK * float(power.max())) if len(power) else (0.0, float("inf"))


def cycle_bins(recording: Recording, gpu: int, windows: Spans) -> tuple[Bins, float]:
    """Return the cycles of each refresh period, a reading of the clock holding until the next, and the full clock."""
    times, clock = recording.known(gpu, "clock_hz")
    if len(times) < 2:
        return Bins(np.zeros(0), np.zeros(0), np.zeros(0)), float("nan")
    counted = np.concatenate([[0.0], np.cumsum(np.diff(times) * clock[:-1])])
    periods = (times[-1] - times[0]) / HOPPER.refresh_s
    if periods > MOST_PERIODS:
        raise SpecError(
            "recording", Words(f"{times[-1] - times[0]:.3g} s"), "a recording of at most 20 million periods"
        )
    edges = np.arange(times[0], times[-1], HOPPER.refresh_s)
    inside = covered(edges[:-1], edges[1:], windows)
    cycles = np.diff(np.interp(edges, times, counted))
    return Bins(edges[:-1][inside], edges[1:][inside], cycles[inside]), float(np.max(clock))


def limit_bins(recording: Recording, gpu: int, windows: Spans) -> dict[str, Bins]:
    """Return the seconds under each limit that held the clock down for a while."""
    found = {}
    for cause, quantity in LIMITS.items():
        times, seconds = recording.known(gpu, quantity)
        if len(times) < 2:
            continue
        inside = covered(times[:-1], times[1:], windows)
        bins = Bins(times[:-1][inside], times[1:][inside], np.diff(without_resets(seconds))[inside])
        if bins.amount.sum() >= LEAST_LIMITED_FRACTION * np.sum(bins.end_s - bins.start_s) > 0:
            found[cause] = bins
    return found
