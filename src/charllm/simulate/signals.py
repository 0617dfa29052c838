"""Metrics of power, temperature and clock from a simulated step, per run, GPU and node.

Equation: means are sums over a step over its time; a ramp is |P(t + 1 s) - P(t)|, a swing four times the root of the
summed squares of the spectrum's amplitudes from 0.1 to 3 Hz: peak to peak of a sine of the same energy.
Source: arXiv:2508.14318 for the band.
Ignores: power of the cluster inside one box (25 ms); nodes that are out of step with each other.
"""

from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.chassis import fan_power_w, node_power_w
from charllm.gpu.limits import CAUSES, LIMITS
from charllm.gpu.sensor import HOPPER
from charllm.layout.nodes import inlets_c, node_kinds
from charllm.layout.placement import place_ranks
from charllm.simulate import step_loop
from charllm.simulate.sinks import node_flows, normal_networks
from charllm.simulate.steady import Machine, SimulatedStep, shutdown_c, shuts_down
from charllm.spec.hardware import Cluster

RAMP_S = 1.0
"""A ramp is the change from one second to the next, as meters of a hall see it."""
CLOCK_SIGNAL = 2
"""Place of the clock among the signals of a box; 0 where a GPU has not filled it."""
SWING_HZ = (0.1, 3.0)
"""Band in which grids and generators care (arXiv:2508.14318)."""


def power_metrics(machine: Machine, simulated_step: SimulatedStep) -> dict[str, Any]:
    """Return every metric of watts, degrees and hertz of one step."""
    run, sums, step_s = machine.run, simulated_step.sums, simulated_step.step_time_s
    weights = np.tile(machine.fold.weights, run.parallelism.pp)
    slowdown_c = np.array([node.gpu.slowdown_temperature_c for node in run.cluster.kinds])[machine.node_kind]
    memory_limit_c = np.array([board.memory_operating_c for board in machine.boards])[machine.kind]
    (mean_c, peak_c), memory = shown_c(machine, simulated_step), shown_memory_c(machine, simulated_step)
    flow = node_flows(machine, mean_c)
    power_w = sums[:, step_loop.ENERGY] / step_s
    energy_j = float(np.sum(weights * sums[:, step_loop.ENERGY]))
    clock = np.average(sums[:, step_loop.CLOCK_S], weights=weights) / step_s
    square = np.average(sums[:, step_loop.CLOCK2_S], weights=weights) / step_s
    by_node = power_w[machine.representatives].reshape(run.cluster.nodes, run.cluster.node.gpus)
    degrees = mean_c[machine.representatives].reshape(by_node.shape)
    asked_hz = float(np.average(machine.asked_hz, weights=weights))
    return {
        "power_mean_w": energy_j / step_s / run.parallelism.world,
        "power_peak_w": float(sums[:, step_loop.PEAK_W].max()),
        "power_peak_sensor_w": float(sums[:, step_loop.SENSOR_W].max()),
        "energy_per_step_j": energy_j,
        "tokens_per_j": run.tokens_per_step / energy_j,
        "node_power_mean_w": float(np.mean(whole_node_w(run.cluster, by_node, flow))),
        **cluster_metrics(machine, simulated_step),
        "temperature_mean_c": float(np.mean(degrees)),
        "temperature_peak_c": float(peak_c.max()),
        "temperature_spread_node_k": float(np.max(degrees.max(axis=1) - degrees.min(axis=1))),
        "temperature_swing_k": float(np.max(np.maximum(0.0, peak_c - sums[:, step_loop.COLD_C]))),
        "margin_to_slowdown_k": float(np.min(slowdown_c - peak_c)),
        "memory_temperature_peak_c": float(memory.peak_c.max()),
        "margin_to_memory_limit_k": _finite(np.min(memory_limit_c - memory.peak_c)),
        "shutdown": shuts_down(machine, simulated_step),
        "clock_mean_hz": float(clock),
        "clock_std_fraction": float(np.sqrt(max(0.0, square - clock**2)) / clock),
        "throttled_time_fraction": {
            cause: float(np.average(sums[:, step_loop.POWER_S + place], weights=weights) / step_s)
            for place, cause in enumerate(CAUSES)
        },
        "clock_loss_fraction": {
            cause: float(np.average(sums[:, step_loop.POWER_LOSS + place], weights=weights) / step_s / asked_hz)
            for place, cause in enumerate(CAUSES)
        },
    }


class Degrees(NamedTuple):
    """[gpu] what a sensor shows in a step."""

    mean_c: Floats
    peak_c: Floats


def shown_c(machine: Machine, simulated_step: SimulatedStep) -> Degrees:
    """Return what the sensors of dies show; nothing is read beyond where a GPU turns itself off."""
    sums, off_c = simulated_step.sums, shutdown_c(machine)
    mean_c = sums[:, step_loop.HEAT_S] / simulated_step.step_time_s
    return Degrees(np.minimum(mean_c, off_c), np.minimum(sums[:, step_loop.HOT_C], off_c))


