"""Predict temperature from recorded power alone, and score it against the recorded temperature.

Measured temperature is read only in a window at the beginning, which is not scored: it gives each GPU's ambient and the
state of its poles, for a GPU may begin warm, or cool down from an earlier job. Their first guess is that of the first
second while power stays what it was. Equation, over GPUs i that rested and then started alike:

    T_i = ambient_i + sum over poles of steady_k(P_i) - (steady_k(P_i) - steady_k(idle)) (1 - w)^(time_sink / time_k)

One warmth `w` is shared (1: steady; prior 1 +- 0.5) and chosen so that ambients agree best: slots whose sinks differ
tell it. With one GPU, or GPUs alike, the start counts as steady.

What the guess misses in the window is a sum of a constant and of decaying poles, a exp(-t / time_k): linear in what it
has wrong, so it is corrected by least squares, held near the guess.

Traffic is not recorded, so memory heat is assumed: in proportion to power, as in training; and that of a full-speed
copy while the clock is the highest, power is steady and near the cap, because matrix work there would meet the cap.
Ignores: what a GPU does between two readings, and memory-bound work slowed by the cap (it looks like attention).
"""

from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Bools, Floats
from charllm.catalog.resolve import single_node
from charllm.evaluate.heat_trace import Trace
from charllm.gpu.heat import SINK, Network, advance, network, steady_state_k, temperature_c
from charllm.gpu.physics import board_of, idle_w
from charllm.spec.hardware import Gpu

START_S = 1.0
WARMTH_SPREAD = 0.5
WINDOW_S, WINDOW_FRACTION = 100.0, 0.2
"""Temperature is read for so long, or for this share of a shorter recording, to find the state it begins in."""
START_SPREAD_K = (2.0, 1.0, 3.0, 10.0)
"""How far ambient and the rises of die, base and sink may be from the first guess: of the sink most. Assumed."""
READING_SPREAD_K, WINDOW_READINGS = 0.7, 6.0
"""Errors of single readings, and how many of a window are independent, for they share the model's. Assumed."""
AMBIENT_SPREAD_K = 0.7
"""Spread of ambients in one node, and beyond which one counts as odd."""
TRAFFIC_BYTES_PER_J = 1.6e9
"""Memory traffic for each joule above idle: chosen so that H200 take opsA has no mean error."""
STREAM_W_FRACTION = (0.74, 0.80)
STREAM_STEADY_FRACTION = 0.15
"""At the highest clock, power above these shares of the cap and as steady as this over a second is memory's.

Chosen on H200 take opsB, whose score is therefore not held out.
"""
STEADY_S = 3.0
STEADY_FRACTION = 0.05


class Start(NamedTuple):
    """What the window tells: ambient of each GPU, rises of each pole, warmth of base and sink."""

    ambient_c: Floats
    state_k: Floats
    warmth_fraction: float


def score_heat(trace: Trace, gpu: str) -> dict[str, Any]:
    """Predict each GPU's temperature and describe the errors."""
    cluster = single_node(gpu, len(trace.gpus))
    net = network(cluster.node, cluster.cooling)
    predicted, start = predict(trace, net, cluster.gpu)
    scored = ~in_window(trace)
    times_s = trace.times_s[scored]
    error = (predicted - trace.temperature_c)[scored]
    rear = [slot for slot in range(net.slots) if cluster.node.upstream_slots(slot)]
    steady = steady_readings(trace)[scored]
    simpler = (baseline(trace, net) - trace.temperature_c)[scored]
    return {
        "gpu": cluster.gpu.name,
        "node": cluster.node.name,
        "readings": len(times_s),
        "start_window_s": window_s(trace),
        "seconds": float(trace.times_s[-1] - trace.times_s[0]),
        **describe(error, times_s, steady),
        "gap_error_k": _gap(error, rear),
        "start_warmth_fraction": start.warmth_fraction,
        "baseline": describe(simpler, times_s, steady),
        "gpus": [
            {
                "gpu": name,
                "ambient_c": float(start.ambient_c[slot]),
                "offset_k": float(-error[:, slot].mean()),
                **describe(error[:, [slot]], times_s, steady[:, [slot]]),
            }
            for slot, name in enumerate(trace.gpus)
        ],
    }


