"""The timeline of a step as it was simulated: when each pass of each GPU began and ended, and at which clock.

Breakdown, critical path, traces and emulation read these times. Ops inside a pass are laid out on demand
(timeline/stage_plan.py).
Equation: exposed communication, sends, update, host and waits of a GPU are read off; what is left of the step is
compute and recomputation, in the proportion of their prices. The schedule's own bubble is (p - 1)(f + b) / v (Narayanan
2021).
Ignores: that slower clocks leave communication more compute to hide under.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.simulate import step_loop
from charllm.simulate.gpu_kinds import PricedKind
from charllm.simulate.steady import Machine, SimulatedStep
from charllm.timeline.costs import cost_step
from charllm.timeline.engine import Events
from charllm.timeline.labels import LABELS
from charllm.timeline.step_time import StageEnding, StepTime, time_step
from charllm.workload.step import Step

START, END, CLOCK, WAIT = range(4)
"""Columns of a recorded pass: seconds of the step, mean hertz, and seconds it waited for members of its groups."""


def mean_clock_hz(machine: Machine, simulated_step: SimulatedStep, node_kind: int | None = None) -> float:
    """Return the mean clock of a step over all GPUs, or over those of a kind of node."""
    weights = np.tile(machine.fold.weights, machine.run.parallelism.pp)
    chosen = weights if node_kind is None else weights * (machine.node_kind == node_kind)
    return float(np.average(simulated_step.sums[:, step_loop.CLOCK_S], weights=chosen) / simulated_step.step_time_s)


def own_clock_hz(simulated_step: SimulatedStep, gpu: int) -> float:
    """Return the mean clock of one simulated GPU."""
    return float(simulated_step.sums[gpu, step_loop.CLOCK_S] / simulated_step.step_time_s)


def price_as_simulated(step: Step, machine: Machine, simulated_step: SimulatedStep) -> StepTime:
    """Price a step at the mean clock it was simulated at; of a mixed cluster, on the kind of node that is slowest."""
    # Where a fault touches all nodes of a kind, none of its GPUs is usual, and one of the others stands for it.
    chosen = {one.kind.node: one for one in sorted(machine.priced, key=lambda one: one.kind.usual)}
    found = [
        price_at(step, chosen[node], mean_clock_hz(machine, simulated_step, node))
        for node in sorted(set(machine.node_kind.tolist()))
    ]
    return max(found, key=lambda timed: timed.step_time_s)


def price_at(step: Step, kind: PricedKind, clock_hz: float) -> StepTime:
    """Price a step on a kind of GPU at a clock."""
    base = kind.times[0].costs
    own = replace(step, run=base.run)
    costs = cost_step(own, base.kernels, clock_hz, base.network, base.timeline)
    costs = costs._replace(collectives=base.collectives, slow_links=base.slow_links)
    return time_step(own, costs, kind.times[0].exchanges)


def close_times(machine: Machine, priced: StepTime, simulated_step: SimulatedStep) -> StepTime:
    """Return the step as it was simulated: its passes on one GPU of each stage, and the labels of every GPU."""
    degrees, weights = machine.run.parallelism, machine.fold.weights
    sums = simulated_step.sums.reshape(degrees.pp, len(weights), step_loop.SUMS)
    means = np.average(sums, axis=1, weights=weights)
    endings = [_ending(machine, priced, simulated_step, *one) for one in enumerate(means)]
    stages = [
        _labels(machine, priced, simulated_step, *one) for one in zip(range(degrees.pp), means, endings, strict=True)
    ]
    events = stage_events(machine, priced, simulated_step, position=0)
    return priced._replace(step_time_s=simulated_step.step_time_s, stages=stages, endings=endings, events=events)


def stage_events(machine: Machine, priced: StepTime, simulated_step: SimulatedStep, position: int) -> Events:
    """Return when the passes of every stage ran on the GPUs at one position of it."""
    pp, turns = machine.run.parallelism.pp, machine.turns
    moved_s, sent_s = machine.moved_at(position), machine.sent_at(position)
    columns: list[list[Floats]] = [[], [], [], [], []]
    for stage in range(pp):
        mine = turns[:, 0] == stage
        passes = simulated_step.passes[mine, position]
        # A pass that needs nothing finds its input at the start.
        source = np.append(simulated_step.passes[:, position, END], 0.0)[turns[mine, 2]]
        for column, values in zip(columns, (passes[:, START], passes[:, END], source + moved_s[mine],
                                            moved_s[mine], sent_s[mine]), strict=True):  # fmt: skip
            column.append(values)
    start, end, arrival, transfer, held = (np.array(column) for column in columns)
    free = end[:, -1] + held[:, -1]
    return priced.events._replace(
        start_s=start, end_s=end, arrival_s=arrival, transfer_s=transfer, held_s=held, free_s=free
    )


def _ending(machine: Machine, priced: StepTime, simulated_step: SimulatedStep, stage: int, sums: Floats) -> StageEnding:
    """Return how a stage's mean GPU ended its step."""
    ending, clock_hz = priced.endings[stage], float(sums[step_loop.CLOCK_S]) / simulated_step.step_time_s
    exchanged_s = float(sums[step_loop.EXCHANGED_S])
    weights_s = exchanged_s * ending.weights_s / (ending.gradients_s + ending.weights_s or 1.0)
    host_s = float(sums[step_loop.UPDATE_HOST_S])
    return StageEnding(exchanged_s - weights_s, _update_s(machine, stage, clock_hz), host_s, weights_s)


