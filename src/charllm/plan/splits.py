"""How to split the GPUs of a reinforcement-learning step: which generate, which train, and how an engine is cut.

Every tensor parallelism of the engine that fits a node is tried with all GPUs in turn; the fastest one then with each
split of the nodes (of many nodes with eighths, and those around the best of them), one step off.
"""

from dataclasses import replace
from typing import NamedTuple

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.result.result import RunResult
from charllm.simulate.rl import predict_rl
from charllm.simulate.rl_settings import RlSettings
from charllm.simulate.rl_step import describe_rl
from charllm.spec.hardware import Cluster
from charllm.spec.request import Table

FEW_NODES = 9
"""Nodes up to which every split is tried."""
IMPOSSIBLE = ("cluster", "parallelism", "parallelism.tp", "training.global_batch_size", "--reward-model")
"""Fields whose refusal means that a split does not fit, not that the request is wrong."""


class Split(NamedTuple):
    """A split of the GPUs that was predicted."""

    settings: RlSettings
    result: RunResult
    gpus: int

    @property
    def name(self) -> str:
        """Which GPUs do what."""
        asked = self.settings
        where = f"{asked.rollout_gpus} generate, {self.gpus - asked.rollout_gpus} train" if asked.rollout_gpus else ""
        return f"{where or 'all GPUs in turn'}, engine tp {asked.rollout_tp}"

    @property
    def flags(self) -> str:
        """The flags that ask for it."""
        asked = self.settings
        apart = f" --rollout-gpus {asked.rollout_gpus} --policy {asked.policy}" if asked.rollout_gpus else ""
        return f"--rollout-tp {asked.rollout_tp}{apart}"

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return float(self.result.metrics["step_time_s"])


def compare_splits(request: Table, settings: RlSettings) -> list[Split]:
    """Predict a step with all GPUs in turn and with splits of them; the fastest first."""
    cluster = resolve_run(request).cluster
    in_turn = replace(settings, rollout_gpus=0, policy="on-policy", splits=False, out=None, report=None)
    degrees = [settings.rollout_tp] if settings.rollout_tp > 1 else _powers_of_two(cluster.node.gpus)
    found = [one for tp in degrees if (one := _predict(request, replace(in_turn, rollout_tp=tp), cluster))]
    if not found:
        raise SpecError("cluster", cluster.name, "GPUs with room for the engine and an update: more of them")
    best = min(found, key=lambda one: one.step_s).settings
    tried: dict[int, Split] = {}
    for nodes in _coarse(cluster.nodes):
        _try(request, best, cluster, nodes, tried)
    if cluster.nodes > FEW_NODES and tried:
        near = min(tried, key=lambda nodes: tried[nodes].step_s)
        step = max(1, cluster.nodes // 32)
        for nodes in (near - 2 * step, near - step, near + step, near + 2 * step):
            _try(request, best, cluster, nodes, tried)
    return sorted([*found, *tried.values()], key=lambda one: one.step_s)


def _powers_of_two(most: int) -> list[int]:
    return [2**place for place in range(most.bit_length()) if 2**place <= most]


def _coarse(nodes: int) -> list[int]:
    if nodes <= FEW_NODES:
        return list(range(1, nodes))
    return sorted({round(eighths * nodes / 8) for eighths in range(1, 8)})


def _try(request: Table, best: RlSettings, cluster: Cluster, nodes: int, tried: dict[int, Split]) -> None:
    if not 0 < nodes < cluster.nodes or nodes in tried:
        return
    asked = replace(best, rollout_gpus=nodes * cluster.node.gpus, policy="one-step-off")
    found = _predict(request, asked, cluster)
    if found:
        tried[nodes] = found


def _predict(request: Table, settings: RlSettings, cluster: Cluster) -> Split | None:
    """Return a split's prediction; None where it is not possible."""
    try:
        return Split(settings, predict_rl(describe_rl(request, settings)), cluster.gpus)
    except SpecError as error:
        if error.field not in IMPOSSIBLE:
            raise
        return None
