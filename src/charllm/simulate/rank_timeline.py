"""One rank's simulated step as something that one GPU can emulate: its kernels, transfers and waits, in order.

Compute is left to the GPU that emulates it. Communication has the length that the simulation gives it; what it hides
runs on a stream of its own, the rest in the way. Waits are those of the rank as it was simulated, at its clocks.

Ignores: that emulated kernels may take longer or shorter than simulated ones, which would move the waits; what the host
holds up inside a pass, because the host that emulates launches its own kernels.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.errors import SpecError
from charllm.gpu.shape import KernelShape
from charllm.layout.grid import Grid
from charllm.layout.placement import place_ranks
from charllm.network.constants import NETWORK
from charllm.result.metrics import AXES
from charllm.simulate.long_step import Execution
from charllm.simulate.predict import Simulation, predict
from charllm.simulate.recorded import own_clock_hz, price_at
from charllm.simulate.slices import CHANNELS, SlicedLayers, cut_layers
from charllm.simulate.steady import Machine, watch_gpu
from charllm.spec.run import RunSpec
from charllm.timeline.constants import TIMELINE
from charllm.timeline.passes import products_beside
from charllm.timeline.rank_timeline import Item, RankTimeline, Segment
from charllm.timeline.schedules import BACKWARD
from charllm.timeline.stage_plan import DIRECTIONS, BlockOps, pass_ops
from charllm.timeline.step_time import StepTime, sync_seconds
from charllm.workload.launches import launched
from charllm.workload.op import Op, is_communication
from charllm.workload.step import Step
from charllm.workload.sync import (
    WEIGHT_EXCHANGES,
    cut_buckets,
    gathers_once,
    layer_gather,
    layer_reduce,
    step_sync,
)
from charllm.workload.totals import AXIS_OF_GROUP

SHORTEST_S = 1e-9
"""Below this a part of a transfer is rounding."""


def generate_timeline(run: RunSpec, rank: int) -> RankTimeline:
    """Simulate a run and return one step of one rank."""
    _check_rank(run, rank)
    return rank_timeline(predict(run, ignore_memory=True, whole=True), rank)


def _check_rank(run: RunSpec, rank: int) -> None:
    if run.cluster.mixed:
        raise SpecError("cluster.mixed", run.cluster.name, "nodes of one kind, to emulate one of their ranks")
    if not (isinstance(rank, int) and 0 <= rank < run.parallelism.world):
        raise SpecError("--rank", rank, f"0 to {run.parallelism.world - 1}")


def rank_timeline(found: Simulation, rank: int) -> RankTimeline:
    """Return the simulated step of one rank."""
    _check_rank(found.step.run, rank)
    simulated = found.simulated
    if simulated is None:
        raise SpecError("--rank", rank, "a run that fits in memory, or --ignore-memory")
    if simulated.step is not found.step:
        raise ValueError("the timeline of a rank needs a step that was simulated whole")
    step, run, machine = simulated.step, simulated.step.run, simulated.machine
    stage = int(Grid(run.parallelism).stage(rank))
    # What transfers hide under depends on the clock of the rank's own GPU.
    gpu = simulated_gpu(machine, rank)
    kind, clock_hz = int(machine.kind[gpu]), own_clock_hz(simulated.simulated_step, gpu)
    timed = price_at(step, machine.priced[kind], clock_hz)
    watched = watch_gpu(machine, simulated.simulated_step, gpu)
    ends_s = watched.ends_s
    (under, after), (first, last) = _exchange(step, timed, stage, ends_s["gradients"] + ends_s["weights"])
    update = tuple(item for op in timed.costs.kernels.updates[stage] for item in kernel_items(run, op))
    joined = Segment("update", 1, tuple(item._replace(joins=("dp",)) for item in update))
    # Weights that hide are those of the step before; the update needs all gradients.
    passes = _passes(simulated, timed, stage, rank, under, watched.waits_s)
    host = Item("wait", "host", duration_s=ends_s["host"], joins=AXES)
    stage_wait, others, end = (_wait(ends_s[name]) for name in ("stage", "others", "last"))
    segments = [*first, *passes, stage_wait, *after, others, joined, Segment("host", 1, (host,)), *last, end]
    tokens = run.tokens_per_step // run.parallelism.dp
    return RankTimeline(rank, run.as_table(), tuple(_merged(segments)), tokens, timed.costs.clock_hz)


def kernel_items(run: RunSpec, op: Op) -> list[Item]:
    """Return the kernels that an op launches."""
    return [Item("kernel", op.name, shape=_plain(one.shape)) for one in launched(op, run) for _ in range(one.times)]


def _plain(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """Leave out what is usual at the end of a shape."""
    defaults = KernelShape("", ())
    kept = max(place + 1 for place, value in enumerate(shape) if place < 3 or value != defaults[place])
    return tuple(shape[:kept])


def _passes(
    found: Execution, timed: StepTime, stage: int, rank: int, hidden: list[Segment], waited_s: Floats
) -> list[Segment]:
    """List the passes of a rank with its waits; `hidden` goes under the last backward pass."""
    machine, step = found.machine, found.step
    waits_s = iter(waited_s.tolist())
    mine = np.flatnonzero(machine.turns[:, 0] == stage)
    kinds = [divmod(int(machine.turns[turn, 1]), len(step.chunks)) for turn in mine]
    # Slices were cut by what the first kind takes at its highest clock.
    cut_by = machine.priced[0].times[0]
    blocks_of = {
        key: [_layers(step, timed, key[0], *each)
              for each in zip(pass_ops(step, timed, *key), pass_ops(step, cut_by, *key), strict=True)]
        for key in dict.fromkeys(kinds)
    }  # fmt: skip
    last_backward = max(place for place, (kind, _chunk) in enumerate(kinds) if kind == BACKWARD)
    segments: list[Segment] = []
    position = simulated_gpu(machine, rank) % len(machine.fold.weights)
    sent_s = machine.sent_at(position)
    for place, (turn, key) in enumerate(zip(mine, kinds, strict=True)):
        segments.append(_wait(next(waits_s)))
        segments += hidden if place == last_backward else []
        # What the host does before the first block has a slice, and no op.
        direction, chunk = key
        for _ in cut_by.passes[chunk][direction].spans[: -len(blocks_of[key])]:
            next(waits_s)
        for layers in blocks_of[key]:
            segments += _with_waits(layers, waits_s)
        send_s = float(sent_s[turn])
        segments.append(_boundary(step, send_s or _hop_s(machine, int(turn), position), blocking=send_s > 0))
    return segments


def simulated_gpu(machine: Machine, rank: int) -> int:
    """Return which simulated GPU stands for a rank's."""
    return int(machine.representatives[place_ranks(machine.run)[rank]])


