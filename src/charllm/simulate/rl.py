"""A step of reinforcement learning: rollouts, log-probabilities, rewards, updates, and weights back to the engine.

Equation: colocated, t = rollout + reward + log-probabilities + updates + transfer. On GPUs of their own, on-policy
phases still follow each other while the other GPUs wait; one step off, t = max(rollout, training) + transfer.
Transfer: trainers gather or broadcast whole tensors, of which an engine rank keeps its part: all weights in 16 bits
reach every GPU over its own NIC, or every node over all of its NICs if the engine has GPUs of its own; over links where
all GPUs share a domain. For a colocated engine states of training leave the GPU and return over PCIe, in memory that is
not page-locked.
Source: NeMo RL, verl, Miles for the phases; simulate/rollout.py for rollouts, simulate/cycle.py for power and heat.
Ignores: critics, packing of unequal sequences (all are trained at the mean length), engines that wake and sleep unless
given as seconds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from charllm.arrays import Floats
from charllm.errors import SpecError
from charllm.network.collectives import link_bandwidth
from charllm.network.constants import NETWORK, constants_of
from charllm.result.description import tabulate_description
from charllm.result.memory_verdict import judge_memory
from charllm.result.metrics import Metrics, fill_metrics
from charllm.result.provenance import describe_provenance, tabulate_figures
from charllm.result.result import Columns, RunResult
from charllm.simulate.cycle import Phase, PhaseRun, join_phases, shorten, simulate_cycle, tabulate_phases
from charllm.simulate.predict import Tables, gpu_rows
from charllm.simulate.rl_settings import RlSettings
from charllm.simulate.rollout import Lengths, rollout_phases
from charllm.simulate.signals import (
    node_rows,
    power_metrics,
    swing_metrics,
    tabulate_cluster,
    tabulate_power_changes,
    tabulate_signals,
)
from charllm.simulate.steady import proceed
from charllm.spec.run import RunSpec
from charllm.units import format_percent
from charllm.workload.parameters import count_active_parameters, count_parameters
from charllm.workload.step import build_step
from charllm.workload.table import tabulate_memory
from charllm.workload.update import PAGED_FRACTION

WEIGHT_BYTES, REFERENCE_COPIES = 2.0, 3
"""Of a weight that is sent; and how often weights pass PCIe for log-probabilities of a reference model, which waits on
the host: those of the policy out, those of the reference in, those of the policy back (published: NeMo RL)."""
ROLLOUT = ("prefill", "decode", "stragglers")
TRAINING = ("reward and overhead", "reward model", "log-probabilities", "reference weights", "reference", "update")
"""Phases of the engine, and of training; the rest is waiting and transfer."""


@dataclass(frozen=True, slots=True)
class RlStep:
    """A step as it is described: what the engine runs, and what training runs."""

    settings: RlSettings
    train: RunSpec
    """One update."""
    score: RunSpec
    """Forward passes over all samples, for log-probabilities."""
    rollout: RunSpec
    """The engine on its GPUs, generating answers of the mean length."""
    reward: RunSpec | None = None
    """A forward pass of the reward model over all samples."""

    @property
    def split(self) -> bool:
        """Whether the engine has GPUs of its own."""
        return self.settings.rollout_gpus > 0

    @property
    def updates(self) -> int:
        """Updates of a step."""
        return max(1, self.settings.samples // self.train.training.global_batch_size)

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.train.cluster.gpus + (self.rollout.cluster.gpus if self.split else 0)


def predict_rl(step: RlStep, before_round: Callable[[], None] = proceed) -> RunResult:
    """Predict seconds, energy, power and temperature of every phase and of the step."""
    asked = step.settings
    lengths = Lengths(
        asked.response_length, asked.length_spread_fraction, asked.longest_response, asked.endless_fraction
    )
    rollout = rollout_phases(step.rollout, lengths, asked.samples, shared=not step.split)
    verdict = judge_memory(build_step(step.train))
    if not rollout or not verdict.fits:
        what = "an update" if rollout else "one sequence beside the weights of the engine"
        raise SpecError(
            "cluster", step.train.cluster.name, f"GPUs with room for {what}: more of them, or more tp or pp"
        )
    if step.reward and not judge_memory(build_step(step.reward)).fits:
        raise SpecError("--reward-model", step.reward.model.name, "a model that fits with the tp of training")
    training = _training_phases(step)
    transfer_s = transfer_seconds(step)
    transfer = Phase("weight transfer", None, rest_s=transfer_s)
    if not step.split:
        cycles = [simulate_cycle([*rollout, *training, transfer], before_round)]
    else:
        cycles = _simulate_split(step, [*rollout], training, transfer, before_round)
    return _result(step, cycles, lengths)


def _training_phases(step: RlStep) -> list[Phase]:
    asked, tokens = step.settings, float(step.settings.samples * step.train.training.seq_length)
    waits = asked.reward_s + asked.overhead_s
    phases = [Phase("reward and overhead", None, rest_s=waits)] if waits else []
    if step.reward:
        phases.append(Phase("reward model", build_step(step.reward), tokens=tokens))
    scored = build_step(step.score)
    phases.append(Phase("log-probabilities", scored, tokens=tokens))
    if not asked.no_reference:
        copy_s = _copy_seconds(step.train, REFERENCE_COPIES, weights_alone=True)
        phases += [Phase("reference weights", None, rest_s=copy_s), Phase("reference", scored, tokens=tokens)]
    return [*phases, Phase("update", build_step(step.train), step.updates, tokens=tokens)]


def _simulate_split(
    step: RlStep, rollout: list[Phase], training: list[Phase], transfer: Phase, before_round: Callable[[], None]
) -> list[list[PhaseRun]]:
    """Simulate both groups of GPUs, each waiting for the other."""
    alone = [simulate_cycle(phases, before_round) for phases in (rollout, training)]
    rollout_s, training_s = (sum(one.seconds for one in runs) for runs in alone)
    if step.settings.policy == "one-step-off":
        longer_s = max(rollout_s, training_s)
        waits = longer_s - rollout_s, longer_s - training_s
        orders = [*rollout, _wait(waits[0]), transfer], [*training, _wait(waits[1]), transfer]
    else:
        orders = [*rollout, _wait(training_s), transfer], [_wait(rollout_s), *training, transfer]
    return [simulate_cycle([phase for phase in order if phase.step or phase.rest_s], before_round) for order in orders]


def _wait(seconds: float) -> Phase:
    return Phase("waiting", None, rest_s=max(0.0, seconds))


def transfer_seconds(step: RlStep) -> float:
    """Return how long weights take from training to the engine, and states to the host and back (module docstring)."""
    run, train = step.rollout, step.train
    cluster, constants = run.cluster, constants_of(run.cluster, NETWORK)
    size_bytes = WEIGHT_BYTES * count_parameters(run.model, with_mtp=False)
    nodes = train.cluster.nodes + (cluster.nodes if step.split else 0)
    bandwidth = constants.link_fraction * link_bandwidth(cluster)
    if nodes > cluster.domain_nodes:
        # A broadcast to a node comes over all of its NICs; ranks that gather from their own groups use one each.
        receivers = 1 if step.split else cluster.node.gpus
        nics = constants.nic_fraction * cluster.fabric.node_bandwidth_bytes_per_s / receivers
        bandwidth = min(bandwidth, nics)
    return size_bytes / bandwidth + (0.0 if step.split else _copy_seconds(train, 2, weights_alone=False))


def _copy_seconds(train: RunSpec, times: int, *, weights_alone: bool) -> float:
    """Return how long states of training, or weights alone, take from GPU to host or back so many times."""
    worst = judge_memory(build_step(train)).worst
    states = worst.weights + (0.0 if weights_alone else worst.gradients + worst.optimizer)
    return times * states / (PAGED_FRACTION * train.cluster.node.pcie_bandwidth_bytes_per_s)


def _result(step: RlStep, cycles: list[list[PhaseRun]], lengths: Lengths) -> RunResult:
    asked, run = step.settings, step.train
    joined = [join_phases(runs) for runs in cycles]
    total_s = max(one.step_time_s for _machine, one in joined)
    parts = [power_metrics(machine, one) for machine, one in joined]
    weights = [len(machine.representatives) / step.gpus for machine, _one in joined]
    cluster_w = _add_up([one.cluster_w for _machine, one in joined])
    box_s = joined[0][1].box_s
    energy_j = sum(part["energy_per_step_j"] for part in parts)
    tokens = asked.samples * (asked.prompt_length + lengths.mean)
    verdict = judge_memory(build_step(run))
    known: dict[str, Any] = {
        **_merge(parts, weights),
        **verdict.as_metrics(),
        **swing_metrics(cluster_w, box_s),
        "step_time_s": total_s,
        "tokens_per_s": tokens / total_s,
        "tokens_per_s_per_gpu": tokens / total_s / step.gpus,
        "energy_per_step_j": energy_j,
        "tokens_per_j": tokens / energy_j,
        "power_mean_w": energy_j / total_s / step.gpus,
        "parameters": count_parameters(run.model, with_mtp=False),
        "active_parameters": count_active_parameters(run.model),
    }
    whole = joined[-1][1]._replace(cluster_w=cluster_w)
    boxes = min(len(cluster_w), whole.series.shape[1])
    longest = shorten(whole._replace(cluster_w=cluster_w[:boxes], series=whole.series[:, :boxes]))
    tables: Tables = {
        "description": partial(tabulate_description, run),
        "figures": partial(tabulate_figures, run),
        "memory": partial(tabulate_memory, run, verdict.stages),
        "phases": partial(_tabulate, cycles),
        "cluster": partial(tabulate_cluster, longest),
        "power_changes": partial(tabulate_power_changes, longest),
        "signals": partial(tabulate_signals, joined[-1][0], longest),
    }
    machine, one = joined[-1]
    return RunResult(
        origin="simulated",
        spec=run.as_table(),
        metrics=Metrics(fill_metrics(known)),
        gpus=gpu_rows(run, verdict, machine, one),
        nodes=node_rows(machine, one),
        provenance=describe_provenance(run),
        warnings=list(_tell(step, cycles, total_s)),
        tables=tables,
    )


def _merge(parts: list[dict[str, Any]], weights: list[float]) -> dict[str, Any]:
    """Return metrics of both groups of GPUs: extremes of either, means over all GPUs; unknown where one is."""
    found = dict(parts[0])
    for name in found:
        values = [part[name] for part in parts]
        if isinstance(values[0], dict):
            found[name] = {
                key: float(np.average([value[key] for value in values], weights=weights)) for key in values[0]
            }
        elif None in values:
            found[name] = None
        elif isinstance(values[0], bool):
            found[name] = any(values)
        elif name.startswith("margin"):
            found[name] = min(values)
        elif any(word in name for word in ("peak", "swing", "spread")):
            found[name] = max(values)
        else:
            found[name] = float(np.average(values, weights=weights))
    return found


def _add_up(series: list[Floats]) -> Floats:
    """Add up the power of groups of GPUs; the shorter one's last box goes on."""
    length = max(len(one) for one in series)
    return np.asarray(np.sum([np.pad(one, (0, length - len(one)), mode="edge") for one in series], axis=0))


