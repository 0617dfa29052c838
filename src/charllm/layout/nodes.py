"""Which kind of node each GPU sits in, and what air or coolant enters it."""

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.spec.hardware import Cluster


def node_kinds(cluster: Cluster) -> Ints:
    """Return for each node which of the cluster's kinds it is."""
    kinds = np.zeros(cluster.nodes, dtype=np.int64)
    for place, other in enumerate(cluster.mixed, start=1):
        kinds[list(other.nodes)] = place
    return kinds


def of_racks(cluster: Cluster, values: float | tuple[float, ...]) -> Floats:
    """Return for each node what holds for its rack."""
    if not isinstance(values, tuple):
        return np.full(cluster.nodes, values, dtype=np.float64)
    return np.array(values, dtype=np.float64)[np.arange(cluster.nodes) // cluster.cooling.rack_nodes]


def inlets_c(cluster: Cluster) -> Floats:
    """Return the temperature of what enters each node."""
    return of_racks(cluster, cluster.cooling.inlet_c)


def flow_fractions(cluster: Cluster) -> Floats:
    """Return the flow through each node, the least of following fans, relative to normal."""
    return of_racks(cluster, cluster.cooling.flow_fraction)
