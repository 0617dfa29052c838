"""What is not known of the paper's machines: conditions that a finding is drawn over, and maps of where it would hold.

The artifact records neither inlet nor airflow, nor which dies were weak. A `Setting` states them; a request under a
setting is the same run in other air, on other dies, under another cap or on another fabric.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from charllm.catalog.resolve import resolve_cluster
from charllm.reproduce.paper import Request
from charllm.spec.hardware import Cluster
from charllm.spec.request import merge
from charllm.sweep.axes import find_setting

USUAL_C = 25.0
"""Inlet of the paper's runs in the catalog's clusters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Conditions of a run; factors are over what the catalog says of its cluster."""

    inlet_c: float = USUAL_C
    flow: float = 1.0
    """Air that passes, times the usual."""
    preheat: float = 1.0
    """Warming of rear slots' air, times the assumed."""
    spread: float = 0.0
    """Standard deviation of leakage between dies, as a fraction."""
    cap: float = 1.0
    """Power cap, times the board's."""
    nic: float = 1.0
    """Bandwidth of adapters, times the cluster's."""
    rate: float = 1.0
    """Rate of matrix kernels, times the calibrated."""
    energy: float = 1.0
    """Energy of work, times the calibrated."""
    seed: int = 0

    @property
    def words(self) -> str:
        """Say in which points it differs from the usual, in words."""
        parts = [
            f"inlet {self.inlet_c:.0f} C",
            *([f"airflow x {self.flow:g}"] if self.flow != 1 else []),
            *([f"preheat x {self.preheat:g}"] if self.preheat != 1 else []),
            *([f"leakage of dies +-{100 * self.spread:g} %"] if self.spread else []),
            *([f"cap x {self.cap:g}"] if self.cap != 1 else []),
            *([f"network x {self.nic:g}"] if self.nic != 1 else []),
        ]
        return ", ".join(parts)

    def apply(self, request: Request) -> Request:
        """Return a run under this setting."""
        cluster = _cluster(json.dumps(request["cluster"], sort_keys=True))
        node, gpu = cluster.node, cluster.gpu
        conditions: dict[str, Any] = {}
        changes: dict[str, Any] = {}
        # What is as usual is not stated, so that the run is the very same as without a setting.
        # Thousands of different dies cannot be simulated: runs on scaled clusters keep equal ones, whatever their size.
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
        changes |= {"cooling": cooling} if cooling else {}
        changes |= {"node": nodes} if nodes else {}
        if self.nic != 1:
            changes["fabric"] = {"nic_bandwidth_bytes_per_s": self.nic * cluster.fabric.nic_bandwidth_bytes_per_s}
        changed: Request = merge(
            request, {**({"cluster": changes} if changes else {}), **({"conditions": conditions} if conditions else {})}
        )
        return changed


@lru_cache(maxsize=256)
def _cluster(text: str) -> Cluster:
    return resolve_cluster(json.loads(text))


DRAWS, SEED = 20, 16
RANGES: dict[str, tuple[float, float, str]] = {
    "inlet_c": (18.0, 35.0, "assumed: ASHRAE's recommended and allowed air, classes A1 and A2"),
    "flow": (0.75, 1.25, "assumed: fans follow temperature; their speed is not recorded"),
    "preheat": (0.0, 2.0, "derived: public traces bound it by none and twice the assumed (catalog/nodes/hgx.toml)"),
    "spread": (0.0, 0.1, "assumed: leakage of dies of one product"),
    "rate": (0.95, 1.05, "derived: held-out error of step times (docs/trust.md)"),
    "energy": (0.95, 1.05, "derived: error of power read on H200 boards (docs/trust.md)"),
}
"""What an interval is drawn over: each evenly between two ends, with the reason."""
LEVEL = 0.8


@cache
def draws(count: int = DRAWS) -> tuple[Setting, ...]:
    """Return settings drawn evenly over all ranges (a Latin hypercube), the same ones every time."""
    random = np.random.default_rng(SEED)
    columns = {
        name: low + (high - low) * (random.permutation(count) + random.random(count)) / count
        for name, (low, high, _source) in RANGES.items()
    }
    return tuple(
        Setting(**{name: float(values[place]) for name, values in columns.items()}, seed=SEED + place)
        for place in range(count)
    )


def interval(values: Sequence[float | None]) -> list[float] | None:
    """Return the ends between which 80 % of drawn effects lie; None where fewer than two could be run."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    ends = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return [float(ends[0]), float(ends[1])]


INLETS_C, FLOWS, PREHEATS = (25.0, 35.0, 40.0, 45.0), (1.0, 0.7, 0.5), (1.0, 2.0)
WARM_C = 45.0


@cache
def air_grid() -> tuple[Setting, ...]:
    """Return all inlets with all airflows and preheats."""
    return tuple(
        Setting(inlet_c=inlet_c, flow=flow, preheat=preheat)
        for preheat in PREHEATS
        for flow in FLOWS
        for inlet_c in INLETS_C
    )


@cache
def other_settings() -> tuple[Setting, ...]:
    """Return other dies, caps and fabrics at a usual and at a warm inlet."""
    arms: list[dict[str, float]] = [
        {"spread": 0.1}, {"spread": 0.2}, {"cap": 0.7}, {"cap": 0.85}, {"nic": 8.0},
        {"spread": 0.1, "flow": 0.7}, {"spread": 0.1, "flow": 0.7, "preheat": 2.0},
    ]  # fmt: skip
    found = [Setting(inlet_c=inlet_c, **arm) for inlet_c in (USUAL_C, WARM_C) for arm in arms]  # type: ignore[arg-type]
    return tuple(found)


def map_settings() -> tuple[Setting, ...]:
    """Return every setting of the condition maps."""
    return (*air_grid(), *other_settings())
