"""One rank's simulated step as something that one GPU can emulate: its kernels, transfers and waits, in order.

Compute is left to the GPU that emulates it. Communication has the length that the simulation gives it; what it hides
runs on a stream of its own, the rest in the way. Waits are those of the rank as it was simulated, at its clocks.

Ignores: that emulated kernels may take longer or shorter than simulated ones, which would move the waits; what the host
holds up inside a pass, because the host that emulates launches its own kernels.
"""

from typing import Any

import numpy as np

from charllm.errors import SpecError
from charllm.layout.grid import Grid
from charllm.simulate.predict import Simulation, predict
from charllm.simulate.recorded import END
from charllm.simulate.slices import CHANNELS
from charllm.spec.run import RunSpec
from charllm.timeline.passes import CONTENTION_FRACTION
from charllm.timeline.play import Item, PlayTimeline, Segment
from charllm.timeline.schedules import BACKWARD
from charllm.timeline.stage_plan import DIRECTIONS, pass_ops
from charllm.timeline.step_time import StepTime, sync_seconds
from charllm.workload.launches import launched
from charllm.workload.op import Op, is_communication
from charllm.workload.step import Step
from charllm.workload.sync import (
    WEIGHT_EXCHANGES,
    gathers_once,
    layer_gather,
    layer_reduce,
    step_sync,
)
from charllm.workload.totals import AXIS_OF_GROUP

SHORTEST_S = 1e-9
"""Below this a part of a transfer is rounding."""
AXES = ("tp", "pp", "dp", "ep", "cp")


def generate_timeline(run: RunSpec, rank: int) -> PlayTimeline:
    """Simulate a run and return one step of one rank."""
    if not 0 <= rank < run.parallelism.world:
        raise SpecError("--rank", rank, f"0 to {run.parallelism.world - 1}")
    return rank_timeline(predict(run, ignore_memory=True), rank)


def rank_timeline(found: Simulation, rank: int) -> PlayTimeline:
    """Return the simulated step of one rank."""
    step, timed, run = found.step, found.timed, found.step.run
    if timed is None or found.machine is None or found.played is None:
        raise SpecError("--rank", rank, "a run that fits in memory, or --ignore-memory")
    stage = int(Grid(run.parallelism).stage(rank))
    gradients, weights = _exchange(step, timed, stage)
    # Weights that hide are those of the step before; the update needs all gradients.
    first, last = (weights, []) if _hides(run) else ([], weights)
    under, after = (gradients, []) if _hides(run) else ([], gradients)
    update = tuple(item for op in timed.costs.kernels.updates[stage] for item in kernel_items(run, op))
    joined = Segment("update", 1, tuple(item._replace(joins=("dp",)) for item in update))
    rest_s = float(found.machine.tail[stage, 2, 2])
    segments = [*first, *_passes(found, timed, stage, rank, under), *after, joined, *last, _wait(rest_s)]
    tokens = run.tokens_per_step // run.parallelism.dp
    return PlayTimeline(rank, run.as_table(), tuple(_merged(segments)), tokens)


def kernel_items(run: RunSpec, op: Op) -> list[Item]:
    """Return the kernels that an op launches."""
    return [Item("kernel", op.name, shape=_plain(one.shape)) for one in launched(op, run) for _ in range(one.times)]


