"""One rank's step as something that can be played: passes in the order of the schedule, waits as the events say.

Compute is left to the GPU that plays it. Communication has the length that the cost model gives it; what the simulated
step hides of it runs on a stream of its own, the rest in the way. Waits between passes are those of the simulated step.

Ignores: that the played kernels may take longer or shorter than the simulated ones, which would move the waits; what
the host holds up inside a pass, because the host that plays has a race of its own.
"""

from typing import Any

from charllm.cost.calibration import CALIBRATION
from charllm.errors import SpecError
from charllm.layout.grid import Grid
from charllm.spec.run import RunSpec
from charllm.timeline.kernels import kernel_items
from charllm.timeline.play import Item, PlayTimeline, Segment
from charllm.timeline.schedules import BACKWARD, FORWARD, WEIGHT, order_arrays
from charllm.timeline.stage_plan import DIRECTIONS, pass_ops
from charllm.timeline.step_time import StepTime, hop_seconds, sync_seconds, time_step
from charllm.workload.op import Op, is_communication
from charllm.workload.step import Step, build_step
from charllm.workload.sync import (
    WEIGHT_EXCHANGES,
    gathers_once,
    layer_gather,
    layer_reduce,
    optimizer_ops,
    step_sync,
)
from charllm.workload.totals import AXIS_OF_GROUP

CHANNELS, P2P_CHANNELS = 24, 4
"""Assumed: blocks that a collective and a point-to-point transfer occupy (NCCL's usual choice inside a node)."""
SHORTEST_S = 1e-9
"""Below this a part of a transfer is rounding."""


def generate_timeline(run: RunSpec, rank: int) -> PlayTimeline:
    """Return one simulated step of one rank."""
    if not 0 <= rank < run.parallelism.world:
        raise SpecError("--rank", rank, f"0 to {run.parallelism.world - 1}")
    step = build_step(run)
    stage = int(Grid(run.parallelism).stage(rank))
    gradients, weights = _exchange(step, stage)
    # Weights that hide are those of the step before; the update needs all gradients.
    first, last = (weights, []) if _hides(run) else ([], weights)
    under, after = (gradients, []) if _hides(run) else ([], gradients)
    update = tuple(item for op in optimizer_ops(step, stage) for item in kernel_items(run, op))
    joined = Segment("update", 1, tuple(item._replace(joins=("dp",)) for item in update))
    segments = [*first, *_passes(step, stage, time_step(step), under), *after, joined, *last]
    tokens = run.tokens_per_step // run.parallelism.dp
    return PlayTimeline(rank, run.as_table(), tuple(_merged(segments)), tokens)


def _passes(step: Step, stage: int, timed: StepTime, hidden: list[Segment]) -> list[Segment]:
    """List the passes of a stage with the waits between them; `hidden` goes under the last backward pass."""
    run, events = step.run, timed.events
    degrees = run.parallelism
    order = order_arrays(degrees.schedule, degrees.pp, degrees.vpp, run.microbatches)[stage].tolist()
    played = {key: _pass(step, stage, timed, *key) for key in {(kind, chunk) for kind, chunk, _microbatch in order}}
    last_backward = max(place for place, (kind, _chunk, _microbatch) in enumerate(order) if kind == BACKWARD)
    segments: list[Segment] = []
    free_s = 0.0
    for place, (kind, chunk, _microbatch) in enumerate(order):
        segments.append(_wait(float(events.start_s[stage, place]) - free_s))
        segments += hidden if place == last_backward else []
        segments += played[kind, chunk]
        last = place == len(order) - 1
        # Blocking sends are played as items, so that the stage is free when the next pass could begin.
        free_s = float(events.free_s[stage] if last else events.end_s[stage, place] + events.held_s[stage, place])
    return [*segments, _wait(float(max(events.free_s)) - free_s)]


def _pass(step: Step, stage: int, timed: StepTime, kind: int, chunk: int) -> list[Segment]:
    """Return the segments of one pass of one chunk, its send to the neighbour included."""
    segments = [
        Segment(
            f"{block.name} {DIRECTIONS[kind]}",
            block.repeats,
            tuple(item for op, seconds in block.ops for item in _items(step.run, op, seconds)),
        )
        for block in pass_ops(step, timed, kind, chunk)
    ]
    length_s = _hop_s(step, stage, kind, chunk)
    return [*segments, Segment("boundary", 1, (_send(step, length_s),))] if length_s else segments


