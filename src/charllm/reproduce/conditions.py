"""Conditions that the paper does not state, as settings of a run.

The artifact records neither inlet temperature nor airflow nor which GPUs were weak. A `Setting` states them; a request
under a setting is the same run at another inlet, airflow, silicon spread, power cap or network.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from charllm.catalog.resolve import resolve_cluster
from charllm.network.constants import constants_of
from charllm.reproduce.paper import Request
from charllm.spec.hardware import Cluster
from charllm.spec.request import merge
from charllm.sweep.axes import find_setting

USUAL_C = 25.0
"""Nominal inlet: that of the catalog's clusters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Conditions of a run; factors are over what the catalog says of its cluster."""

    inlet_c: float = USUAL_C
    flow: float = 1.0
    """Airflow, times the nominal."""
    preheat: float = 1.0
    """Preheating of rear slots by upstream GPUs, times the assumed."""
    spread: float = 0.0
    """Standard deviation of leakage power between GPUs, as a fraction."""
    cap: float = 1.0
    """Power cap, times the board's."""
    nic: float = 1.0
    """Line rate of NICs, times the cluster's."""
    rate: float = 1.0
    """Rate of matrix kernels, times the calibrated."""
    energy: float = 1.0
    """Energy of kernels, times the calibrated."""
    link_share: float = 1.0
    """Share of a scale-up link's peak that large messages reach, times the calibrated."""
    nic_share: float = 1.0
    """Share of a NIC's line rate that large messages reach, times the calibrated."""
    latency: float = 1.0
    """Latency of a collective and of each of its steps, times the calibrated."""
    seed: int = 0

    @property
    def words(self) -> str:
        """Say in which points it differs from the usual, in words."""
        parts = [
            f"inlet {self.inlet_c:.0f} C",
            *([f"airflow x {self.flow:g}"] if self.flow != 1 else []),
            *([f"preheat x {self.preheat:g}"] if self.preheat != 1 else []),
            *([f"silicon spread {100 * self.spread:g} %"] if self.spread else []),
            *([f"power cap x {self.cap:g}"] if self.cap != 1 else []),
            *([f"NIC bandwidth x {self.nic:g}"] if self.nic != 1 else []),
            *([f"latency x {self.latency:g}"] if self.latency != 1 else []),
        ]
        return ", ".join(parts)

    def apply(self, request: Request) -> Request:
        """Return a run under this setting."""
        cluster = _cluster(json.dumps(request["cluster"], sort_keys=True))
        node, gpu = cluster.node, cluster.gpu
        conditions: dict[str, Any] = {}
        changes: dict[str, Any] = {}
        # What is as usual is not stated, so that the run is the very same as without a setting.
        # Thousands of different GPUs cannot be simulated: scaled clusters keep identical ones, whatever their size.
        if self.spread and find_setting(request, "cluster.nodes") is None:
            conditions |= {"silicon_spread_fraction": self.spread, "seed": self.seed}
        if self.cap != 1:
            conditions["power_cap_w"] = self.cap * gpu.power_cap_w
        cooling = {} if self.inlet_c == USUAL_C else {"inlet_c": self.inlet_c}
        cooling |= {} if self.flow == 1 else {"flow_fraction": self.flow}
        nodes: dict[str, Any] = {} if self.preheat == 1 else {"preheat_k_per_w": self.preheat * node.preheat_k_per_w}
        board: dict[str, Any] = {}
        if self.rate != 1:
            board["kernels"] = {"rate_fraction": self.rate * gpu.kernels.rate_fraction}
        if self.energy != 1:
            board["power"] = {"energy_fraction": self.energy * gpu.power.energy_fraction}
        nodes |= {"gpu": board} if board else {}
        fabric: dict[str, Any] = {}
        if self.nic != 1:
            fabric["nic_bandwidth_bytes_per_s"] = self.nic * cluster.fabric.nic_bandwidth_bytes_per_s
        usual = constants_of(cluster)
        if self.link_share != 1:
            nodes["link_fraction"] = self.link_share * usual.link_fraction
        if self.nic_share != 1:
            fabric["nic_fraction"] = self.nic_share * usual.nic_fraction
        if self.latency != 1:
            nodes |= {"collective_latency_s": self.latency * usual.latency_s, "link_hop_s": self.latency * usual.hop_s}
            fabric["nic_hop_s"] = self.latency * usual.nic_hop_s
        changes |= {"cooling": cooling} if cooling else {}
        changes |= {"node": nodes} if nodes else {}
        changes |= {"fabric": fabric} if fabric else {}
        changed: Request = merge(
            request, {**({"cluster": changes} if changes else {}), **({"conditions": conditions} if conditions else {})}
        )
        return changed


@lru_cache(maxsize=256)
def _cluster(text: str) -> Cluster:
    return resolve_cluster(json.loads(text))
