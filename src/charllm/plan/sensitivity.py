"""Whether the best strategy stays the best when what it was judged under changes: the first few are simulated again.

Assumed: the sizes of the changes (half, twice, 10 %, 20 %, 10 K, 5 %), which are no spreads that were measured.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from charllm.errors import SpecError
from charllm.gpu.physics import power_cap_w
from charllm.plan.candidate import Candidate
from charllm.plan.metrics import USUAL, Economics, derive_metrics
from charllm.plan.objectives import Objective
from charllm.result.metric import metric_value
from charllm.result.metrics import Metrics
from charllm.simulate.predict import predict
from charllm.simulate.work import LONGEST_S
from charllm.spec.hardware import Cluster
from charllm.spec.run import RunSpec, check_run

TOP = 3
BUDGET_S = 20.0
"""Seconds after which no further change is begun."""


class Sensitivity(NamedTuple):
    """What one change does to the order of the first strategies."""

    change: str
    values: tuple[float | None, ...]
    """Metric of the objective, of each strategy; None where it is no run or takes too long to simulate."""
    winner: int | None
    """Place of the best one under the change; None where the change was not simulated."""
    lead_fraction: float | None
    """By how much the first strategy is better than the best of the others; negative where it is not the best."""
    reason: str = ""
    """Why it was not simulated."""

    @property
    def stays(self) -> bool | None:
        """Whether the first strategy is still the best."""
        return None if self.winner is None else self.winner == 0


Changed = Callable[[RunSpec], RunSpec]


def _with_cluster(run: RunSpec, **changes: Any) -> RunSpec:
    return replace(run, cluster=replace(run.cluster, **changes))


def _warmer(run: RunSpec, more_k: float) -> RunSpec:
    inlet_c = run.cluster.cooling.inlet_c
    warmer = tuple(each + more_k for each in inlet_c) if isinstance(inlet_c, tuple) else inlet_c + more_k
    return _with_cluster(run, cooling=replace(run.cluster.cooling, inlet_c=warmer))


def _nics(run: RunSpec, factor: float) -> RunSpec:
    fabric = run.cluster.fabric
    rate = factor * fabric.nic_bandwidth_bytes_per_s
    return _with_cluster(run, fabric=replace(fabric, nic_bandwidth_bytes_per_s=rate))


def _preheat(run: RunSpec, factor: float) -> RunSpec:
    node = run.cluster.node
    return _with_cluster(run, node=replace(node, preheat_k_per_w=factor * node.preheat_k_per_w))


def _gemm_rate(run: RunSpec, factor: float) -> RunSpec:
    gpu = run.cluster.gpu
    slower = replace(gpu, kernels=replace(gpu.kernels, rate_fraction=factor * gpu.kernels.rate_fraction))
    return _with_cluster(run, node=replace(run.cluster.node, gpu=slower))


def _silicon(run: RunSpec, spread: float) -> RunSpec:
    return replace(run, conditions=replace(run.conditions, silicon_spread_fraction=spread))


def _capped(run: RunSpec, factor: float) -> RunSpec:
    cap_w = factor * power_cap_w(run.cluster.gpu, run.conditions)
    lower = replace(run, conditions=replace(run.conditions, power_cap_w=cap_w))
    check_run(lower)
    return lower


def list_changes(cluster: Cluster) -> dict[str, Changed]:
    """Return the changes that are tried on a cluster, by name; rear GPUs are warmed only where there are such."""
    changes: dict[str, Changed] = {}
    if cluster.nodes > 1:
        changes["NICs half as fast"] = lambda run: _nics(run, 0.5)
        changes["NICs twice as fast"] = lambda run: _nics(run, 2.0)
    changes |= {
        "GEMMs and attention 10 % slower": lambda run: _gemm_rate(run, 0.9),
        "power limit 20 % lower": lambda run: _capped(run, 0.8),
        "inlet 10 K warmer": lambda run: _warmer(run, 10.0),
    }
    if cluster.node.preheat_k_per_w and not cluster.mixed:
        changes["no preheating of rear GPUs"] = lambda run: _preheat(run, 0.0)
        changes["preheating twice the assumed"] = lambda run: _preheat(run, 2.0)
    changes["dies that differ by 5 %"] = lambda run: _silicon(run, 0.05)
    return changes


def sensitivity(
    best: Sequence[Candidate],
    objective: Objective,
    economics: Economics = USUAL,
    *,
    top: int = TOP,
    budget_s: float = BUDGET_S,
    longest_s: float = LONGEST_S,
) -> list[Sensitivity]:
    """Simulate the first strategies under each change, and tell which is the best then.

    After `budget_s` seconds no further change is begun; those are listed with the reason.
    """
    if len(best) < 2:
        return []
    begun_s = time.monotonic()
    found = []
    for name, change in list_changes(best[0].run.cluster).items():
        spent_s = time.monotonic() - begun_s
        if spent_s > budget_s:
            found.append(Sensitivity(name, (), None, None, f"not simulated: {budget_s:g} s were spent on others"))
            continue
        simulated = [_simulate(one.run, change, economics, longest_s) for one in best[:top]]
        found.append(_judge(name, simulated, objective))
    return found


def _simulate(run: RunSpec, change: Changed, economics: Economics, longest_s: float) -> Metrics:
    """Return the metrics of a changed run; none where it is no run, or takes too long to simulate."""
    try:
        changed = change(run)
        return derive_metrics(
            changed, predict(changed, ignore_memory=True, longest_s=longest_s).result.metrics, economics
        )
    except SpecError:
        return Metrics()


def _judge(name: str, simulated: Sequence[Metrics], objective: Objective) -> Sensitivity:
    values = tuple(metric_value(metrics, objective.metric) for metrics in simulated)
    order = sorted(range(len(values)), key=lambda place: objective.key(simulated[place]))
    if values[0] is None or values[order[1]] is None:
        return Sensitivity(name, values, None, None, "not simulated: invalid, or it takes too long")
    rival = order[0] if order[0] != 0 else order[1]
    return Sensitivity(name, values, order[0], objective.gain_fraction(simulated[0], simulated[rival]))
