"""Where sinks end: what the power of a node and the air through it lead to, and how far fans turn up meanwhile.

Equation: gpu/heat.py. Source: there.
Ignores: how sinks move within a step; fans that take seconds to speed up.
"""

from typing import TYPE_CHECKING

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.heat import FLOW_EXPONENT, SINK, Network, fan_flow, network, sink_rise_k
from charllm.layout.nodes import flow_fractions, node_kinds
from charllm.simulate import step_loop
from charllm.spec.hardware import Cluster
from charllm.spec.run import RunSpec

if TYPE_CHECKING:
    from charllm.simulate.steady import Machine, SimulatedStep


def sink_target_k(machine: "Machine", power_w: Floats, mean_c: Floats | None = None) -> Floats:
    """Return the rise of each simulated GPU's sink that the power of its whole node, and its fans, lead to.

    Fans that follow temperature follow `mean_c` of each GPU, and turn at their least where it is not known.
    """
    cluster, flow = machine.run.cluster, node_flows(machine, mean_c)
    by_node = power_w[machine.representatives].reshape(cluster.nodes, cluster.node.gpus)
    rises, kinds = np.empty_like(by_node), node_kinds(cluster)
    for place, net in enumerate(normal_networks(cluster)):
        rises[kinds == place] = sink_rise_k(by_node[kinds == place], net, flow[kinds == place])
    hot = list(machine.run.conditions.hot_gpus)
    of_hot = flow[np.array(hot, dtype=np.int64) // cluster.node.gpus] ** FLOW_EXPONENT
    worse = (sink_fractions(machine.run)[hot] - 1) * _sink_k_per_w(cluster)[hot] * of_hot
    rises.ravel()[hot] += worse * by_node.ravel()[hot]
    return np.asarray(rises.ravel()[machine.gpus])


def node_flows(machine: "Machine", mean_c: Floats | None = None) -> Floats:
    """Return the flow through each node over normal, of following fans at the temperatures of its GPUs."""
    cluster = machine.run.cluster
    least = flow_fractions(cluster)
    if mean_c is None or cluster.cooling.fans == "fixed":
        return least
    hottest_c = mean_c[machine.representatives].reshape(cluster.nodes, cluster.node.gpus).max(axis=1)
    limits_c = np.array([node.gpu.max_operating_temperature_c for node in cluster.kinds])[node_kinds(cluster)]
    return fan_flow(cluster.cooling, least, hottest_c, limits_c)


def mean_c_of(simulated_step: "SimulatedStep") -> Floats:
    """[gpu] mean temperature of its die."""
    return np.asarray(simulated_step.sums[:, step_loop.HEAT_S] / simulated_step.step_time_s)


def power_w_of(simulated_step: "SimulatedStep") -> Floats:
    """[gpu] mean power."""
    return np.asarray(simulated_step.sums[:, step_loop.ENERGY] / simulated_step.step_time_s)


def normal_networks(cluster: Cluster) -> list[Network]:
    """Return the heat of each kind of node at normal flow."""
    return [network(node, cluster.cooling.at_flow(1.0).of(0)) for node in cluster.kinds]


def sink_fractions(run: RunSpec) -> Floats:
    """Return for each GPU of the cluster the resistance of its sink over the usual."""
    fractions = np.ones(run.cluster.gpus)
    factors = run.sink_factors
    fractions[list(factors)] = list(factors.values())
    return fractions


def _sink_k_per_w(cluster: Cluster) -> Floats:
    """Return for each GPU of a cluster the usual resistance of its sink at normal flow."""
    each = [net.resistance_k_per_w[:, SINK] for net in normal_networks(cluster)]
    return np.array(each)[node_kinds(cluster)].ravel()