def _hop_s(step: Step, stage: int, kind: int, chunk: int) -> float:
    """Return how long a pass's output takes to the neighbouring stage; 0 where there is none."""
    pp, last = step.run.parallelism.pp, len(step.chunks) - 1
    if kind == WEIGHT or pp == 1 or chunk == (last if kind == FORWARD else 0):
        return 0.0
    return float(hop_seconds(step, CALIBRATION)[stage if kind == FORWARD else (stage - 1) % pp])


def _send(step: Step, length_s: float) -> Item:
    stream = "pp" if "pp" in step.run.parallelism.overlap else "compute"
    return Item("communication", "send", stream=stream, duration_s=length_s, blocks=P2P_CHANNELS)


def _items(run: RunSpec, op: Op, seconds: float) -> list[Item]:
    """Return what stands for an op that keeps the compute stream for some seconds."""
    if not is_communication(op):
        return kernel_items(run, op)
    # Of those seconds a part is compute slowed by what is hidden; playing beside it slows compute as well.
    whole_s = sync_seconds(run, op, CALIBRATION)
    hidden_s = min(whole_s, max(0.0, (whole_s - seconds) / (1 - CALIBRATION.contention_fraction)))
    return _communication(op, whole_s - hidden_s, hidden_s)


def _communication(op: Op, exposed_s: float, hidden_s: float) -> list[Item]:
    """A transfer in two parts: in the way, after earlier ones of its axis, and on the stream of its axis."""
    axis = AXIS_OF_GROUP[op.group]
    exposed = Item("communication", op.name, duration_s=exposed_s, blocks=CHANNELS, joins=(axis,))
    hidden = Item("communication", op.name, stream=axis, duration_s=hidden_s, blocks=CHANNELS)
    return [item for item in (exposed, hidden) if item.duration_s > SHORTEST_S]


def _hides(run: RunSpec) -> bool:
    """Tell whether gradients are exchanged under the last backward pass and weights under the first forward one."""
    return "dp" in run.parallelism.overlap


def _exchange(step: Step, stage: int) -> tuple[list[Segment], list[Segment]]:
    """Return what is exchanged once a step: gradients, and weights."""
    once = [block for block in step.stage_blocks(stage) if gathers_once(step.run)]
    reduced = [_exchanged(step, f"{block.name} reduce", block.repeats, layer_reduce(step, block)) for block in once]
    gathered = [_exchanged(step, f"{block.name} gather", block.repeats, layer_gather(step, block)) for block in once]
    sync = step_sync(step, stage)
    gradients = _exchanged(step, "gradients", 1, tuple(op for op in sync if op.kind not in WEIGHT_EXCHANGES))
    weights = _exchanged(step, "weights", 1, tuple(op for op in sync if op.kind in WEIGHT_EXCHANGES))
    return [*reversed(reduced), gradients], [*gathered, weights]


def _exchanged(step: Step, label: str, repeats: int, ops: tuple[Op, ...]) -> Segment:
    items = []
    for op in ops:
        whole_s = sync_seconds(step.run, op, CALIBRATION)
        items += _communication(op, 0.0, whole_s) if _hides(step.run) else _communication(op, whole_s, 0.0)
    return Segment(label, repeats, tuple(items))


def _wait(length_s: float) -> Segment:
    return Segment("bubble", 1, (Item("wait", "bubble", duration_s=length_s, joins=("tp", "pp", "dp", "ep", "cp")),))


def _merged(segments: Any) -> list[Segment]:
    """Drop empty segments and waits, and fold equal neighbours."""
    merged: list[Segment] = []
    for segment in segments:
        if not segment.items or (segment.label == "bubble" and segment.items[0].duration_s <= 0):
            continue
        if merged and merged[-1].items is segment.items:
            merged[-1] = merged[-1]._replace(repeat=merged[-1].repeat + segment.repeat)
        else:
            merged.append(segment)
    return merged
