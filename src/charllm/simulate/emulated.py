"""What one GPU will read while it emulates a rank (`charllm emulate`): watts, hertz, degrees, peaks.

Kernels, transfers and waits take and draw what they do in a simulated run: the same costs (timeline/costs.py), slices
and governor. A transfer on a stream of its own adds its energy to the compute beside it and slows it.

Ignores: order of launches between streams; a host that falls behind within a slice only.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from charllm.gpu.heat import network
from charllm.gpu.shape import KernelShape
from charllm.simulate.one_gpu import Player, SingleGpuRun, rows_of
from charllm.simulate.slices import (
    BOARD_J,
    CHANNELS,
    COLUMNS,
    CORE_J,
    FIXED,
    HOST,
    MATRIX,
    MATRIX_J,
    OTHER,
    POLL,
    SLICE_S,
)
from charllm.spec.hardware import Cluster, Gpu
from charllm.spec.run import Conditions
from charllm.timeline.constants import TIMELINE
from charllm.timeline.costs import transfer_j
from charllm.timeline.engine import Floats
from charllm.timeline.play import Item, PlayTimeline, Segment
from charllm.units import MICRO

LAUNCH_S = 8 * MICRO
"""Measured: host time to launch a kernel in eager PyTorch, read as the pace of kernels shorter than it."""
ROUNDS = 2
"""Kernels are linearised at their own clock first, then at the clock of the whole step."""
LONGEST_S = 600.0


class Start(NamedTuple):
    """How a GPU stands when readings begin."""

    power_w: float = 120.0
    """Drawn for long before."""
    state: Floats | None = None
    """In its place: the state in which a GPU of a simulated step began, its sink held."""


START = Start()


def predict_played(
    timeline: PlayTimeline, cluster: Cluster, least_s: float = 8.0, conditions: Conditions | None = None,
    start: Start = START, launch_s: float = LAUNCH_S,
) -> SingleGpuRun:  # fmt: skip
    """Predict one GPU alone that emulates whole steps for a time.

    Kernels are linearised at the clock of the simulation a timeline comes from, or else at the mean clock that it leads
    to. `launch_s` is what the emulating host needs for a launch; without it (0) the prediction is that of the simulated
    rank.
    """
    clock_hz = timeline.clock_hz
    gpu, net = cluster.gpu, network(cluster.node, cluster.cooling)
    shapes = sorted(timeline.shapes(), key=str)
    for _ in range(1 if clock_hz else ROUNDS):
        rows = rows_of([KernelShape(*shape) for shape in shapes], gpu, clock_hz, in_step=True)
        known = dict(zip(shapes, rows, strict=True))
        sliced = [(_slices(segment, known, gpu, launch_s), segment.repeat) for segment in timeline.segments]
        player = Player(gpu, net, cluster.cooling.inlet_of(0), conditions, before_w=start.power_w,
                        longest_s=LONGEST_S + least_s, begun=start.state)  # fmt: skip
        steps = _play(player, sliced, least_s)
        seen = player.seen()
        clock_hz = seen.clock_mean_hz
    return seen._replace(busy_s=seen.seconds_s / steps)


def _play(player: Player, sliced: list[tuple[list[tuple[Floats, float]], int]], least_s: float) -> int:
    """Play whole steps, one at least, for a time; returns how many."""
    steps = 0
    while steps == 0 or player.time_s < least_s:
        for slices, repeat in sliced:
            for _ in range(repeat):
                for row, wait_s in slices:
                    player.spend([row], wait_s)
        steps += 1
    return steps


def _slices(
    segment: Segment, known: dict[tuple[Any, ...], Floats], gpu: Gpu, launch_s: float
) -> list[tuple[Floats, float]]:
    """Join a segment's items into slices of some milliseconds: (row, least seconds)."""
    found: list[tuple[Floats, float]] = []
    row, length_s, waited_s = np.zeros(COLUMNS), 0.0, 0.0
    waiting = row
    for cells, wait_s, seconds in _item_rows(segment.items, known, gpu, launch_s):
        if wait_s:
            # Short waits of a slice come at its end, as those for members of a group do in a simulated step.
            waiting, waited_s = cells, waited_s + wait_s
        else:
            row, length_s = row + cells, length_s + seconds
        if length_s >= SLICE_S or waited_s >= SLICE_S:
            found += _closed(row, length_s, waiting, waited_s)
            row, length_s, waited_s = np.zeros(COLUMNS), 0.0, 0.0
    return [*found, *_closed(row, length_s, waiting, waited_s)]


def _closed(row: Floats, length_s: float, waiting: Floats, waited_s: float) -> list[tuple[Floats, float]]:
    """End a slice: its work, then its waits."""
    if length_s:
        row[POLL] /= length_s
    return [*([(row, 0.0)] if length_s else []), *([(waiting, waited_s)] if waited_s else [])]


def _item_rows(
    items: tuple[Item, ...], known: dict[tuple[Any, ...], Floats], gpu: Gpu, launch_s: float
) -> Iterator[tuple[Floats, float, float]]:
    """Return each item as a row, its least seconds when it is a wait, and about how long it takes."""
    for item in items:
        row = np.zeros(COLUMNS)
        if item.kind == "wait":
            yield row, item.duration_s, item.duration_s
        elif item.kind == "kernel":
            row = known[item.shape].copy()
            row[HOST] = launch_s
            yield row, 0.0, row[FIXED] + (row[MATRIX] + row[OTHER]) / 1.6e9
        elif not item.moves:
            row[POLL] = item.blocks / gpu.multiprocessors
            yield row, item.duration_s, item.duration_s
        else:
            hidden = item.stream != "compute"
            row[FIXED] = item.duration_s * (TIMELINE.contention_fraction * item.blocks / CHANNELS if hidden else 1.0)
            row[HOST] = launch_s
            row[[MATRIX_J, CORE_J, BOARD_J]] = transfer_j(item.sent_bytes, gpu)
            row[POLL] = row[FIXED] * item.blocks / gpu.multiprocessors
            yield row, 0.0, row[FIXED]
