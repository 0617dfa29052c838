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


def inlets_c(cluster: Cluster) -> Floats:
    """Return the temperature of what enters each node."""
    return np.broadcast_to(np.asarray(cluster.cooling.inlet_c, dtype=np.float64), cluster.nodes)
