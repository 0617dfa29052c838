"""What the sensors and counters of a real job would show of a simulated one, before their noise.

Equation: multiprocessors are active while a GPU computes, and those of the collective's blocks while it transfers or
waits: both look alike. A kernel is resident at all times but those in which the GPU waits for its host. A port that
sends to a node with slow adapters holds data back for bytes to receive / bandwidth x (1 / slow fraction - 1).
Source: DCGM's definitions of sm_active and of utilization; port counters of InfiniBand (PortXmitWait).
Ignores: that kernels fill the multiprocessors unevenly.
"""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.limits import CAUSES
from charllm.gpu.physics import power_cap_w
from charllm.layout.nodes import inlets_c
from charllm.simulate import step_loop
from charllm.simulate.predict import Simulation
from charllm.simulate.recorded import mean_clock_hz
from charllm.simulate.slices import CHANNELS
from charllm.simulate.steady import Machine
from charllm.spec.run import RunSpec
from charllm.workload.node_traffic import node_traffic
from charllm.workload.step import Step

EXPOSED = ("tp_exposed", "dp_exposed", "ep_exposed", "cp_exposed")


class Telemetry(NamedTuple):
    """Means over a step, by the name of the quantity."""

    step_time_s: float
    gpus: dict[str, Floats]
    """[GPU of the cluster]"""
    nodes: dict[str, Floats]
    """[node]"""


def show_telemetry(found: Simulation) -> Telemetry:
    """Return what would be read of each GPU and node of a simulated run."""
    machine, simulated_step = found.machine, found.simulated_step
    if machine is None or simulated_step is None:
        raise ValueError("a run that does not fit shows nothing")
    run, step_s, sums = found.step.run, simulated_step.step_time_s, simulated_step.sums
    clock_hz = mean_clock_hz(machine, simulated_step)
    idle_s = sums[:, step_loop.HOST_S] + sums[:, step_loop.UPDATE_HOST_S]
    waits = [step_loop.GROUP_WAIT, step_loop.INPUT_WAIT, step_loop.EXCHANGED_S, step_loop.STRAGGLER_S]
    waits_s = sums[:, waits].sum(axis=1)
    waiting_s = waits_s + _transfer_s(found, machine, clock_hz)
    computing_s = np.maximum(0.0, step_s - idle_s - waiting_s)
    blocks = np.array([CHANNELS / node.gpu.multiprocessors for node in run.cluster.kinds])[machine.node_kind]
    caps_w = np.array([
        power_cap_w(run.cluster.kinds[one.kind.node].gpu, one.kind.conditions(run)) for one in machine.priced
    ])  # fmt: skip
    columns = {
        "power_w": sums[:, step_loop.ENERGY] / step_s,
        "temperature_c": sums[:, step_loop.HEAT_S] / step_s,
        "clock_hz": sums[:, step_loop.CLOCK_S] / step_s,
        "power_limit_w": caps_w[machine.kind],
        "sm_active_fraction": (computing_s + blocks * waiting_s) / step_s,
        "utilization_fraction": 1 - idle_s / step_s,
        **{f"{cause}_fraction": sums[:, step_loop.POWER_S + place] / step_s for place, cause in enumerate(CAUSES)},
    }
    gpus = {name: column[machine.representatives] for name, column in columns.items()}
    return Telemetry(step_s, gpus, _node_readings(found.step, step_s))


def _transfer_s(found: Simulation, machine: Machine, clock_hz: float) -> Floats:
    """Return for each simulated GPU how long its compute stream is in the transfers and sends of its passes."""
    pp, microbatches = found.step.run.parallelism.pp, found.step.run.microbatches
    of_kind = np.zeros((len(machine.priced), pp))
    for (place, stage), _ in np.ndenumerate(of_kind):
        timed = machine.priced[place].near(clock_hz)
        exposed_s = sum(
            part.labels.get(name, 0.0) for one in timed.passes[stage::pp] for part in one for name in EXPOSED
        )
        of_kind[place, stage] = microbatches * exposed_s
    sent_s = np.array([machine.sent_s[machine.turns[:, 0] == stage].sum(axis=0) for stage in range(pp)])
    # A long step is simulated in part: the rest of its microbatches send as much each.
    sent_s = sent_s * microbatches / (found.simulated or found).step.run.microbatches
    positions = len(machine.fold.weights)
    stages = np.arange(len(machine.gpus)) // positions
    return of_kind[machine.kind, stages] + np.broadcast_to(sent_s, (pp, positions)).ravel()


def _node_readings(step: Step, step_s: float) -> dict[str, Floats]:
    """Return what the adapters and the inlet of each node show."""
    run, cluster = step.run, step.run.cluster
    readings = {"inlet_c": np.array(inlets_c(cluster), dtype=np.float64)}
    if cluster.nodes > 1 and cluster.fabric.nics_per_node:
        ports = use_ports(step, step_s)
        readings["nic_sent_bytes_per_s"] = node_traffic(step).sent.sum(axis=1) / step_s
        readings["nic_wait_fraction"] = _held_back(run, ports)
    return readings


class PortUse(NamedTuple):
    """What the adapters of a node do in a step, as shares of it, at full rate."""

    sends: Floats
    """[node] it sends."""
    waits_for: Floats
    """[node, other] the other has to receive before the node is free: once more for each time it is slower."""


def use_ports(step: Step, step_s: float) -> PortUse:
    """Return the use of every node's adapters."""
    fabric, traffic = step.run.cluster.fabric, node_traffic(step)
    bytes_of_step = fabric.node_bandwidth_bytes_per_s * step_s
    return PortUse(traffic.sent.sum(axis=1) / bytes_of_step, traffic.waited_for / bytes_of_step)


def _held_back(run: RunSpec, ports: PortUse) -> Floats:
    """Return the share of time each node's ports have data that a slower receiver does not take."""
    slow = np.isin(np.arange(len(ports.sends)), run.conditions.slow_nic_nodes)
    more = 1 / run.conditions.slow_nic_fraction - 1
    return np.asarray(np.where(slow, 0.0, (ports.waits_for * slow).sum(axis=1) * more))