def describe(error: Floats, times_s: Floats, steady: Bools) -> dict[str, float | None]:
    """Return the figures by which errors [readings, GPUs] are judged; an offset is one for each GPU."""
    seconds = np.floor(times_s - times_s[0]).astype(int)
    counts = np.bincount(seconds)
    sums = np.stack([np.bincount(seconds, weights=column) for column in error.T], axis=1)[counts > 0]
    return {
        "rmse_k": _rms(error),
        "rmse_with_offset_k": _rms(error - error.mean(axis=0)),
        "rmse_1s_k": _rms(sums / counts[counts > 0, None]),
        "mean_error_k": float(error.mean()),
        "max_error_k": float(np.abs(error).max()),
        "steady_error_k": float(np.abs(error[steady]).mean()) if steady.any() else None,
    }


def predict(trace: Trace, net: Network, gpu: Gpu, traffic_bytes_per_s: Floats | None = None) -> tuple[Floats, Start]:
    """Return the temperature of each GPU at each reading, from power and the window; traffic if it is known."""
    power = centred_power_w(trace)
    traffic = traffic_bytes_per_s
    if traffic is None:
        traffic = assumed_traffic_bytes_per_s(trace, power, gpu)
    guess = find_start(trace, power, traffic, net, gpu.power.idle_w)
    since_s, window = trace.times_s - trace.times_s[0], in_window(trace)
    before = _follow(guess, trace.times_s[window], power, traffic, net)
    start = fit_start(guess, trace.temperature_c[window] - before, since_s[window], net)
    return _follow(start, trace.times_s, power, traffic, net), start


def window_s(trace: Trace) -> float:
    """Return how long temperature is read to find the state in which a recording begins."""
    return min(WINDOW_S, WINDOW_FRACTION * float(trace.times_s[-1] - trace.times_s[0]))


def in_window(trace: Trace) -> Bools:
    """Mark the readings by which the state at the beginning is found; they are not scored."""
    return np.asarray(trace.times_s - trace.times_s[0] <= window_s(trace))


def _follow(start: Start, times_s: Floats, power: Floats, traffic: Floats, net: Network) -> Floats:
    state, shown = start.state_k, np.empty((len(times_s), net.slots))
    shown[0] = temperature_c(state, start.ambient_c)
    for index, step in enumerate(np.diff(times_s), start=1):
        state = advance(state, power[index], float(step), net, traffic[index])
        shown[index] = temperature_c(state, start.ambient_c)
    return shown


def fit_start(guess: Start, missed_k: Floats, times_s: Floats, net: Network) -> Start:
    """Return ambient and rises at the first reading that fit the readings of a window.

    `missed_k` [reading, GPU] is by how much a guess is too low at those times.
    """
    spreads = np.array(START_SPREAD_K)
    ambient, state = guess.ambient_c.copy(), guess.state_k.copy()
    for slot in range(net.slots):
        left = np.exp(-times_s[:, None] / net.time_s[slot])
        effects = np.hstack([np.ones((len(times_s), 1)), left]) * spreads
        moved = np.linalg.solve(
            effects.T @ effects + READING_SPREAD_K**2 * len(times_s) / WINDOW_READINGS * np.eye(len(spreads)),
            effects.T @ missed_k[:, slot],
        )
        ambient[slot] += moved[0] * spreads[0]
        state[slot] += moved[1:] * spreads[1:]
    return Start(ambient, state, guess.warmth_fraction)


def find_start(trace: Trace, power: Floats, traffic: Floats, net: Network, idle_w: float) -> Start:
    """Return ambient and rises at the first reading."""
    first = first_readings(trace)
    shown = trace.temperature_c[first].mean(axis=0)
    if trace.past_power_w is not None:
        state = steady_state_k(trace.past_power_w, net)
        return Start(shown - state.sum(axis=1), state, 1.0)
    idle = steady_state_k(np.full(net.slots, idle_w), net)
    steady = steady_state_k(power[first].mean(axis=0), net, traffic[first].mean(axis=0))
    best = min(
        np.linspace(0.0, 1.0, 101), key=lambda warmth: _oddness(shown, _warmed(idle, steady, warmth, net), warmth)
    )
    state = _warmed(idle, steady, float(best), net)
    return Start(shown - state.sum(axis=1), state, float(best))


