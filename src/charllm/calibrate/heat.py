"""Fit the poles of a GPU's heat from its power and temperature over time.

Equation: temperature as evaluate/heat.py predicts it from power alone, against the readings, up to one offset for each
GPU: its ambient, which no recording holds, is fitted with it. Errors of 1 K that last for a second.
Source: priors are the constants of the GPU that calibration starts from.
GPUs of a node that the catalog knows keep its slots and preheat; those of any other count each alone, and what their
neighbours' air adds counts as their own resistance.
Ignores: memory traffic beyond what power and clock suggest.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.calibrate.least_squares import Fit, Found, Parameter, fit
from charllm.calibrate.ops import bounds_of
from charllm.catalog.resolve import single_node
from charllm.catalog.tables import entries
from charllm.errors import SpecError
from charllm.evaluate.heat import predict
from charllm.evaluate.heat_trace import Trace, one_by_one
from charllm.gpu.heat import network
from charllm.spec.hardware import Cluster, Node

FIELDS = ("die_resistance_k_per_w", "die_time_s", "base_resistance_k_per_w", "base_time_s", "sink_resistance_k_per_w",
          "sink_time_s", "memory_byte_heat_j")  # fmt: skip
SPREAD = 0.5
ERROR_K = 1.0
LEAST_RISE_K, LEAST_SWING_W = 5.0, 100.0
SINK_TIMES = 3.0
"""A recording shorter than this many time constants of the sink says nothing about it."""
MOST_READINGS = 4000
MOST_GPUS = 8
"""Of one node: more say little more and take their time."""
COARSE_S, SLOW_TIMES = 0.5, 2.0
"""Readings further apart, or means over longer, tell no time constant below this many times their length."""
ROUNDS = 8
PLAUSIBLE_AMBIENT_C = (-5.0, 60.0)


class HeatFit(NamedTuple):
    """Poles, and how well they explain the recordings."""

    fit: Fit
    rmse_k: tuple[float, ...]
    """Of each GPU of each recording, up to its offset."""
    ambient_c: tuple[float, ...]
    """As fitted, for each of them."""

    def describe(self) -> dict[str, Any]:
        """Return it as a table."""
        return {
            "parameters": [each._asdict() for each in self.fit.found],
            "rmse_k": list(self.rmse_k),
            "ambient_c": list(self.ambient_c),
        }


class Seated(NamedTuple):
    """A trace, and the node that its GPUs are in."""

    trace: Trace
    node: Node


def fit_heat(traces: Sequence[Trace], cluster: Cluster) -> HeatFit:
    """Fit poles to recordings of one GPU, or of the GPUs of a node."""
    seated = [one._replace(trace=thin(one.trace)) for trace in traces for one in _seat(trace, cluster)]
    thinned = [one.trace for one in seated]
    heat = cluster.gpu.heat

    def missed(values: dict[str, float]) -> list[tuple[Floats, Floats]]:
        changed = replace(heat, **{name.removeprefix("heat."): value for name, value in values.items()})
        gpu = replace(cluster.gpu, heat=changed)
        found = []
        for trace, node in seated:
            shown, start = predict(trace, network(replace(node, gpu=gpu), cluster.cooling), gpu)
            found.append((shown - trace.temperature_c, start.ambient_c))
        return found

    weights = [np.sqrt(min(1.0, float(np.median(np.diff(trace.times_s))))) / ERROR_K for trace in thinned]

    def residuals(values: dict[str, float]) -> Floats:
        offs = [off - off.mean(axis=0) for off, _ in missed(values)]
        return np.concatenate([weight * off.ravel() for weight, off in zip(weights, offs, strict=True)])

    hidden = [name for name in FIELDS if name.endswith("_time_s") and getattr(heat, name) < _shortest_s(thinned)]
    if all(trace.clock_hz is None for trace in thinned):
        # Traffic is then taken as proportional to power, and its heat cannot be told from the die's resistance.
        hidden.append("memory_byte_heat_j")
    parameters = [
        Parameter(f"heat.{name}", getattr(heat, name), SPREAD, *bounds_of(cluster.gpu, "heat", name))
        for name in FIELDS
        if name not in hidden
    ]
    found = fit(residuals, parameters, ROUNDS)
    left = missed(found.values())
    ambient_c = tuple(float(one) for off, ambient in left for one in ambient - off.mean(axis=0))
    _check_ambient(ambient_c)
    unseen = tuple(
        Found(f"heat.{name}", getattr(heat, name), SPREAD, getattr(heat, name), 1.0, False) for name in hidden
    )
    rmse_k = tuple(float(one) for off, _ in left for one in off.std(axis=0))
    return HeatFit(found._replace(found=(*found.found, *unseen)), rmse_k, ambient_c)


def _seat(trace: Trace, cluster: Cluster) -> list[Seated]:
    """Put GPUs into their node: the one given, the catalog's of as many GPUs, or each into one of its own."""
    if len(trace.gpus) != cluster.node.gpus and cluster.node.gpus == 1:
        try:
            node = single_node(_catalog_name(cluster), len(trace.gpus)).node
        except SpecError:
            return [Seated(one, cluster.node) for one in _useful(one_by_one(trace)[:MOST_GPUS], cluster)]
        # The node's own figures would hide those of the GPU, which are to be found.
        node = replace(
            node, gpu=cluster.gpu, base_resistance_k_per_w=None, base_time_s=None, sink_resistance_k_per_w=None,
            sink_time_s=None,
        )  # fmt: skip
        check_trace(trace, replace(cluster, node=node))
        return [Seated(trace, node)]
    check_trace(trace, cluster)
    return [Seated(trace, cluster.node)]


