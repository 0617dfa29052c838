"""A whole step in time: passes on a schedule, gradient and weight exchange, update; and where each second went.

Equation: step = (latest end of passes and gradient exchange over stages + longest (update + wait for the host + weight
exchange)) (1 + straggler fraction x slowest of n), with passes as timeline/engine.py has them. Of an exchange of g
seconds that overlaps with compute, max(its last bucket, g - the compute beside it) stays exposed.
Source: timeline/passes.py, timeline/engine.py, workload/sync.py; timeline/arrival.py for stragglers.
Ignores: checkpoints, evaluation and data loading between steps; jitter that differs from step to step.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charllm.layout.grid import ENDS
from charllm.layout.hops import stage_hops
from charllm.network.collectives import collective_seconds, send_seconds
from charllm.network.constants import NetworkConstants
from charllm.spec.parallelism import OVERLAPS
from charllm.spec.run import RunSpec
from charllm.spec.schedules import SCHEDULES
from charllm.timeline.arrival import straggling_fraction
from charllm.timeline.costs import Costs
from charllm.timeline.engine import Events, Flows, simulate_schedule
from charllm.timeline.labels import LABELS
from charllm.timeline.nic_sharing import held_up, hops_beside_gradients, nic_seconds
from charllm.timeline.passes import ChunkPasses, chunk_passes, hidden_axes, launch_seconds
from charllm.timeline.schedules import BACKWARD, WEIGHT, order_arrays
from charllm.workload.op import Op
from charllm.workload.step import Step
from charllm.workload.sync import (
    WEIGHT_EXCHANGES,
    cut_buckets,
    gathers_once,
    layer_gather,
    layer_reduce,
    step_sync,
)
from charllm.workload.update import host_update_s, update_launches


class StepTime(NamedTuple):
    """When a step ends, and what each stage did until then."""

    step_time_s: float
    stages: list[dict[str, float]]
    """Label: seconds of each stage; they add up to step_time_s."""
    hidden_s: dict[str, float]
    """Axis: communication under compute, mean over stages."""
    events: Events
    passes: list[ChunkPasses]
    op_events: int
    """Ops and collectives of one layer on one GPU that the step consists of, all GPUs."""
    endings: "list[StageEnding]"
    """What follows the last pass of each stage."""
    exchanges: "Sequence[Exchange]"
    """What of that takes as long at any clock, of each stage."""
    costs: Costs
    """What its ops cost, and the clock they were priced at."""

    @property
    def breakdown_s(self) -> dict[str, float]:
        """Label: seconds, mean over stages."""
        return {label: sum(one[label] for one in self.stages) / len(self.stages) for label in self.stages[0]}

    def microbatch_s(self, stage: int, label: str) -> float:
        """Return the seconds of one label in the passes of one microbatch through a stage."""
        own = self.passes[stage :: self.costs.run.parallelism.pp]
        return sum(part.labels.get(label, 0.0) for one in own for part in one)


def time_step(step: Step, costs: Costs, exchanges: "Sequence[Exchange] | None" = None) -> StepTime:
    """Schedule one step at what its ops cost; `exchanges` are those of the same step at another clock."""
    run = step.run
    degrees = run.parallelism
    passes, exchanges = chunk_passes(step, costs), exchanges or list_exchanges(step, costs)
    order = order_arrays(degrees.schedule, degrees.pp, degrees.vpp, run.microbatches)
    races = np.array([[one.forward.race, one.backward.race, one.weight.race] for one in passes]).transpose(1, 0, 2)
    events = simulate_schedule(
        order,
        np.ascontiguousarray(races),
        hop_seconds(step, costs.network),
        _flows(run, exchanges),
        blocking="pp" not in hidden_axes(run),
        chunks=len(passes),
        microbatches=run.microbatches,
    )
    return _finish(step, passes, events, exchanges, costs)


def _flows(run: RunSpec, exchanges: "Sequence[Exchange]") -> Flows | None:
    """Return the gradients that each chunk's last backward pass sends on their way."""
    if not _leaves_early(run):
        return None
    vpp = run.parallelism.vpp
    gradients_s = np.array([one.gradients_s / vpp for one in exchanges])
    buckets = np.array([max(1.0, one.gradient_buckets / vpp) for one in exchanges])
    return Flows(gradients_s, gradients_s / buckets, hops_beside_gradients(run))


