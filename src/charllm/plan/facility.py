"""Power of nodes, racks, the cluster and the hall around it, from the metrics of a run.

Equations: cluster = nodes x node; rack = nodes of a rack x node; hall = PUE x cluster at the wall, where the wall is
what the supplies take in. Peak of a node = its mean + its GPUs x (highest 25 ms mean of any GPU - mean of all GPUs);
peak of a rack = the smaller of as many such nodes and the peak of the cluster.
Source: PUE is total power of a hall over that of its IT equipment (ISO/IEC 30134-2).
Ignores: that GPUs of a node seldom peak together, so that peaks of nodes and racks are upper bounds; differences
between racks; power of switches.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from charllm.gpu.chassis import node_power_w
from charllm.spec.hardware import Cluster
from charllm.spec.run import RunSpec


def facility_metrics(run: RunSpec, metrics: Mapping[str, Any], pue: float, nodes_per_rack: int) -> dict[str, Any]:
    """Return the metrics of nodes, racks and the hall; None where the run's own are not known."""
    mean_w, step_s, energy_j = (metrics.get(name) for name in ("power_mean_w", "step_time_s", "energy_per_step_j"))
    if mean_w is None or step_s is None or energy_j is None:
        return {}
    cluster, node_w = run.cluster, mean_node_power_w(run.cluster, metrics)
    peak_w, all_w = _node_peak_w(cluster, node_w, metrics), metrics.get("cluster_power_peak_w")
    racks_nodes = min(nodes_per_rack, cluster.nodes)
    return {
        "cluster_power_mean_w": cluster.nodes * node_w,
        "node_power_peak_w": peak_w,
        "rack_power_mean_w": racks_nodes * node_w,
        "rack_power_peak_w": None if peak_w is None or all_w is None else min(racks_nodes * peak_w, all_w),
        "facility_power_mean_w": pue * wall_power_w(cluster, cluster.nodes * node_w),
        "energy_delay_product_j_s": energy_j * step_s,
    }


def mean_node_power_w(cluster: Cluster, metrics: Mapping[str, Any]) -> float:
    """Return the mean power of a node; from that of its GPUs where the fast path knows no more."""
    known: float | None = metrics.get("node_power_mean_w")
    return gpus_and_node_w(cluster, metrics["power_mean_w"]) if known is None else known


def gpus_and_node_w(cluster: Cluster, gpu_w: float) -> float:
    """Return the power of a node of the usual kind whose GPUs all draw the same."""
    return float(node_power_w(np.full(cluster.node.gpus, gpu_w), cluster.node, cluster.cooling))


def wall_power_w(cluster: Cluster, power_w: float) -> float:
    """Return what the supplies of nodes take in, of a power as the run's cooling says that it is read."""
    return power_w if cluster.cooling.read_at == "wall" else power_w / cluster.node.supply_fraction


def _node_peak_w(cluster: Cluster, node_w: float, metrics: Mapping[str, Any]) -> float | None:
    highest_w = metrics.get("power_peak_sensor_w")
    if highest_w is None:
        return None
    extra_w = float(cluster.node.gpus * (highest_w - metrics["power_mean_w"]))
    return node_w + (extra_w / cluster.node.supply_fraction if cluster.cooling.read_at == "wall" else extra_w)
