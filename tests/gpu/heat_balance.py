"""Where the heat of a node is at a moment: stored in its sinks, or on its way into the air."""

import numpy as np
from numpy.typing import ArrayLike

from charllm.arrays import Floats
from charllm.gpu.heat import SINK, Network, steady_state_k


def mean_state_k(
    state_k: Floats, power_w: ArrayLike, dt_s: float, net: Network, memory_bytes_per_s: ArrayLike = 0.0
) -> Floats:
    """Return the mean rises over a time of constant power that begins with this state."""
    target = steady_state_k(power_w, net, memory_bytes_per_s)
    share = -np.expm1(-dt_s / net.time_s) * net.time_s / dt_s
    return np.asarray(target + (state_k - target) * share)


def heat_to_air_w(state_k: Floats, power_w: ArrayLike, net: Network) -> Floats:
    """Return the heat each slot's sink gives to the air just now; GPUs of a package give an equal share of theirs."""
    above_air = state_k[..., SINK] - np.asarray(power_w, dtype=np.float64) @ net.air_k_per_w.T
    return np.asarray(above_air / net.resistance_k_per_w[:, SINK] / net.package_gpus)


def heat_capacity_j_per_k(net: Network) -> Floats:
    """Return the heat capacity of each slot's sink; GPUs of a package have an equal share of theirs."""
    return np.asarray(net.time_s[:, SINK] / net.resistance_k_per_w[:, SINK] / net.package_gpus)