def _hop_s(machine: Machine, turn: int, position: int) -> float:
    """Return how long a pass's output travels beside compute; 0 where nobody needs it."""
    needing = np.flatnonzero(machine.turns[:, 2] == turn)
    return float(machine.moved_at(position)[needing[0]]) if len(needing) else 0.0


class _Layers(NamedTuple):
    """Equal layers of a pass: the items of each op, and how they were cut into slices."""

    label: str
    ops: tuple[tuple[Item, ...], ...]
    cuts: list[SlicedLayers]


def _layers(step: Step, timed: StepTime, kind: int, block: BlockOps, cut_by: BlockOps) -> _Layers:
    ops = tuple(_placed([op for op, *_s in block.ops], [_items(step.run, timed, *one) for one in block.ops]))
    cuts = cut_layers([seconds for _op, seconds, _late_s in cut_by.ops], block.repeats)
    return _Layers(f"{block.name} {DIRECTIONS[kind]}", ops, cuts)


def _placed(ops: list[Op], items: list[list[Item]]) -> Iterator[tuple[Item, ...]]:
    """Let an exchange whose product comes before it hide beside that product, as exchanges in chunks do."""
    for place, op in enumerate(ops):
        after, before = products_beside(ops, place) if op.group == "tp" and is_communication(op) else (None, None)
        if before and not after:
            items[place - 1] = [*(one for one in items[place] if one.stream != "compute"), *items[place - 1]]
            items[place] = [one for one in items[place] if one.stream == "compute"]
    return map(tuple, items)


def _with_waits(layers: _Layers, waits_s: Iterator[float]) -> list[Segment]:
    """Return equal layers with the wait that followed each of their slices.

    Ignores: a wait inside an op that is longer than a slice comes after the op.
    """
    segments: list[Segment] = []
    for cut in layers.cuts:
        layer = Segment(layers.label, round(cut.slices[0][0][1]) or 1, tuple(chain(*layers.ops)))
        for _ in range(cut.repeats):
            if len(cut.slices) == 1:
                segments += [layer, _wait(next(waits_s))]
            else:
                segments += _parts(layers, layer, cut, waits_s)
    return segments