def _leaves_early(run: RunSpec) -> bool:
    """Tell whether gradients leave under backward passes; where weights come last, only after them."""
    return "dp" in run.parallelism.overlap and not SCHEDULES[run.parallelism.schedule].puts_off_weights


def hop_seconds(step: Step, network: NetworkConstants) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return the time of the hop from each stage to the next (the last one to the first, for chunks)."""
    pp = step.run.parallelism.pp
    if pp == 1 or not step.boundary_ops:
        return np.zeros(max(1, pp))
    size_bytes = sum(op.sent_bytes for op in step.boundary_ops)
    gather_s = sum(collective_seconds(op, step.run, network) for op in step.boundary_gathers)
    return gather_s + np.array([send_seconds(size_bytes, hop, step.run, network) for hop in stage_hops(step.run)])


class HostOfUpdate(NamedTuple):
    """What the host of a stage does for its update."""

    launch_s: float
    """It launches kernels."""
    offloaded_s: float
    """It updates what lies in its memory."""


class Exchange(NamedTuple):
    """Gradients and weights that a stage exchanges once a step, alone on its links, and its host between the two."""

    gradients_s: float
    weights_s: float
    gradient_buckets: int
    weight_buckets: int
    host: HostOfUpdate


def list_exchanges(step: Step, costs: Costs) -> list[Exchange]:
    """Return what exchanging the gradients and weights of each stage takes; no kernel and no clock is part of it."""
    return [_exchange_of(step, stage, costs) for stage in range(step.run.parallelism.pp)]


def _exchange_of(step: Step, stage: int, costs: Costs) -> Exchange:
    gradients = weights = 0.0
    buckets = {"gradients": 1, "weights": 1}
    for op in (*step_sync(step, stage), *sharded_once(step, stage)):
        links_of_op, buckets_of_op = costs.run_of(op), cut_buckets(step, op)
        parts = sum(times for _bucket, times in buckets_of_op)
        seconds = sum(times * sync_seconds(links_of_op, bucket, costs.network) for bucket, times in buckets_of_op)
        if op.kind in WEIGHT_EXCHANGES:
            weights += seconds
            buckets["weights"] = max(parts, buckets["weights"])
        else:
            gradients += seconds
            buckets["gradients"] = max(parts, buckets["gradients"])
    return Exchange(gradients, weights, buckets["gradients"], buckets["weights"], host_of_update(step, stage))


def host_of_update(step: Step, stage: int) -> HostOfUpdate:
    """Return what the host of a stage does for its update; a graph is launched at once."""
    run = step.run
    launched = not (run.framework.composed or run.framework.graphs == "full")
    launch_s = update_launches(step, stage) * launch_seconds(run) if launched else 0.0
    return HostOfUpdate(launch_s, host_update_s(step, stage))


def sharded_once(step: Step, stage: int) -> list[Op]:
    """In a pipeline sharded weights are gathered, and their gradients reduced, once a step."""
    if not gathers_once(step.run):
        return []
    return [
        op._replace(message_bytes=op.message_bytes * block.repeats, sent_bytes=op.sent_bytes * block.repeats)
        for block in step.stage_blocks(stage)
        for op in (*layer_gather(step, block), *layer_reduce(step, block))
    ]


def sync_seconds(run: RunSpec, op: Op, network: NetworkConstants) -> float:
    """Return the length of a collective; first and last stage add up a tied embedding in one hop each way."""
    return collective_seconds(op._replace(kind="send", group="pp") if op.group == ENDS else op, run, network)


class StageEnding(NamedTuple):
    """What follows the last pass of a stage, in order; between gradients and update it waits for the other stages."""

    gradients_s: float
    """What is left of exchanging them."""
    update_s: float
    host_s: float
    """How long it then waits for its host."""
    weights_s: float
    """What is left of exchanging them."""


class _StageEnd(NamedTuple):
    """One stage: its labels so far, what it hides, and how it ends."""

    labels: dict[str, float]
    hidden: dict[str, float]
    ending: StageEnding


def _finish(
    step: Step, passes: list[ChunkPasses], events: Events, exchanges: Sequence[Exchange], costs: Costs
) -> StepTime:
    """Add gradient exchange, update and weight exchange; charge every second of every stage to a label."""
    run = step.run
    degrees = run.parallelism
    ends = [_end_stage(step, stage, passes, events, exchanges[stage], costs) for stage in range(degrees.pp)]
    last_gradients_s = float(
        max(free_s + end.ending.gradients_s for free_s, end in zip(events.free_s, ends, strict=True))
    )
    waited = [
        end.ending._replace(
            host_s=_host_wait_s(step, stage, exchanges[stage].host, end.ending, last_gradients_s, events)
        )
        for stage, end in enumerate(ends)
    ]
    longest_s = max(one.update_s + one.host_s + one.weights_s for one in waited)
    step_time_s = (last_gradients_s + longest_s) * (1 + straggling_fraction(run, costs.timeline))
    stages = [end.labels for end in ends]
    for labels, one in zip(stages, waited, strict=True):
        labels["overhead"] += one.host_s
        # What is left is waiting for others; rounding may leave a little less than nothing.
        labels["straggler_wait"] += max(0.0, step_time_s - sum(labels.values()))
    _split_bubble(step, passes, stages)
    hidden = {axis: sum(end.hidden.get(axis, 0.0) for end in ends) / degrees.pp for axis in OVERLAPS}
    ranks = degrees.tp * degrees.cp * degrees.dp
    op_events = sum(sum(part.ops for part in one) for one in passes) * run.microbatches * ranks
    return StepTime(step_time_s, stages, hidden, events, passes, op_events, waited, exchanges, costs)


def _end_stage(
    step: Step, stage: int, passes: list[ChunkPasses], events: Events, exchange: Exchange, costs: Costs
) -> _StageEnd:
    """Add up what one stage did, and what of its exchange of gradients and weights stays exposed."""
    labels, hidden = _busy(passes[stage :: step.run.parallelism.pp], step.run.microbatches)
    spent_s = float(np.sum(events.end_s[stage] - events.start_s[stage]))
    labels["overhead"] += max(0.0, spent_s - sum(labels.values()))
    moving_s, empty_s = _waits(events, stage)
    free_s = float(events.free_s[stage])
    labels["pp_exposed"] += moving_s + free_s - float(events.end_s[stage, -1])
    labels["bubble"] += empty_s
    gradients_s, weights_s = _left(step, stage, passes, events, exchange)
    under_compute_s = (exchange.gradients_s - gradients_s) + (exchange.weights_s - weights_s)
    hidden["dp"] = hidden.get("dp", 0.0) + under_compute_s
    # The last send had as many seconds of the NICs; one that blocks is over before the stage is free.
    late_s = float(events.late_s[stage, -1])
    gradients_s = gradients_s + late_s if "pp" in hidden_axes(step.run) else max(0.0, gradients_s - late_s)
    gradients_s += costs.timeline.contention_fraction * under_compute_s
    labels["dp_exposed"] += gradients_s + weights_s
    update_s = sum(map(costs.price, costs.kernels.updates[stage]))
    labels["optimizer"] += update_s
    return _StageEnd(labels, hidden, StageEnding(gradients_s, update_s, 0.0, weights_s))


def _host_wait_s(
    step: Step, stage: int, host: HostOfUpdate, ending: StageEnding, gradients_at_s: float, events: Events
) -> float:
    """Return how long a stage, updated, waits for its host that launches the update or updates what lies with it.

    Where gradients are clipped the host reads their norm first and launches the update only then; otherwise it has
    launched the update while the GPU was still busy, if it was ahead.
    """
    launched_s = float(events.launched_s[stage])
    begun_s = max(launched_s, gradients_at_s) if step.run.training.clip_gradients else launched_s
    done_s = max(begun_s + host.launch_s, gradients_at_s + host.offloaded_s)
    return max(0.0, done_s - (gradients_at_s + ending.update_s))


def _left(step: Step, stage: int, passes: list[ChunkPasses], events: Events, exchange: Exchange) -> tuple[float, float]:
    """Return what compute does not hide of a stage's exchange of gradients, and of weights."""
    gradients_s, weights_s = exchange.gradients_s, exchange.weights_s
    if "dp" in step.run.parallelism.overlap:
        first_s, last_s = _rooms(step, passes[stage], events, stage)
        held_s = held_up(nic_seconds(step, passes[stage].backward), gradients_s, last_s)
        early = _leaves_early(step.run)
        left_s = float(events.left_s[stage]) if early else _exposed(gradients_s, last_s, exchange.gradient_buckets)
        # Overlap that loses to waiting is not what anyone would run.
        gradients_s = min(gradients_s, held_s + left_s)
        if step.run.framework.weight_exchange == "all-gather":
            weights_s = _weights_left(step, events, stage, exchange, first_s)
    return gradients_s, weights_s


