"""The whole examination of a run: what was observed, what is weak, its cost, what to do, and what cannot be told."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from charllm.analysis.doctor.cost import Cost, price
from charllm.analysis.doctor.diagnose import Finding, diagnose, find_unusual
from charllm.analysis.doctor.expectation import expect
from charllm.analysis.doctor.measured import known_run, observe_measured
from charllm.analysis.doctor.observation import GPU_QUANTITIES, NODE_QUANTITIES, Observation
from charllm.analysis.doctor.remedies import Remedy, propose
from charllm.analysis.doctor.simulated import observe_simulation
from charllm.report.tables import format_percent
from charllm.result.result import RunResult
from charllm.simulate.predict import predict

LONG_FRACTION = 0.05
"""Waits worth a word."""
HEALTHY = "no weak GPU, link, node or host found"
UNKNOWN = "nothing weak found in the readings; slow GPUs cannot be identified without their clocks"


@dataclass(frozen=True, slots=True)
class Examined:
    """One finding with its cost and remedies."""

    finding: Finding
    name: str
    cost: Cost
    remedies: tuple[Remedy, ...]

    def sentence(self) -> str:
        """Say what is weak, why, what it costs and what to do, in one sentence."""
        lost, low, high = map(format_percent, self.cost[:3])
        told = f"costs {lost} of the step time ({low} to {high})"
        return f"{self.name} {_why(self.finding)}; {told}; {self.remedies[0].action}"

    def as_table(self) -> dict[str, Any]:
        """Return the finding as a plain table."""
        finding, cost = self.finding, self.cost
        return {
            "name": self.name,
            "kind": finding.kind,
            "cause": finding.cause,
            "node": finding.node,
            "gpus": list(finding.gpus),
            "effect_fraction": finding.effect_fraction,
            "z": finding.z,
            "cost_fraction": cost.fraction,
            "cost_interval": [cost.low, cost.high],
            "cost_basis": cost.basis,
            "evidence": [row._asdict() for row in finding.evidence],
            "remedies": [remedy._asdict() for remedy in self.remedies],
        }


@dataclass(frozen=True, slots=True)
class Examination:
    """What doctor says of a run."""

    verdict: str
    findings: tuple[Examined, ...]
    unusual: tuple[dict[str, Any], ...]
    """Readings far from those of the peers that make nothing slow."""
    not_judged: tuple[str, ...]
    """What could not be told, and why."""
    gpus: int
    nodes: int

    def as_table(self) -> dict[str, Any]:
        """Return everything as a plain table."""
        return {
            "verdict": self.verdict,
            "gpus": self.gpus,
            "nodes": self.nodes,
            "findings": [one.as_table() for one in self.findings],
            "unusual": list(self.unusual),
            "not_judged": list(self.not_judged),
        }


def examine(result: RunResult, folder: Path | None = None, seed: int = 0) -> Examination:
    """Examine a simulated, emulated or measured run; `folder` is where its recordings lie."""
    seen = observe(result, folder, seed)
    healthy = expect(seen)
    found = []
    findings = diagnose(seen, healthy)
    for finding in findings:
        cost = price(seen, finding, healthy)
        name = seen.name(finding.gpus[0]) if finding.kind == "gpu" else seen.node_name(finding.node)
        found.append(Examined(finding, name, cost, tuple(propose(seen, finding, cost))))
    found.sort(key=lambda one: -one.cost.fraction)
    return Examination(
        verdict=_verdict(seen, found),
        findings=tuple(found),
        unusual=tuple({"name": seen.name(gpu), **row._asdict()} for gpu, row in find_unusual(seen, findings)),
        not_judged=tuple(_not_judged(seen)),
        gpus=len(seen.node),
        nodes=len(seen.node_names),
    )


def observe(result: RunResult, folder: Path | None, seed: int) -> Observation:
    """Return what a run shows; a simulated one is seen through the noise of sensors."""
    run = known_run(result) if result.origin == "simulated" else None
    if run is None:
        return observe_measured(result, folder)
    return observe_simulation(predict(run, ignore_memory=True), seed)


def _verdict(seen: Observation, found: list[Examined]) -> str:
    if len(seen.node) < 2:
        return f"{'one GPU' if len(seen.node) else 'no GPU was read'}: nothing to compare it with"
    if not found:
        return HEALTHY if "clock_hz" in seen.gpus else UNKNOWN
    more = f" ({len(found) - 1} more below)" if len(found) > 1 else ""
    return found[0].sentence() + more


def _why(finding: Finding) -> str:
    """Say how far something lies behind its peers, and why."""
    rows = {row.quantity: row for row in finding.evidence}
    effect = format_percent(finding.effect_fraction)
    if finding.kind == "host":
        return (
            f"leaves its GPUs without kernels {effect} more of the time than other nodes: host, it launches too slowly"
        )
    if finding.kind == "link":
        left = format_percent(1 - finding.effect_fraction)
        return f"sends and receives at {left} of the usual bandwidth: network adapters"
    what = "clocks" if finding.kind == "gpu" else "has GPUs that clock"
    slower = f"{what} {effect} lower than its peers: {finding.cause}"
    if finding.cause in ("thermal", "cooling") and "temperature_c" in rows:
        row = rows["temperature_c"]
        return f"{slower}, {row.value:.0f} C beside {row.peers:.0f} C"
    if finding.cause == "power limit" and "power_limit_w" in rows:
        row = rows["power_limit_w"]
        return f"{slower}, {row.value:.0f} W beside {row.peers:.0f} W"
    if finding.cause == "silicon" and "power_w" in rows:
        row = rows["power_w"]
        return f"{slower}, it draws {row.value:.0f} W beside {row.peers:.0f} W"
    return slower


def _not_judged(seen: Observation) -> list[str]:
    """Say what cannot be told of this run, and which reading or knowledge it would take."""
    if len(seen.node) < 2:
        return ["everything: one GPU has no peers"]
    found, nodes = [], len(seen.node_names)
    if "clock_hz" not in seen.gpus:
        found.append("slow and hot GPUs: no clock was read")
    elif "thermal_fraction" not in seen.gpus:
        found.append("hot GPUs: what limits the clock was not read")
    if "power_limit_w" not in seen.gpus:
        found.append("lower power limits: the power limit was not read")
    if nodes == 1:
        found.append(f"host and network adapters: one node has no other to compare it with{_idle(seen)}")
    else:
        if "utilization_fraction" not in seen.gpus:
            found.append("slow hosts: utilization was not read")
        if "nic_wait_fraction" not in seen.nodes:
            only = "; only their rates were compared" if "nic_rate_bytes_per_s" in seen.nodes else ""
            found.append(f"slow network adapters: the wait counters of the ports were not read{only}")
        elif seen.run is None:
            found.append(f"slow network adapters: who sends to whom is not known without the run's spec{_waits(seen)}")
    if seen.stage is None:
        found.append("roles: the layout is not known, so that all GPUs are compared with each other")
    if "sm_active_fraction" not in seen.gpus:
        found.append("who waits for whom: multiprocessor activity was not read; costs without a spec are bounds")
    found.append(
        "scale-up links (NVLink, xGMI): a slow one slows all members of its group alike, and link errors are not read"
    )
    missing = [name for name in (*GPU_QUANTITIES, *NODE_QUANTITIES) if name in seen.missing]
    return found + [f"{name}: {seen.missing[name]}" for name in missing]


def _idle(seen: Observation) -> str:
    """Say how long GPUs had no kernel, where that is long."""
    resident = seen.mean("utilization_fraction")
    idle = 0.0 if resident is None else 1 - float(np.nanmedian(resident))
    return f" (its GPUs have no kernel {format_percent(idle)} of the time)" if idle > LONG_FRACTION else ""


def _waits(seen: Observation) -> str:
    """Name the node whose ports wait longest, where that is long."""
    waits = seen.node_mean("nic_wait_fraction")
    if waits is None or np.nanmax(waits) < LONG_FRACTION:
        return ""
    node = int(np.nanargmax(waits))
    longest = format_percent(float(waits[node]))
    return f" (ports of {seen.node_name(node)} cannot send {longest} of the time: a node they send to may be slow)"