def shown_memory_c(machine: Machine, simulated_step: SimulatedStep) -> Degrees:
    """Return what the sensors of memory show; the sink of a GPU that turns itself off becomes no warmer than that."""
    sums = simulated_step.sums
    never_k = np.maximum(0.0, sums[:, step_loop.HOT_C] - shutdown_c(machine))
    mean_c = sums[:, step_loop.MEMORY_HEAT_S] / simulated_step.step_time_s
    return Degrees(mean_c - never_k, sums[:, step_loop.MEMORY_HOT_C] - never_k)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def cluster_metrics(machine: Machine, simulated_step: SimulatedStep) -> dict[str, float | None]:
    """Return the peak, the ramp and the swing of all nodes together."""
    cluster = machine.run.cluster
    flow, kinds = node_flows(machine, shown_c(machine, simulated_step).mean_c), node_kinds(cluster)
    beside_w = sum(
        float(np.sum(node.overhead_w + fan_power_w(node, cluster.cooling, flow[kinds == place])))
        for place, node in enumerate(cluster.kinds)
    )
    # The first boxes of a round belong partly to the step before.
    return swing_metrics(simulated_step.cluster_w[1:-1] + beside_w, simulated_step.box_s)


def swing_metrics(power_w: Floats, box_s: float) -> dict[str, float | None]:
    """Return the peak, the ramp and the swing of a power that is given in boxes of equal length."""
    apart = round(RAMP_S / box_s)
    if len(power_w) < apart + 2:
        return {"cluster_power_peak_w": None, "cluster_power_ramp_w_per_s": None, "cluster_power_swing_w": None}
    ramp = np.abs(power_w[apart:] - power_w[:-apart]) / RAMP_S
    spectrum = np.abs(np.fft.rfft(power_w - power_w.mean())) / len(power_w)
    hertz = np.fft.rfftfreq(len(power_w), box_s)
    inside = (hertz >= SWING_HZ[0]) & (hertz <= SWING_HZ[1])
    return {
        "cluster_power_peak_w": float(power_w.max()),
        "cluster_power_ramp_w_per_s": float(ramp.max()),
        # Twice the amplitude of a sine of the same energy.
        "cluster_power_swing_w": float(4 * np.sqrt(np.sum(spectrum[inside] ** 2))),
    }


def gpu_signals(machine: Machine, simulated_step: SimulatedStep) -> dict[str, Floats]:
    """Return per GPU of the cluster what its row of the result holds."""
    sums, step_s = simulated_step.sums, simulated_step.step_time_s
    (mean_c, peak_c), memory = shown_c(machine, simulated_step), shown_memory_c(machine, simulated_step)
    asked_hz = machine.asked_hz
    columns = {
        "power_mean_w": sums[:, step_loop.ENERGY] / step_s,
        "power_peak_w": sums[:, step_loop.PEAK_W],
        "power_peak_sensor_w": sums[:, step_loop.SENSOR_W],
        "temperature_mean_c": mean_c,
        "temperature_peak_c": peak_c,
        "memory_temperature_mean_c": memory.mean_c,
        "memory_temperature_peak_c": memory.peak_c,
        "clock_mean_hz": sums[:, step_loop.CLOCK_S] / step_s,
        "wait_for_group_s": sums[:, step_loop.GROUP_WAIT],
    }
    for place, cause in enumerate(CAUSES):
        columns[f"throttled_{cause}_fraction"] = sums[:, step_loop.POWER_S + place] / step_s
        columns[f"clock_loss_{cause}_fraction"] = sums[:, step_loop.POWER_LOSS + place] / step_s / asked_hz
    return {name: column[machine.representatives] for name, column in columns.items()}


def whole_node_w(cluster: Cluster, gpu_power_w: Floats, flow_fraction: Floats) -> Floats:
    """Return what each node draws, from the power of its GPUs, [node, slot], and the flow through it."""
    whole, kinds = np.empty(cluster.nodes), node_kinds(cluster)
    for place, node in enumerate(cluster.kinds):
        whole[kinds == place] = node_power_w(
            gpu_power_w[kinds == place], node, cluster.cooling, flow_fraction[kinds == place]
        )
    return whole


def node_rows(machine: Machine, simulated_step: SimulatedStep) -> list[dict[str, Any]]:
    """Describe every node: its power, how far its GPUs' temperatures lie apart, the most that preheat adds."""
    cluster = machine.run.cluster
    shape = (cluster.nodes, cluster.node.gpus)
    power = (simulated_step.sums[:, step_loop.ENERGY] / simulated_step.step_time_s)[machine.representatives].reshape(
        shape
    )
    degrees = shown_c(machine, simulated_step)[0][machine.representatives].reshape(shape)
    flow, inlet_c = node_flows(machine, shown_c(machine, simulated_step).mean_c), inlets_c(cluster)
    whole = whole_node_w(cluster, power, flow)
    preheat_k, fans_w, kinds = np.empty_like(power), np.empty_like(flow), node_kinds(cluster)
    for place, (kind, net) in enumerate(zip(cluster.kinds, normal_networks(cluster), strict=True)):
        mine = kinds == place
        preheat_k[mine] = power[mine] @ net.air_k_per_w.T / flow[mine, None]
        fans_w[mine] = fan_power_w(kind, cluster.cooling, flow[mine])
    return [
        {
            "node": node,
            "power_mean_w": float(whole[node]),
            "gpu_power_mean_w": float(power[node].sum()),
            "temperature_spread_k": float(np.ptp(degrees[node])),
            "temperature_mean_c": float(degrees[node].mean()),
            "preheat_k": float(preheat_k[node].max()),
            "rack": node // cluster.cooling.rack_nodes,
            "inlet_mean_c": float(inlet_c[node]),
            "flow_fraction": float(flow[node]),
            "fan_power_w": float(fans_w[node]),
        }
        for node in range(cluster.nodes)
    ]