def _weights_left(step: Step, events: Events, stage: int, exchange: Exchange, first_s: float) -> float:
    """Return what stays of gathering weights: the first chunk's beyond its pass, all beyond the last chunk's start."""
    degrees = step.run.parallelism
    chunk_s = _exposed(exchange.weights_s / degrees.vpp, first_s, max(1, exchange.weight_buckets // degrees.vpp))
    if degrees.vpp == 1:
        return chunk_s
    order = order_arrays(degrees.schedule, degrees.pp, degrees.vpp, step.run.microbatches)[stage]
    last = int(np.argmax(order[:, 1] == order[:, 1].max()))
    waited_s = float(events.start_s[stage, 0])
    return max(chunk_s, exchange.weights_s - (float(events.end_s[stage, last]) - waited_s))


def _busy(own: list[ChunkPasses], microbatches: int) -> tuple[dict[str, float], dict[str, float]]:
    """Add up the passes of a stage: seconds by label, and hidden communication by axis."""
    labels = dict.fromkeys(LABELS, 0.0)
    hidden: dict[str, float] = {}
    for one in own:
        for part in one:
            for label, seconds in part.labels.items():
                labels[label] += microbatches * seconds
            for axis, seconds in part.hidden.items():
                hidden[axis] = hidden.get(axis, 0.0) + microbatches * seconds
    return labels, hidden


def _rooms(step: Step, first: ChunkPasses, events: Events, stage: int) -> tuple[float, float]:
    """Return how long the first forward and the last backward take, launches that hold them up included.

    Where launches do, what the GPU has left after the last of them delays no pass that follows the first.
    """
    degrees = step.run.parallelism
    kinds = order_arrays(degrees.schedule, degrees.pp, degrees.vpp, step.run.microbatches)[stage, :, 0]
    took_s = events.end_s[stage] - events.start_s[stage]
    last_s = sum(float(np.sum(took_s[kinds == kind][-1:])) for kind in (BACKWARD, WEIGHT))
    return min(float(took_s[0]), max(first.forward.race.gg, first.forward.race.hh)), last_s


def _exposed(seconds: float, room_s: float, buckets: int) -> float:
    """Return what stays of an exchange that hides under compute: its last bucket at least."""
    return max(seconds / buckets, seconds - room_s) if seconds else 0.0


def _waits(events: Events, stage: int) -> tuple[float, float]:
    """Split a stage's waits between passes into transfers, its own sends first, and an empty schedule."""
    free = np.concatenate([[0.0], events.end_s[stage, :-1]])
    waited = np.maximum(0.0, events.start_s[stage] - free)
    sending = np.minimum(waited, np.concatenate([[0.0], events.held_s[stage, :-1]]))
    moving = sending + np.minimum(waited - sending, events.transfer_s[stage])
    return float(np.sum(moving)), float(np.sum(waited - moving))


def _split_bubble(step: Step, passes: list[ChunkPasses], stages: list[dict[str, float]]) -> None:
    """Charge to stragglers what equal stages would not wait: the schedule's own bubble is (p - 1)(f + b) / v."""
    degrees = step.run.parallelism
    total = sum(part.seconds for one in passes for part in one) / degrees.pp
    weight = sum(one.weight.seconds for one in passes) / degrees.pp
    due = max(0.0, (degrees.pp - 1) * (total - 2 * weight) / degrees.vpp)
    for labels in stages:
        waited = labels["bubble"] + labels["straggler_wait"]
        labels["bubble"] = min(waited, due)
        labels["straggler_wait"] = waited - labels["bubble"]
