"""What a node draws beside its GPUs.

Equation: node = sum of GPU power + overhead + fans flow^3, fans only where air cools; at the wall all of it over the
supplies' efficiency.
Source: catalog/nodes; the cube is the fan law (power of a fan grows with the cube of its speed).
Ignores: processors and adapters that draw more under load, pumps of a coolant loop (they stand outside the node).
"""

import numpy as np
from numpy.typing import ArrayLike

from charllm.arrays import Floats
from charllm.spec.cooling import Cooling
from charllm.spec.hardware import Node


def fan_power_w(node: Node, cooling: Cooling, flow_fraction: ArrayLike | None = None) -> Floats:
    """Return what the fans of a node draw at a flow, that of the first node where none is given."""
    flow = np.asarray(cooling.flow_of(0) if flow_fraction is None else flow_fraction, dtype=np.float64)
    return np.asarray(node.fan_w * flow**3 if cooling.kind == "air" else 0.0 * flow)


def node_power_w(
    gpu_power_w: ArrayLike, node: Node, cooling: Cooling, flow_fraction: ArrayLike | None = None
) -> Floats:
    """Return what a node draws where its cooling says that it is read; GPUs stand in the last axis."""
    beside_w = node.overhead_w + fan_power_w(node, cooling, flow_fraction)
    inside = np.asarray(gpu_power_w, dtype=np.float64).sum(axis=-1) + beside_w
    return np.asarray(inside / node.supply_fraction if cooling.read_at == "wall" else inside)