def _tabulate(cycles: list[list[PhaseRun]]) -> Columns:
    """Return the phases of all GPUs, equal neighbours together; on GPUs of their own, which ones."""
    columns: dict[str, list[Any]] = {}
    for place, runs in enumerate(cycles):
        where = "" if len(cycles) == 1 else (" (rollout GPUs)", " (training GPUs)")[place]
        for name, values in tabulate_phases(runs).items():
            named = [f"{value}{where}" for value in values] if name == "phase" else values
            columns.setdefault(name, []).extend(named)
    return columns


def phase_seconds(runs: list[PhaseRun]) -> dict[str, float]:
    """Return the seconds of each kind of phase."""
    found: dict[str, float] = {}
    for one in runs:
        found[one.phase.name] = found.get(one.phase.name, 0.0) + one.seconds
    return found


def _tell(step: RlStep, cycles: list[list[PhaseRun]], total_s: float) -> list[str]:
    """Say what waits, and what another placement would give if phases kept their GPU-seconds."""
    asked, seconds = step.settings, phase_seconds([one for runs in cycles for one in runs])
    rollout_s = sum(seconds.get(name, 0.0) for name in ROLLOUT)
    other_s = sum(seconds.get(name, 0.0) for name in TRAINING)
    stragglers_s = seconds.get("stragglers", 0.0)
    found = [
        f"rollout: lengths are assumed log-normal (mean {asked.response_length}, spread "
        f"{asked.length_spread_fraction:g}, at most {asked.longest_response}); stragglers take "
        f"{format_percent(stragglers_s / rollout_s, 0)} of it"
    ]
    if step.split:
        waiting_s = seconds.get("waiting", 0.0)
        found.append(
            f"split: rollout {rollout_s:.3g} s and training {other_s:.3g} s; GPUs of either wait {waiting_s:.3g} s"
        )
    if asked.policy == "on-policy":
        gpu_s = rollout_s * step.rollout.cluster.gpus + other_s * step.train.cluster.gpus
        found.append(
            f"overlap: without stragglers {total_s - stragglers_s:.3g} s; one step off, with GPUs split so that "
            f"neither group waits, about {gpu_s / step.gpus:.3g} s if phases keep their GPU-seconds"
        )
    return found