def stage_series(machine: Machine, simulated_step: SimulatedStep) -> Floats:
    """Return the signals of the first simulated GPU of each stage, as many as are kept: [stage, box, signal]."""
    kept = min(machine.run.parallelism.pp, -(-len(simulated_step.series) // len(machine.fold.weights)))
    return simulated_step.series[
        : kept * len(machine.fold.weights) : len(machine.fold.weights), : _filled(simulated_step)
    ]


def _filled(simulated_step: SimulatedStep) -> int:
    """Return how many boxes every GPU has filled: the step may end within the last one, which then holds nothing."""
    return int(np.all(simulated_step.series[:, :, CLOCK_SIGNAL] > 0, axis=0).sum())


def tabulate_signals(machine: Machine, simulated_step: SimulatedStep) -> dict[str, list[Any]]:
    """Return watts, degrees, hertz and what holds the clock over time, of the GPUs whose signals are kept."""
    boxes = _filled(simulated_step)
    series = simulated_step.series[:, :boxes]
    count = len(series)
    ranks = np.argsort(place_ranks(machine.run))[machine.gpus[:count]]
    times_s = (np.arange(boxes) + 1) * simulated_step.box_s
    power, temperature, clock = (series[:, :, column].ravel().tolist() for column in range(3))
    bits = np.array([0, *(LIMITS[cause] for cause in CAUSES)])
    return {
        "rank": np.repeat(ranks, boxes).tolist(),
        "t_s": np.tile(times_s, count).tolist(),
        "power_w": power,
        "temperature_c": temperature,
        "clock_hz": clock,
        "limits": bits[series[:, :, 3].astype(np.int64)].ravel().tolist(),
    }


def tabulate_sensor(machine: Machine, simulated_step: SimulatedStep) -> dict[str, list[Any]]:
    """Return what the sensor of the GPU with the highest power shows: the box of 25 ms at each of its refreshes."""
    boxes = _filled(simulated_step)
    power_w = simulated_step.series[:, :boxes, 0]
    place = int(np.argmax(power_w.max(axis=1)))
    read = np.arange(0, boxes, max(1, round(HOPPER.refresh_s / simulated_step.box_s)))
    rank = int(np.argsort(place_ranks(machine.run))[machine.gpus[place]])
    return {
        "rank": [rank] * len(read),
        "t_s": ((read + 1) * simulated_step.box_s).tolist(),
        "power_w": power_w[place, read].tolist(),
    }


def tabulate_cluster(simulated_step: SimulatedStep) -> dict[str, list[Any]]:
    """Return the power of all GPUs together over time."""
    power_w = simulated_step.cluster_w[: _filled(simulated_step)]
    return {"t_s": ((np.arange(len(power_w)) + 1) * simulated_step.box_s).tolist(), "gpu_power_w": power_w.tolist()}


def tabulate_power_changes(simulated_step: SimulatedStep) -> dict[str, list[Any]]:
    """Return how the power of all GPUs together changes: within the second after, and in the band of swings."""
    cluster = tabulate_cluster(simulated_step)
    power_w, box_s = np.array(cluster["gpu_power_w"]), simulated_step.box_s
    series = {"ramp_w_per_s": ramp_after(power_w, box_s), "swing_w": swing_in_band(power_w, box_s)}
    columns = {
        name: [None if np.isnan(value) else value for value in values.tolist()] for name, values in series.items()
    }
    return {"t_s": cluster["t_s"], **columns}


def ramp_after(power_w: Floats, box_s: float) -> Floats:
    """Return by how much power changes within the next second; NaN where the series ends before."""
    apart = max(1, round(RAMP_S / box_s))
    found = np.full(len(power_w), np.nan)
    if len(power_w) > apart:
        found[:-apart] = (power_w[apart:] - power_w[:-apart]) / (apart * box_s)
    return found


def swing_in_band(power_w: Floats, box_s: float) -> Floats:
    """Return the part of the power that oscillates inside the band; NaN where the series is too short for it."""
    if len(power_w) * box_s * SWING_HZ[1] < 2:
        return np.full(len(power_w), np.nan)
    spectrum, hertz = np.fft.rfft(power_w - power_w.mean()), np.fft.rfftfreq(len(power_w), box_s)
    spectrum[(hertz < SWING_HZ[0]) | (hertz > SWING_HZ[1])] = 0.0
    return np.fft.irfft(spectrum, len(power_w))
