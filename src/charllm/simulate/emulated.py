"""What one GPU will read while it emulates a rank (`charllm emulate`): watts, hertz, degrees, peaks.

Kernels, transfers and waits take and draw what they do in a simulated run: the same costs (timeline/costs.py), slices
and governor. A transfer on a stream of its own adds its energy to the compute beside it and slows it, and what joins it
waits for what is left of it.
Equation: as in simulate/slices.py, with launches of the emulating host in place of the framework's, and a hidden
transfer of d seconds on b blocks as start + contention x d x b / blocks of a collective seconds of the compute stream;
a join after c seconds of compute waits max(0, d - those - c).
Source: timeline/constants.py for contention.
Ignores: that compute at a lower clock leaves less of a transfer; a host that falls behind within a slice only.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.errors import SpecError, Words
from charllm.gpu.heat import network
from charllm.gpu.shape import read_shape
from charllm.simulate.knots import knots_hz
from charllm.simulate.one_gpu import SingleGpu, SingleGpuRun, rows_of
from charllm.simulate.slices import (
    BOARD_J,
    CHANNELS,
    COLUMNS,
    CORE_J,
    CYCLES,
    FIXED,
    LEAST,
    MATRIX_J,
    POLL,
    cut_layers,
)
from charllm.spec.hardware import Cluster, Gpu
from charllm.spec.run import Conditions
from charllm.timeline.constants import TIMELINE
from charllm.timeline.costs import transfer_j
from charllm.timeline.rank_timeline import Item, RankTimeline, Segment
from charllm.units import MICRO

LAUNCH_S = 8 * MICRO
"""Measured: host time to launch a kernel in eager PyTorch, read as the pace of kernels shorter than it."""
HIDDEN_START_S = 63 * MICRO
"""Measured: what compute loses to each transfer beside it, beyond contention, on 42 emulated ranks (+- 13 us). It is of
the emulator's streams, which launch both at once: a product whose blocks come first holds the transfer back
(evaluate/h200/readings/small_loops.csv)."""
LONGEST_S, LONGEST_KERNELS_S = 600.0, 300.0
"""Of a prediction, and of the kernels of a step."""


SHORTEST_STEP_S, TOGETHER_S = 1e-4, 0.01


class Start(NamedTuple):
    """How a GPU stands when readings begin."""

    power_w: float = 120.0
    """Drawn for long before."""
    state: Floats | None = None
    """In its place: the state in which a GPU of a simulated step began, its sink held."""


START = Start()


def predict_emulated(
    timeline: RankTimeline, cluster: Cluster, least_s: float = 8.0, conditions: Conditions | None = None,
    start: Start = START, launch_s: float = LAUNCH_S,
) -> SingleGpuRun:  # fmt: skip
    """Predict one GPU alone that emulates whole steps for a time.

    `launch_s` is what the emulating host needs for a launch; without it (0) the prediction is that of the simulated
    rank.
    """
    gpu, net = cluster.gpu, network(cluster.node, cluster.cooling.of(0))
    shapes = sorted(timeline.shapes(), key=str)
    eager = launch_s > 0 or timeline.spec.get("framework", {}).get("graphs", "none") == "none"
    rows = rows_of([read_shape(shape, "--timeline") for shape in shapes], gpu, in_step=True, eager=eager)
    known = dict(zip(shapes, rows, strict=True))
    _check_length(timeline, known, gpu)
    left_s: dict[str, float] = {}
    sliced = [part for segment in timeline.segments for part in _slices(segment, known, gpu, launch_s, left_s)]
    single = SingleGpu(gpu, net, cluster.cooling.inlet_of(0), conditions, before_w=start.power_w,
                       longest_s=LONGEST_S + least_s, begun=start.state)  # fmt: skip
    steps = _work_through(single, sliced, least_s)
    seen = single.seen()
    return seen._replace(busy_s=seen.seconds_s / steps)


def _check_length(timeline: RankTimeline, known: dict[tuple[Any, ...], Floats], gpu: Gpu) -> None:
    """Refuse a step that is longer than can be predicted, before it is cut into slices."""
    knots = knots_hz(gpu)
    each_s = {shape: float((row[:, CYCLES] / knots[:-1] + row[:, FIXED])[0]) for shape, row in known.items()}
    kernels_s = sum(
        segment.repeat * sum(each_s[item.shape] for item in segment.items if item.kind == "kernel")
        for segment in timeline.segments
    )
    if kernels_s > LONGEST_KERNELS_S:
        possible = f"a step of at most {LONGEST_KERNELS_S:.0f} s"
        raise SpecError("--timeline", Words(f"kernels of {kernels_s:.4g} s"), possible)


Sliced = tuple[list[tuple[Floats, float]], int]
"""Slices, each a row and its least seconds, and how often they come."""


def _work_through(single: SingleGpu, sliced: list[Sliced], least_s: float) -> int:
    """Work through whole steps, one at least, for a time; returns how many."""
    whole = [one for slices, repeat in sliced for one in slices * repeat]
    rows, waits_s = np.array([row for row, _ in whole]), np.array([wait_s for _, wait_s in whole])
    begun_s = single.time_s
    if whole:
        single.spend(rows, waits_s)
    step_s, steps = single.time_s - begun_s, 1
    if step_s < SHORTEST_STEP_S:
        raise SpecError("--timeline", Words(f"a step of {step_s:.3g} s"), f"one of at least {SHORTEST_STEP_S:g} s")
    # Short steps are worked through several at a time: each call has a cost of its own.
    together = max(1, int(TOGETHER_S / step_s))
    rows, waits_s = np.tile(rows, (together, *[1] * (rows.ndim - 1))), np.tile(waits_s, together)
    while single.time_s < least_s:
        single.spend(rows, waits_s)
        steps += together
    return steps


def _slices(
    segment: Segment, known: dict[tuple[Any, ...], Floats], gpu: Gpu, launch_s: float, left_s: dict[str, float]
) -> list[Sliced]:
    """Cut a segment as a simulated pass is cut; one with waits in it is cut between them.

    `left_s` is what is left of the transfers of each stream, which the segment moves on.
    """
    parts: list[Sliced] = []
    work: list[tuple[str, Floats]] = []
    waits = any(_waits(item) for item in segment.items)
    repeats = 1 if waits else segment.repeat
    knots = knots_hz(gpu)
    item_rows = [_item_row(item, known, gpu, launch_s) for item in segment.items]
    late_s = [0.0] * len(item_rows)
    for _ in range(segment.repeat):
        before_s = dict(left_s)
        late_s = _join(segment.items, item_rows, knots, left_s)
        if left_s == before_s:
            break
    for item, row, waited_s in zip(segment.items, item_rows, late_s, strict=True):
        row[:, FIXED] += waited_s
        row[:, POLL] += waited_s * CHANNELS / gpu.multiprocessors * (not _waits(item))
        if _waits(item):
            parts += [*_cut(work, repeats, knots), ([(row, item.duration_s)], 1)]
            work = []
        elif work and item.kind == "kernel" and work[-1][0] == item.name:
            # Kernels of one op are not parted.
            work[-1] = (item.name, work[-1][1] + row)
        else:
            work.append((item.name, row))
    parts += _cut(work, repeats, knots)
    return parts * segment.repeat if waits else parts


def _join(items: Sequence[Item], rows: Sequence[Floats], knots: Floats, left_s: dict[str, float]) -> list[float]:
    """Return how long each item waits for the streams that it joins; moves on what is left of their transfers."""
    late_s = []
    for item, row in zip(items, rows, strict=True):
        waited_s = max((left_s.get(stream, 0.0) for stream in item.joins), default=0.0)
        if item.stream != "compute":
            left_s[item.stream] = left_s.get(item.stream, 0.0) + item.duration_s
        own_s = item.duration_s if _waits(item) else max(row[0, CYCLES] / knots[0] + row[0, FIXED], row[0, LEAST])
        for stream in left_s:
            left_s[stream] = max(0.0, left_s[stream] - waited_s - float(own_s))
        late_s.append(waited_s)
    return late_s


def _waits(item: Item) -> bool:
    return item.kind == "wait" or (item.kind == "communication" and not item.moves)


def _cut(work: list[tuple[str, Floats]], repeats: int, knots: Floats) -> list[Sliced]:
    """Cut [interval, column] rows that come several times into slices, as they take at the highest clock."""
    rows = [row for _name, row in work]
    at_knots_s = [row[:, CYCLES] / knots[:-1] + row[:, FIXED] for row in rows]
    lengths_s = [float(one[0]) for one in at_knots_s]
    found: list[Sliced] = []
    for cut in cut_layers(lengths_s, repeats):
        slices = []
        for one in cut.slices:
            row = np.sum([share * rows[place] for place, share in one], axis=0)
            row[:, POLL] /= sum(share * at_knots_s[place] for place, share in one)
            slices.append((row, 0.0))
        found.append((slices, cut.repeats))
    return found


def _item_row(item: Item, known: dict[tuple[Any, ...], Floats], gpu: Gpu, launch_s: float) -> Floats:
    """Return an item as [interval, column]; of a wait, which lasts by itself, what polls meanwhile."""
    row = np.zeros((len(knots_hz(gpu)) - 1, COLUMNS))
    if item.kind == "kernel":
        row = known[item.shape].copy()
        row[:, LEAST] = launch_s
    elif item.kind == "communication" and not item.moves:
        row[:, POLL] = item.blocks / gpu.multiprocessors
    elif item.kind == "communication":
        hidden = item.stream != "compute"
        row[:, FIXED] = item.duration_s * (TIMELINE.contention_fraction * item.blocks / CHANNELS if hidden else 1.0)
        row[:, FIXED] += min(HIDDEN_START_S, item.duration_s) * (hidden and launch_s > 0)
        row[:, LEAST] = launch_s
        row[:, [MATRIX_J, CORE_J, BOARD_J]] = transfer_j(item.sent_bytes, gpu)
        row[:, POLL] = row[:, FIXED] * item.blocks / gpu.multiprocessors
    return row