def _warmed(idle: Floats, steady: Floats, warmth: float, net: Network) -> Floats:
    """Return the rises of GPUs that rested and then ran until their sinks came so far; faster poles came further."""
    left = (1 - warmth) ** (net.time_s[:, SINK, None] / net.time_s)
    return np.asarray(steady + (idle - steady) * left)


def _oddness(shown: Floats, state: Floats, warmth: float) -> float:
    """Return how unlikely a warmth is: ambients of one node should agree, and an odd one counts little."""
    ambient = shown - state.sum(axis=1)
    apart = (ambient - np.median(ambient)) / AMBIENT_SPREAD_K
    return float(2 * np.log1p(apart**2 / 2).sum() + ((1 - warmth) / WARMTH_SPREAD) ** 2)


def assumed_traffic_bytes_per_s(trace: Trace, power: Floats, gpu: Gpu) -> Floats:
    """Return the memory traffic that power and clock suggest, at most what a copy reaches."""
    stream = gpu.kernels.memory_fraction * gpu.memory_bandwidth_bytes_per_s
    usual = np.minimum(TRAFFIC_BYTES_PER_J * np.maximum(power - idle_w(board_of(gpu)), 0.0), stream)
    if trace.clock_hz is None:
        return usual
    low, high, mean = _over_last_second(trace.times_s, power)
    slowest, _, _ = _over_last_second(trace.times_s, trace.clock_hz)
    cap = gpu.power_cap_w / gpu.package_gpus
    from_w, to_w = STREAM_W_FRACTION[0] * cap, STREAM_W_FRACTION[1] * cap
    calm = (high - low < STREAM_STEADY_FRACTION * cap) & (slowest >= 0.99 * gpu.clock_max_hz) & (mean < cap)
    share = np.clip((mean - from_w) / (to_w - from_w), 0.0, 1.0) * calm
    return np.asarray(usual + (stream - usual) * share)


def steady_readings(trace: Trace) -> Bools:
    """Mark the readings before which power has stayed within 5 % of its mean for 3 s."""
    low, high, mean = _over_last(trace.times_s, trace.power_w, STEADY_S)
    begun = (trace.times_s - trace.times_s[0] >= STEADY_S)[:, None]
    return np.asarray(begun & (high - low <= 2 * STEADY_FRACTION * mean))


def first_readings(trace: Trace) -> slice:
    """Return the readings of the first second before any GPU's power changes."""
    early = int(np.searchsorted(trace.times_s, trace.times_s[0] + START_S, side="right"))
    power = trace.power_w[:early]
    changed = (np.abs(power - power[0]) > 5.0 + 0.1 * power[0]).any(axis=1)
    return slice(0, int(np.argmax(changed)) if changed.any() else early)


def centred_power_w(trace: Trace) -> Floats:
    """Move readings that are means of the past to the middle of what they are means of."""
    if trace.average_s == 0.0:
        return trace.power_w
    later = trace.times_s + trace.average_s / 2
    return np.stack([np.interp(later, trace.times_s, column) for column in trace.power_w.T], axis=1)


def _over_last_second(times_s: Floats, values: Floats) -> tuple[Floats, Floats, Floats]:
    return _over_last(times_s, values, 1.0)


def _over_last(times_s: Floats, values: Floats, length_s: float) -> tuple[Floats, Floats, Floats]:
    """Return least, most and mean of the readings in the time before each."""
    begin = np.searchsorted(times_s, times_s - length_s)
    low, high, mean = np.empty_like(values), np.empty_like(values), np.empty_like(values)
    for end, first in enumerate(begin):
        window = values[first : end + 1]
        low[end], high[end], mean[end] = window.min(axis=0), window.max(axis=0), window.mean(axis=0)
    return low, high, mean


def baseline(trace: Trace, net: Network) -> Floats:
    """Return temperatures by one resistance without lags: what a table of steady temperatures would say."""
    first = first_readings(trace)
    rise = steady_state_k(trace.power_w, net).sum(axis=-1)
    ambient = (trace.temperature_c[first] - rise[first]).mean(axis=0)
    return np.asarray(ambient + rise)


def _gap(error: Floats, rear: list[int]) -> float | None:
    """Return by how much the mean difference of rear and front slots is missed."""
    front = [slot for slot in range(error.shape[1]) if slot not in rear]
    if not rear or not front:
        return None
    return float(error[:, rear].mean() - error[:, front].mean())


def _rms(error: Floats) -> float:
    return float(np.sqrt(np.mean(error**2)))