def _labels(
    machine: Machine, priced: StepTime, simulated_step: SimulatedStep, stage: int, sums: Floats, ending: StageEnding
) -> dict[str, float]:
    """Charge every second of a stage's mean GPU to one label.

    Communication lasts as long as it was priced at any clock. Waits for input are the schedule's, up to what equal
    stages would wait; what is left of them, and waits within groups, is waiting for slower GPUs.
    """
    microbatches = machine.run.microbatches
    labels = dict.fromkeys(LABELS, 0.0)
    for label in ("tp_exposed", "dp_exposed", "ep_exposed", "cp_exposed"):
        labels[label] = microbatches * _exposed_s(machine, priced, stage, label)
    labels["optimizer"] = ending.update_s
    labels["dp_exposed"] += ending.gradients_s + ending.weights_s
    labels["overhead"] = ending.host_s + float(sums[step_loop.HOST_S])
    mine = machine.turns[:, 0] == stage
    sent_s = _mean(machine, np.sum(machine.sent_s[mine], axis=0))
    moving_s = _moving_s(machine, simulated_step, stage)
    labels["pp_exposed"] = sent_s + moving_s
    waited_s = max(0.0, float(sums[step_loop.INPUT_WAIT]) - moving_s)
    labels["bubble"] = min(waited_s, _schedule_wait_s(machine, priced, simulated_step))
    behind_s = float(sums[step_loop.GROUP_WAIT] + sums[step_loop.STRAGGLER_S])
    labels["straggler_wait"] = waited_s - labels["bubble"] + behind_s
    computing_s = max(0.0, simulated_step.step_time_s - sum(labels.values()))
    shares = {name: priced.microbatch_s(stage, name) for name in ("compute", "recompute")}
    total = sum(shares.values()) or 1.0
    return {**labels, **{name: computing_s * share / total for name, share in shares.items()}}


def _exposed_s(machine: Machine, priced: StepTime, stage: int, label: str) -> float:
    """Return the seconds of one label in the passes of a microbatch, mean over the GPUs of a stage."""
    usual_s = priced.microbatch_s(stage, label)
    if all(one.kind.usual for one in machine.priced):
        return usual_s
    clock_hz = priced.costs.clock_hz
    each = [usual_s if one.kind.usual else one.near(clock_hz).microbatch_s(stage, label) for one in machine.priced]
    return _mean(machine, np.array(each)[_stage_kinds(machine, stage)])


def _stage_kinds(machine: Machine, stage: int) -> Ints:
    """Return the kind of each simulated GPU of a stage."""
    return np.asarray(machine.kind.reshape(machine.run.parallelism.pp, -1)[stage])


def _update_s(machine: Machine, stage: int, clock_hz: float) -> float:
    """Return the seconds of the update that ends a step at a clock, mean over the GPUs of a stage."""
    each = np.array([machine.update_s(kind, clock_hz)[stage] for kind in range(len(machine.priced))])
    return _mean(machine, each[_stage_kinds(machine, stage)])


def _mean(machine: Machine, each: Floats) -> float:
    """Return a mean over the GPUs of a stage; one number holds for all."""
    return float(each.item()) if each.size == 1 else float(np.average(each, weights=machine.fold.weights))


def _moving_s(machine: Machine, simulated_step: SimulatedStep, stage: int) -> float:
    """Return how long a stage waits for inputs that are on their way, mean over its GPUs."""
    mine = machine.turns[:, 0] == stage
    passes = simulated_step.passes[mine]
    kept = passes.shape[1]
    sent_s, moved_s = machine.sent_s[mine][:, :kept], machine.moved_s[mine][:, :kept]
    free_s = np.concatenate([np.zeros((1, passes.shape[1])), (passes[:, :, END] + sent_s)[:-1]])
    waited_s = np.maximum(0.0, passes[:, :, START] - free_s)
    weights = machine.fold.weights[: passes.shape[1]]
    return float(np.average(np.sum(np.minimum(waited_s, moved_s), axis=0), weights=weights))


