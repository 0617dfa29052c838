"""Condition maps: the grid of settings over which a finding is judged again."""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from charllm.reproduce.conditions import USUAL_C, Setting
from charllm.reproduce.finding import Finding

INLETS_C, FLOWS, PREHEATS = (25.0, 35.0, 40.0, 45.0), (1.0, 0.7, 0.5), (1.0, 2.0)
WARM_C = 45.0
NICS, LATENCIES = (0.25, 1.0, 2.0, 4.0, 8.0), (1.0, 4.0)


class ConditionMap(NamedTuple):
    """Rows and columns of settings, by their labels, and further settings outside the grid."""

    row_title: str
    column_title: str
    grid: Mapping[str, Mapping[str, Setting]]
    """Row: column: setting."""
    others: tuple[Setting, ...]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Every setting of the map, once."""
        return (*(setting for row in self.grid.values() for setting in row.values()), *self.others)


def map_of(finding: Finding) -> ConditionMap:
    """Return the map on which a finding is judged: cooling for thermal findings, the network for all others."""
    return cooling_map() if finding.claim.is_thermal else network_map()


@cache
def cooling_map() -> ConditionMap:
    """Return inlet by airflow and preheat; other silicon, caps and NICs at the nominal and at a warm inlet."""
    grid = {
        f"airflow x {flow:g}, preheat x {preheat:g}": {
            f"{inlet_c:.0f} C": Setting(inlet_c=inlet_c, flow=flow, preheat=preheat) for inlet_c in INLETS_C
        }
        for flow in FLOWS
        for preheat in PREHEATS
    }
    arms: list[dict[str, float]] = [
        {"spread": 0.1}, {"spread": 0.2}, {"cap": 0.7}, {"cap": 0.85}, {"nic": 8.0},
        {"spread": 0.1, "flow": 0.7}, {"spread": 0.1, "flow": 0.7, "preheat": 2.0},
    ]  # fmt: skip
    others = [Setting(inlet_c=inlet_c, **arm) for inlet_c in (USUAL_C, WARM_C) for arm in arms]  # type: ignore[arg-type]
    return ConditionMap("airflow and preheat", "inlet", grid, tuple(others))


@cache
def network_map() -> ConditionMap:
    """Return NIC bandwidth by message latency; another cap, and a warm inlet with weak airflow."""
    grid = {
        f"latency x {latency:g}": {f"x {nic:g}": Setting(nic=nic, latency=latency) for nic in NICS}
        for latency in LATENCIES
    }
    others = (Setting(cap=0.7), Setting(inlet_c=WARM_C, flow=0.7, preheat=2.0))
    return ConditionMap("message latency", "NIC bandwidth", grid, others)