def _parts(layers: _Layers, layer: Segment, cut: SlicedLayers, waits_s: Iterator[float]) -> list[Segment]:
    """Return one layer that was cut into several slices, parted where it waited."""
    parts: list[Segment] = []
    begin, waited_s = 0, 0.0
    for place, one in enumerate(cut.slices):
        waited_s += next(waits_s)
        following = cut.slices[place + 1][0][0] if place + 1 < len(cut.slices) else len(layers.ops)
        # An op that goes on in the next slice is not parted.
        ended = max(begin, min(following, one[-1][0] + 1))
        if waited_s > SHORTEST_S and ended > begin:
            parts += [Segment(layers.label, 1, tuple(chain(*layers.ops[begin:ended]))), _wait(waited_s)]
            begin, waited_s = ended, 0.0
    if begin == 0:
        return [layer, _wait(waited_s)]
    return [*parts, Segment(layers.label, 1, tuple(chain(*layers.ops[begin:]))), _wait(waited_s)]


def _boundary(step: Step, length_s: float, *, blocking: bool) -> Segment:
    """Return a send to the neighbouring stage: a wait where it blocks, else a transfer on a stream of its own."""
    if length_s <= SHORTEST_S:
        return Segment("boundary", 1, ())
    if blocking:
        return _wait(length_s)._replace(label="boundary")
    sent = sum(op.sent_bytes for op in step.boundary_ops)
    item = Item("communication", "send", stream="pp", duration_s=length_s, blocks=NETWORK.send_blocks, sent_bytes=sent)
    return Segment("boundary", 1, (item,))


def _items(run: RunSpec, timed: StepTime, op: Op, seconds: float, late_s: float) -> list[Item]:
    """Return what stands for an op that keeps the compute stream for some seconds, the first of them waiting."""
    if not is_communication(op):
        return kernel_items(run, op)
    # Of those seconds a part is compute slowed by what is hidden; emulated beside it, it slows compute as well.
    whole_s = timed.costs.collective_s(op)
    hidden_s = min(whole_s, max(0.0, (whole_s - seconds + late_s) / (1 - TIMELINE.contention_fraction)))
    waits = [_polling(op.name, late_s)] if late_s else []
    return [*waits, *_communication(op, whole_s - hidden_s, hidden_s)]


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


class _Exchange(NamedTuple):
    """What is exchanged once a step, apart by what hides under compute and what does not."""

    hidden: list[Segment]
    exposed: list[Segment]


def _exchange(step: Step, timed: StepTime, stage: int, exposed_s: float) -> tuple[_Exchange, _Exchange]:
    """Return the exchange of gradients, and of weights, which together keep the compute stream for `exposed_s`.

    Of those seconds a part is compute slowed by what is hidden.
    """
    once = [block for block in step.stage_blocks(stage) if gathers_once(step.run)]
    sync = step_sync(step, stage)
    gradients = [
        *((f"{block.name} reduce", block.repeats, layer_reduce(step, block)) for block in reversed(once)),
        ("gradients", 1, tuple(op for op in sync if op.kind not in WEIGHT_EXCHANGES)),
    ]
    weights = [
        *((f"{block.name} gather", block.repeats, layer_gather(step, block)) for block in once),
        ("weights", 1, tuple(op for op in sync if op.kind in WEIGHT_EXCHANGES)),
    ]
    whole_s = sum(repeats * _bucketed_s(step, timed, op) for _, repeats, ops in (*gradients, *weights) for op in ops)
    if not whole_s:
        return _Exchange([], []), _Exchange([], [])
    hidden_s = (
        min(whole_s, max(0.0, whole_s - exposed_s) / (1 - TIMELINE.contention_fraction)) if _hides(step.run) else 0.0
    )
    in_the_way_s = max(0.0, exposed_s - TIMELINE.contention_fraction * hidden_s)

    def parted(parts: list[tuple[str, int, tuple[Op, ...]]]) -> _Exchange:
        found = _Exchange([], [])
        for label, repeats, ops in parts:
            items: list[Item] = []
            for op in ops:
                share = _bucketed_s(step, timed, op) / whole_s
                items += _communication(op, share * in_the_way_s, share * hidden_s)
            beside, alone = (
                tuple(item for item in items if (item.stream == "compute") == way) for way in (False, True)
            )
            found.hidden.append(Segment(label, repeats, beside))
            found.exposed.append(Segment(label, repeats, alone))
        return found

    return parted(gradients), parted(weights)


def _bucketed_s(step: Step, timed: StepTime, op: Op) -> float:
    """Return the length of an exchange, bucket by bucket."""
    network = timed.costs.network
    return sum(times * sync_seconds(step.run, bucket, network) for bucket, times in cut_buckets(step, op))


def _wait(length_s: float) -> Segment:
    """Return a wait for others."""
    return Segment("wait", 1, (_polling("wait", max(0.0, length_s)),))


def _polling(name: str, length_s: float) -> Item:
    """Return a kernel that polls and moves nothing, as collectives do while they wait."""
    return Item("communication", name, duration_s=length_s, blocks=CHANNELS, moves=False)


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