def _schedule_wait_s(machine: Machine, priced: StepTime, simulated_step: SimulatedStep) -> float:
    """Return what stages that take equally long would wait: (p - 1)(f + b) / v, less where weights come later."""
    degrees = machine.run.parallelism
    took_s = np.mean(simulated_step.passes[:, :, END] - simulated_step.passes[:, :, START]) * len(machine.turns)
    later = sum(one.weight.seconds for one in priced.passes)
    whole = sum(part.seconds for one in priced.passes for part in one) or 1.0
    per_stage = took_s / machine.run.microbatches / degrees.pp
    return max(0.0, float((degrees.pp - 1) * per_stage * (1 - 2 * later / whole) / degrees.vpp))


class PathPart(NamedTuple):
    """What one node and stage contribute to the path that a step waits for."""

    stage: int
    node: int
    seconds: float


class Path(NamedTuple):
    """The chain of passes that a step waits for, from its last one back to its first."""

    parts: list[PathPart]
    """Largest first."""
    passes: int
    crossings: int
    """How often it goes from one stage to another."""
    transfer_s: float
    """Seconds between passes: transfers and sends."""


def critical_path(machine: Machine, simulated_step: SimulatedStep) -> Path:
    """Follow a step's passes from the last one back, each to what it waited for.

    A pass begins when its own GPU is free, or when its input is there; inside it, members of a group wait for the last
    of them, so that the one that waited least paces the pass. Shortening what is not on the path does not shorten the
    step.
    Ignores: the end of the step (exchange, update), which follows the path on every GPU.
    """
    passes, turns = simulated_step.passes, machine.turns
    sent_s, moved_s, columns = machine.sent_s, machine.moved_s, machine.sent_s.shape[1]
    stages, sources, before = (column.tolist() for column in (turns[:, 0], turns[:, 2], _turns_before(machine)))
    turn = int(np.argmax(passes[:, :, END].max(axis=1)))
    at = _pacer(passes, turn, int(np.argmax(passes[turn, :, END])))
    seconds: dict[tuple[int, int], float] = {}
    count, crossings, transfer_s = 0, 0, 0.0
    nodes = (machine.gpus.reshape(machine.run.parallelism.pp, -1) // machine.run.cluster.node.gpus).tolist()
    while turn >= 0:
        stage, own, source = stages[turn], before[turn], sources[turn]
        start_s, end_s = passes[turn, at, :CLOCK].tolist()
        key = (stage, nodes[stage][at])
        seconds[key] = seconds.get(key, 0.0) + (end_s - start_s)
        count += 1
        freed_s = passes.item(own, at, END) if own >= 0 else 0.0
        free_s = freed_s + sent_s.item(own, at % columns) if own >= 0 else 0.0
        sent_at_s = passes.item(source, at, END) if source >= 0 else 0.0
        ready_s = sent_at_s + moved_s.item(turn, at % columns) if source >= 0 else 0.0
        following, ended_s = (source, sent_at_s) if source >= 0 and ready_s > free_s else (own, freed_s)
        if following >= 0:
            transfer_s += max(0.0, start_s - ended_s)
            crossings += stages[following] != stage
            at = _pacer(passes, following, at)
        turn = following
    parts = [PathPart(stage, node, spent) for (stage, node), spent in seconds.items()]
    return Path(sorted(parts, key=lambda part: -part.seconds), count, crossings, transfer_s)


def _pacer(passes: Floats, turn: int, at: int) -> int:
    """Return the GPU that others of its stage waited for in a pass: this one, unless it waited for another."""
    start_s, end_s, _clock_hz, wait_s = passes[turn, at].tolist()
    if wait_s <= 1e-3 * (end_s - start_s):
        return at
    # Those that end together waited for each other.
    waits = passes[turn, :, WAIT]
    together = np.abs(passes[turn, :, END] - end_s) < 1e-3 * max(1e-9, end_s)
    return int(np.argmin(np.where(together, waits, np.inf)))


def _turns_before(machine: Machine) -> Ints:
    """Return for each turn the one before it on the same stage, or -1."""
    found = np.full(len(machine.turns), -1, dtype=np.int64)
    for stage in range(machine.run.parallelism.pp):
        own = np.flatnonzero(machine.turns[:, 0] == stage)
        found[own[1:]] = own[:-1]
    return found
