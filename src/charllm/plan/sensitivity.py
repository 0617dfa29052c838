"""Whether the best strategy stays the best when what it was judged under changes: the first few are simulated again.

Assumed: the sizes of the changes (half, twice, 10 %, 20 %, 10 K, 5 %), which are no spreads that were measured.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from charllm.catalog.change import Change, nic_change, preheat_settings, warmer_settings
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.gpu.physics import power_cap_w
from charllm.plan.candidate import Candidate
from charllm.plan.metrics import USUAL, Economics, derive_metrics
from charllm.plan.objectives import Objective
from charllm.result.metric import metric_value
from charllm.result.metrics import Metrics
from charllm.simulate.predict import predict
from charllm.simulate.work import LONGEST_S
from charllm.spec.request import Table, merge
from charllm.spec.run import RunSpec

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


def list_changes(run: RunSpec) -> list[Change]:
    """List the changes that are tried on the machine of a run; rear GPUs are warmed only where there are such."""
    cluster, gpu = run.cluster, run.cluster.gpu
    found = [nic_change(run, 0.5, "half"), nic_change(run, 2.0, "twice")] if cluster.nodes > 1 else []
    slower: Table = {"kernels": {"rate_fraction": 0.9 * gpu.kernels.rate_fraction}}
    found += [
        Change("GEMMs and attention 10 % slower", {"cluster": {"node": {"gpu": slower}}}),
        Change("power limit 20 % lower", {"conditions": {"power_cap_w": 0.8 * power_cap_w(gpu, run.conditions)}}),
        Change("inlet 10 K warmer", warmer_settings(run, 10.0)),
    ]
    if cluster.node.preheat_k_per_w and not cluster.mixed:
        found.append(Change("no preheating of rear GPUs", preheat_settings(run, 0.0)))
        found.append(Change("preheating twice the assumed", preheat_settings(run, 2.0)))
    return [*found, Change("dies that differ by 5 %", {"conditions": {"silicon_spread_fraction": 0.05}})]


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
    for changes in zip(*(list_changes(one.run) for one in best[:top]), strict=True):
        name, spent_s = changes[0].asked, time.monotonic() - begun_s
        if spent_s > budget_s:
            found.append(Sensitivity(name, (), None, None, f"not simulated: {budget_s:g} s were spent on others"))
            continue
        simulated = [
            _simulate(one.run, change, economics, longest_s) for one, change in zip(best, changes, strict=False)
        ]
        found.append(_judge(name, simulated, objective))
    return found


def _simulate(run: RunSpec, change: Change, economics: Economics, longest_s: float) -> Metrics:
    """Return the metrics of a changed run; none where it is no run, or takes too long to simulate."""
    try:
        changed = resolve_run(merge(run.as_table(), change.settings))
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
