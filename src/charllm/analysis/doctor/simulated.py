"""A simulated run as real sensors would show it: the same quantities, through their noise.

Source: power: calibration within 1 % between boards and 1 % from window to window (instant readings see a quarter of
the time, gpu/sensor.py); temperature: whole degrees, 1 K between sensors; clock: steps of 15 MHz; throttle counters and
activity: refreshed every 100 ms, 1 % of a window; ports wait 3 % of the time they send without any fault (assumed).
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from charllm.analysis.doctor.observation import Observation
from charllm.arrays import Floats
from charllm.layout.grid import Grid
from charllm.layout.placement import place_ranks
from charllm.simulate.predict import Simulation
from charllm.simulate.telemetry import show_telemetry, use_ports
from charllm.spec.run import GPU_LISTS, NODE_LISTS, RunSpec
from charllm.units import MEGA

WINDOWS = 30
"""Steps, or windows of them, that are looked at."""


@dataclass(frozen=True, slots=True)
class SensorNoise:
    """Standard deviations of what sensors add; `bias` stays the same over a run, `jitter` differs by window."""

    power_bias_fraction: float = 0.01
    power_jitter_fraction: float = 0.01
    temperature_bias_k: float = 1.0
    temperature_jitter_k: float = 0.5
    clock_step_hz: float = 15 * MEGA
    clock_jitter_fraction: float = 0.004
    limit_jitter_fraction: float = 0.01
    activity_bias_fraction: float = 0.005
    activity_jitter_fraction: float = 0.01
    utilization_jitter_fraction: float = 0.015
    host_bias_fraction: float = 0.003
    """Of the time that hosts of healthy nodes leave their GPUs without kernels."""
    port_wait_fraction: float = 0.03
    """Mean of what healthy ports wait, over the time they send."""
    port_jitter_fraction: float = 0.3
    inlet_bias_k: float = 1.0


NOISE = SensorNoise()


def observe_simulation(
    found: Simulation, seed: int = 0, noise: SensorNoise = NOISE, windows: int = WINDOWS, *, knows_run: bool = True
) -> Observation:
    """Return what telemetry would show of a simulated run over some windows."""
    run, random = found.step.run, np.random.default_rng(seed)
    shown = show_telemetry(found)
    per_node, gpus = run.cluster.node.gpus, np.arange(run.cluster.gpus)
    read = partial(_read, random=random, noise=noise, windows=windows)
    nodes = {name: np.repeat(values[:, None], windows, axis=1) for name, values in shown.nodes.items()}
    nodes["inlet_c"] = nodes["inlet_c"] + random.normal(0, noise.inlet_bias_k, (run.cluster.nodes, 1))
    if "nic_wait_fraction" in nodes:
        sends = use_ports(found.step, shown.step_time_s).sends[:, None]
        usual = sends * random.exponential(noise.port_wait_fraction, sends.shape)
        jitter = 1 + noise.port_jitter_fraction * random.standard_normal((len(sends), windows))
        nodes["nic_wait_fraction"] = np.clip((nodes["nic_wait_fraction"] + usual) * jitter, 0, 1)
    late = np.abs(random.normal(0, noise.host_bias_fraction, run.cluster.nodes))[gpus // per_node]
    shown.gpus["utilization_fraction"] = shown.gpus["utilization_fraction"] - late
    ranks = np.argsort(place_ranks(run))
    return Observation(
        node=gpus // per_node,
        slot=gpus % per_node,
        rank=ranks,
        stage=Grid(run.parallelism).stage(ranks) if knows_run else None,
        gpus={name: read(name, values) for name, values in shown.gpus.items()},
        nodes=nodes,
        node_names=tuple(str(node) for node in range(run.cluster.nodes)),
        step_time_s=shown.step_time_s,
        run=_as_asked(run) if knows_run else None,
    )


def _read(name: str, values: Floats, *, random: np.random.Generator, noise: SensorNoise, windows: int) -> Floats:
    """Return the readings of one quantity, [GPU, window]."""
    jitter, bias = random.standard_normal((len(values), windows)), random.standard_normal((len(values), 1))
    true = values[:, None]
    if name == "power_w":
        return np.asarray(true * (1 + noise.power_bias_fraction * bias) * (1 + noise.power_jitter_fraction * jitter))
    if name == "temperature_c":
        return np.round(true + noise.temperature_bias_k * bias + noise.temperature_jitter_k * jitter)
    if name == "clock_hz":
        read = true * (1 + noise.clock_jitter_fraction * jitter)
        return np.asarray(np.minimum(np.floor(read / noise.clock_step_hz) * noise.clock_step_hz, read))
    if name == "power_limit_w":
        return np.repeat(true, windows, axis=1)
    if name == "sm_active_fraction":
        shown = true * (1 + noise.activity_bias_fraction * bias) + noise.activity_jitter_fraction * jitter
        return np.clip(shown, 0, 1)
    if name == "utilization_fraction":
        return np.clip(true + noise.utilization_jitter_fraction * jitter, 0, 1)
    # A throttle counter that never moves shows no noise.
    return np.clip(np.where(true > 0, true + noise.limit_jitter_fraction * jitter, true), 0, 1)


def _as_asked(run: RunSpec) -> RunSpec:
    """Return the run as its owner would describe it: nobody knows of a weakness before it is found."""
    hidden: dict[str, Any] = dict.fromkeys((*GPU_LISTS, *NODE_LISTS), ())
    inlets_c = run.cluster.cooling.inlet_c
    inlet_c = float(np.median(inlets_c)) if isinstance(inlets_c, tuple) else inlets_c
    usual: dict[str, Any] = {"weak_power_fraction": 1.15, "hot_sink_fraction": 2.0, "silicon_spread_fraction": 0.0}
    conditions = replace(run.conditions, **hidden, **usual)
    cluster = replace(run.cluster, cooling=replace(run.cluster.cooling, inlet_c=inlet_c))
    return replace(run, conditions=conditions, cluster=cluster)
