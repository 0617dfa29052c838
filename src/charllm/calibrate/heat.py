"""Fit the poles of a GPU's heat from its power and temperature over time.

Equation: temperature as validate/heat.py predicts it from power alone, against the readings, up to one offset for each
recording; errors of 1 K that last for a second.
Source: priors are the constants of the GPU that calibration starts from.
Ignores: slots and preheat: one GPU alone; memory traffic beyond what power and clock suggest.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from charllm.calibrate.least_squares import Fit, Parameter, fit
from charllm.calibrate.ops import bounds_of
from charllm.errors import SpecError
from charllm.evaluate.heat import predict
from charllm.evaluate.heat_trace import Trace
from charllm.gpu.heat import network
from charllm.spec.hardware import Cluster

Floats = NDArray[np.float64]

FIELDS = ("die_resistance_k_per_w", "die_time_s", "base_resistance_k_per_w", "base_time_s", "sink_resistance_k_per_w",
          "sink_time_s", "memory_byte_heat_j")  # fmt: skip
SPREAD = 0.5
ERROR_K = 1.0
LEAST_RISE_K, LEAST_SWING_W = 5.0, 100.0
SINK_TIMES = 3.0
"""A recording shorter than this many time constants of the sink says nothing about it."""
MOST_READINGS = 4000
ROUNDS = 8


class HeatFit(NamedTuple):
    """Poles, and how well they explain the recordings."""

    fit: Fit
    rmse_k: tuple[float, ...]
    """Of each recording, up to its offset."""

    def describe(self) -> dict[str, Any]:
        """Return it as a table."""
        return {"parameters": [each._asdict() for each in self.fit.found], "rmse_k": list(self.rmse_k)}


def fit_heat(traces: Sequence[Trace], cluster: Cluster) -> HeatFit:
    """Fit poles to recordings of one GPU."""
    for trace in traces:
        check_trace(trace, cluster)
    thinned = [thin(trace) for trace in traces]
    heat = cluster.gpu.heat

    def offs(values: dict[str, float]) -> list[Floats]:
        changed = replace(heat, **{name.removeprefix("heat."): value for name, value in values.items()})
        gpu = replace(cluster.gpu, heat=changed)
        net = network(replace(cluster.node, gpu=gpu), cluster.cooling)
        found = [predict(trace, net, gpu)[0] - trace.temperature_c for trace in thinned]
        return [off - off.mean() for off in found]

    weights = [np.sqrt(min(1.0, float(np.median(np.diff(trace.times_s))))) / ERROR_K for trace in thinned]

    def residuals(values: dict[str, float]) -> Floats:
        return np.concatenate([weight * off.ravel() for weight, off in zip(weights, offs(values), strict=True)])

    parameters = [
        Parameter(f"heat.{name}", getattr(heat, name), SPREAD, *bounds_of(cluster.gpu, "heat", name)) for name in FIELDS
    ]
    found = fit(residuals, parameters, ROUNDS)
    return HeatFit(found, tuple(float(np.sqrt(np.mean(off**2))) for off in offs(found.values())))


def check_trace(trace: Trace, cluster: Cluster) -> None:
    """Refuse a recording that cannot tell the poles, and say what would."""
    if len(trace.gpus) != cluster.node.gpus:
        raise SpecError(
            "RUN", f"a recording of {len(trace.gpus)} GPUs", f"one of {cluster.node.gpus} {cluster.gpu.name}"
        )
    sink_s = cluster.gpu.heat.sink_time_s
    length_s = float(trace.times_s[-1] - trace.times_s[0])
    how = "`charllm bench ops --only soak,idle,cool` runs for 1 minute"
    if length_s < SINK_TIMES * sink_s:
        raise SpecError(
            "heat.sink_time_s", f"{length_s:.0f} s", f"a recording of at least {SINK_TIMES * sink_s:.0f} s: {how}"
        )
    swing = float(np.ptp(trace.power_w))
    if swing < LEAST_SWING_W:
        possible = f"power that changes by at least {LEAST_SWING_W:g} W for {SINK_TIMES * sink_s:.0f} s: {how}"
        raise SpecError("heat.die_resistance_k_per_w", f"power that changes by {swing:.0f} W", possible)
    rise = float(np.ptp(trace.temperature_c))
    if rise < LEAST_RISE_K:
        possible = f"at least {LEAST_RISE_K:g} K of warming, {SINK_TIMES * sink_s:.0f} s of load after idling: {how}"
        raise SpecError("heat.base_resistance_k_per_w", f"temperature that changes by {rise:.0f} K", possible)


def thin(trace: Trace) -> Trace:
    """Keep the beginning of a long recording: times must stay as dense as the fastest pole needs."""
    if len(trace.times_s) <= MOST_READINGS:
        return trace
    clock = None if trace.clock_hz is None else trace.clock_hz[:MOST_READINGS]
    return replace(
        trace, times_s=trace.times_s[:MOST_READINGS], power_w=trace.power_w[:MOST_READINGS],
        temperature_c=trace.temperature_c[:MOST_READINGS], clock_hz=clock,
    )  # fmt: skip
