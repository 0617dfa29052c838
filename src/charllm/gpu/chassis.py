"""What a node draws beside its GPUs.

Equation: node = sum of GPU power + overhead + fans flow^3, fans only where air cools; at the wall all of it over the
supplies' efficiency.
Source: catalog/nodes; the cube is the fan law (power of a fan grows with the cube of its speed).
Ignores: processors and adapters that draw more under load, pumps of a coolant loop (they stand outside the node).
"""

import numpy as np
from numpy.typing import ArrayLike

from charllm.arrays import Floats
from charllm.spec.hardware import Cooling, Node


def fan_power_w(node: Node, cooling: Cooling) -> float:
    """Return what the fans of one node draw."""
    return node.fan_w * cooling.flow_fraction**3 if cooling.kind == "air" else 0.0


def node_power_w(gpu_power_w: ArrayLike, node: Node, cooling: Cooling) -> Floats:
    """Return what a node draws where its cooling says that it is read; GPUs stand in the last axis."""
    inside = np.asarray(gpu_power_w, dtype=np.float64).sum(axis=-1) + node.overhead_w + fan_power_w(node, cooling)
    return np.asarray(inside / node.supply_fraction if cooling.read_at == "wall" else inside)