def _plain(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """Leave out what is usual at the end of a shape."""
    return tuple(shape) if shape[4:] != ("best",) or shape[3] != "random" else tuple(shape[:3])


def _passes(found: Simulation, timed: StepTime, stage: int, rank: int, hidden: list[Segment]) -> list[Segment]:
    """List the passes of a rank with the waits between them; `hidden` goes under the last backward pass."""
    machine, played, step = found.machine, found.played, found.step
    assert machine is not None
    assert played is not None
    grid, chunks = Grid(step.run.parallelism), len(step.chunks)
    position = min(int(machine.fold.stand_in[int(grid.position(np.array([rank]))[0])]), played.passes.shape[1] - 1)
    mine = np.flatnonzero(machine.turns[:, 0] == stage)
    kinds = [divmod(int(machine.turns[turn, 1]), chunks) for turn in mine]
    segments_of = {key: _pass(step, timed, *key) for key in dict.fromkeys(kinds)}
    last_backward = max(place for place, (kind, _chunk) in enumerate(kinds) if kind == BACKWARD)
    segments: list[Segment] = []
    free_s = 0.0
    for place, (turn, key) in enumerate(zip(mine, kinds, strict=True)):
        start_s, end_s, _clock, waited_s = played.passes[turn, position].tolist()
        segments.append(_wait(start_s - free_s))
        segments += hidden if place == last_backward else []
        segments += segments_of[key]
        send_s = float(machine.sent_s[turn])
        segments += [_wait(waited_s), _boundary(step, send_s or _hop_s(machine, int(turn)), blocking=send_s > 0)]
        free_s = end_s + send_s
    finish_s = float(played.passes[:, :, END].max()) + float(machine.sent_s[int(np.argmax(played.passes[:, 0, END]))])
    return [*segments, _wait(finish_s - free_s)]


def _hop_s(machine: Any, turn: int) -> float:
    """Return how long a pass's output travels beside compute; 0 where nobody needs it."""
    needing = np.flatnonzero(machine.turns[:, 2] == turn)
    return float(machine.moved_s[needing[0]]) if len(needing) else 0.0


def _pass(step: Step, timed: StepTime, kind: int, chunk: int) -> list[Segment]:
    """Return the segments of one pass of one chunk."""
    return [
        Segment(
            f"{block.name} {DIRECTIONS[kind]}",
            block.repeats,
            tuple(item for op, seconds in block.ops for item in _items(step.run, timed, op, seconds)),
        )
        for block in pass_ops(step, timed, kind, chunk)
    ]


def _boundary(step: Step, length_s: float, *, blocking: bool) -> Segment:
    """Return a send to the neighbouring stage: a wait where it blocks, else a transfer on a stream of its own."""
    if length_s <= SHORTEST_S:
        return Segment("boundary", 1, ())
    if blocking:
        return _wait(length_s)._replace(label="boundary")
    sent = sum(op.sent_bytes for op in step.boundary_ops)
    item = Item("communication", "send", stream="pp", duration_s=length_s, blocks=0, sent_bytes=sent)
    return Segment("boundary", 1, (item,))


def _items(run: RunSpec, timed: StepTime, op: Op, seconds: float) -> list[Item]:
    """Return what stands for an op that keeps the compute stream for some seconds."""
    if not is_communication(op):
        return kernel_items(run, op)
    # Of those seconds a part is compute slowed by what is hidden; emulated beside it, it slows compute as well.
    whole_s = timed.costs.collective_s(op)
    hidden_s = min(whole_s, max(0.0, (whole_s - seconds) / (1 - CONTENTION_FRACTION)))
    return _communication(op, whole_s - hidden_s, hidden_s)


def _communication(op: Op, exposed_s: float, hidden_s: float) -> list[Item]:
    """A transfer in two parts: in the way, after earlier ones of its axis, and on the stream of its axis."""
    axis, whole_s = AXIS_OF_GROUP[op.group], max(SHORTEST_S, exposed_s + hidden_s)
    exposed = Item("communication", op.name, duration_s=exposed_s, blocks=CHANNELS, joins=(axis,),
                   sent_bytes=op.sent_bytes * exposed_s / whole_s)  # fmt: skip
    hidden = Item("communication", op.name, stream=axis, duration_s=hidden_s, blocks=CHANNELS,
                  sent_bytes=op.sent_bytes * hidden_s / whole_s)  # fmt: skip
    return [item for item in (exposed, hidden) if item.duration_s > SHORTEST_S]


def _hides(run: RunSpec) -> bool:
    """Tell whether gradients are exchanged under the last backward pass and weights under the first forward one."""
    return "dp" in run.parallelism.overlap


def _exchange(step: Step, timed: StepTime, stage: int) -> tuple[list[Segment], list[Segment]]:
    """Return what is exchanged once a step: gradients, and weights."""
    once = [block for block in step.stage_blocks(stage) if gathers_once(step.run)]
    reduced = [
        _exchanged(step, timed, f"{block.name} reduce", block.repeats, layer_reduce(step, block)) for block in once
    ]
    gathered = [
        _exchanged(step, timed, f"{block.name} gather", block.repeats, layer_gather(step, block)) for block in once
    ]
    sync = step_sync(step, stage)
    gradients = tuple(op for op in sync if op.kind not in WEIGHT_EXCHANGES)
    weights = tuple(op for op in sync if op.kind in WEIGHT_EXCHANGES)
    return (
        [*reversed(reduced), _exchanged(step, timed, "gradients", 1, gradients)],
        [*gathered, _exchanged(step, timed, "weights", 1, weights)],
    )


def _exchanged(step: Step, timed: StepTime, label: str, repeats: int, ops: tuple[Op, ...]) -> Segment:
    items = []
    for op in ops:
        whole_s = sync_seconds(step.run, op, timed.costs.network)
        items += _communication(op, 0.0, whole_s) if _hides(step.run) else _communication(op, whole_s, 0.0)
    return Segment(label, repeats, tuple(items))


def _wait(length_s: float) -> Segment:
    """Return a wait for others: a kernel that polls, as collectives do."""
    item = Item("communication", "wait", duration_s=max(0.0, length_s), blocks=CHANNELS, moves=False, joins=AXES)
    return Segment("wait", 1, (item,))


def _merged(segments: Any) -> list[Segment]:
    """Drop empty segments and waits, and fold equal neighbours."""
    merged: list[Segment] = []
    for segment in segments:
        if not segment.items or (segment.label == "wait" and segment.items[0].duration_s <= SHORTEST_S):
            continue
        if merged and merged[-1].items is segment.items:
            merged[-1] = merged[-1]._replace(repeat=merged[-1].repeat + segment.repeat)
        else:
            merged.append(segment)
    return merged