def _catalog_name(cluster: Cluster) -> str:
    """Return the GPU's name in the catalog; that of a file is its base's, by the node it stands in."""
    return next((node.values["gpu"] for node in entries("nodes").values() if node.name == cluster.node.name), "")


def _useful(traces: Sequence[Trace], cluster: Cluster) -> list[Trace]:
    """Keep the GPUs that tell something; where none does, say what the first one lacks."""
    kept, refused = [], None
    for trace in traces:
        try:
            check_trace(trace, cluster)
            kept.append(trace)
        except SpecError as error:
            refused = refused or error
    if refused is not None and not kept:
        raise refused
    return kept


def _shortest_s(traces: Sequence[Trace]) -> float:
    """Return the shortest time constant that readings so dense, and means so long, can tell."""
    coarse = min(max(trace.average_s, float(np.median(np.diff(trace.times_s)))) for trace in traces)
    return SLOW_TIMES * coarse if coarse >= COARSE_S else 0.0


def _check_ambient(ambient_c: Sequence[float]) -> None:
    """Refuse constants that need air no machine is cooled with."""
    odd = [one for one in ambient_c if not PLAUSIBLE_AMBIENT_C[0] <= one <= PLAUSIBLE_AMBIENT_C[1]]
    if odd:
        low, high = PLAUSIBLE_AMBIENT_C
        raise SpecError(
            "heat.base_resistance_k_per_w", f"an ambient of {odd[0]:.0f} C, which this recording would need",
            f"one from {low:g} to {high:g} C: a recording with minutes of idle time and of load",
        )  # fmt: skip


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
    swing = _lasting_swing_w(trace)
    if swing < LEAST_SWING_W:
        possible = f"power that changes by at least {LEAST_SWING_W:g} W for {SINK_TIMES * sink_s:.0f} s: {how}"
        raise SpecError("heat.die_resistance_k_per_w", f"power that changes by {swing:.0f} W", possible)
    rise = float(np.ptp(trace.temperature_c))
    if rise < LEAST_RISE_K:
        possible = f"at least {LEAST_RISE_K:g} K of warming, {SINK_TIMES * sink_s:.0f} s of load after idling: {how}"
        raise SpecError("heat.base_resistance_k_per_w", f"temperature that changes by {rise:.0f} K", possible)


def _lasting_swing_w(trace: Trace) -> float:
    """Return by how much power changes for long enough to warm anything: of means over a second, single ones do not."""
    if not trace.average_s:
        return float(np.ptp(trace.power_w))
    low, high = np.percentile(trace.power_w, [5, 95], axis=0)
    return float((high - low).max())


def thin(trace: Trace) -> Trace:
    """Keep the beginning of a long recording: times must stay as dense as the fastest pole needs.

    Of means over a second nothing is lost by one a second.
    """
    if trace.average_s and np.median(np.diff(trace.times_s)) < trace.average_s:
        every = np.searchsorted(trace.times_s, np.arange(trace.times_s[0], trace.times_s[-1], trace.average_s))
        clock = None if trace.clock_hz is None else trace.clock_hz[every]
        trace = replace(trace, times_s=trace.times_s[every], power_w=trace.power_w[every],
                        temperature_c=trace.temperature_c[every], clock_hz=clock)  # fmt: skip
    if len(trace.times_s) <= MOST_READINGS:
        return trace
    clock = None if trace.clock_hz is None else trace.clock_hz[:MOST_READINGS]
    return replace(
        trace, times_s=trace.times_s[:MOST_READINGS], power_w=trace.power_w[:MOST_READINGS],
        temperature_c=trace.temperature_c[:MOST_READINGS], clock_hz=clock,
    )  # fmt: skip
