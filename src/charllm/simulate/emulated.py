"""What one GPU will read while it plays a rank's timeline (`charllm emulate`): watts, hertz, degrees, peaks.

Kernels take and draw what power/kernels.py says; a transfer in the way lasts as long as it says and draws what a copy
on its blocks draws; one on a stream of its own adds that to the compute beside it and slows it. Waits are idle.

Equation: a copy on n blocks draws 24 W (n / 4)^0.78; compute beside one on 24 blocks takes 40 % of its length longer.
Source: one take of fourteen ranks on an H200 (benchmarks/device/h200/ranks_played.csv): 97 W above an idle context on
24 blocks; between 0.28 (products of milliseconds) and 0.7 (0.2 ms) of a transfer's length, because a product that fills
all multiprocessors lets a transfer begin only when it ends. The exponent is from copies on 4, 16 and 32 blocks.
Ignores: order of launches between streams; a host that falls behind within a slice only.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from charllm.gpu.heat import network
from charllm.gpu.shape import KernelShape
from charllm.simulate.one_gpu import Alone, Player, kernel_rows
from charllm.simulate.slices import BOARD_J, COLUMNS, FIXED, HOST, MATRIX, OTHER, POLL
from charllm.spec.hardware import Cluster
from charllm.timeline.engine import Floats
from charllm.timeline.play import Item, PlayTimeline, Segment
from charllm.units import MICRO

SLICE_S = 0.002
COPY_W, COPY_BLOCKS, COPY_POWER = 24.0, 4, 0.78
BESIDE_FRACTION, BESIDE_BLOCKS = 0.4, 24
LAUNCH_S = {"product": 14 * MICRO, "other": 8 * MICRO}
"""Host time to launch an item in eager PyTorch: read as the pace of kernels shorter than it."""
PASSES = 2
"""Kernels are linearised at their own clock first, then at the clock of the whole step."""


def predict_played(timeline: PlayTimeline, cluster: Cluster, least_s: float = 8.0) -> Alone:
    """Predict one GPU alone that plays whole steps for a time, from idle."""
    gpu = cluster.gpu
    shapes = sorted(timeline.shapes(), key=str)
    mixed_hz: float | None = None
    for _ in range(PASSES):
        rows = kernel_rows([KernelShape(*shape) for shape in shapes], gpu, mixed_hz)
        known = dict(zip(shapes, rows, strict=True))
        sliced = [(_slices(segment, known, gpu.multiprocessors, gpu.power.active_w), segment.repeat)
                  for segment in timeline.segments]  # fmt: skip
        player = Player(gpu, network(cluster.node, cluster.cooling), cluster.cooling.inlet_c, longest_s=600.0)
        steps = 0
        while steps == 0 or player.time_s < least_s:
            for slices, repeat in sliced:
                for _ in range(repeat):
                    for row, wait_s in slices:
                        player.spend([row], wait_s)
            steps += 1
        seen = player.seen()
        mixed_hz = seen.clock_mean_hz
    return seen._replace(busy_s=seen.seconds_s / steps)


def _slices(
    segment: Segment, known: dict[tuple[Any, ...], Floats], processors: int, active_w: float
) -> list[tuple[Floats, float]]:
    """Join a segment's items into slices of some milliseconds: (row, least seconds)."""
    found: list[tuple[Floats, float]] = []
    row, length_s = np.zeros(COLUMNS), 0.0
    for cells, wait_s, seconds in _item_rows(segment.items, known, processors, active_w):
        if wait_s:
            if length_s:
                found.append((_closed(row, length_s), 0.0))
            found.append((cells, wait_s))
            row, length_s = np.zeros(COLUMNS), 0.0
            continue
        row, length_s = row + cells, length_s + seconds
        if length_s >= SLICE_S:
            found.append((_closed(row, length_s), 0.0))
            row, length_s = np.zeros(COLUMNS), 0.0
    return [*found, (_closed(row, length_s), 0.0)] if length_s else found


def _closed(row: Floats, length_s: float) -> Floats:
    row[POLL] /= length_s
    return row


def _item_rows(
    items: tuple[Item, ...], known: dict[tuple[Any, ...], Floats], processors: int, active_w: float
) -> Iterator[tuple[Floats, float, float]]:
    """Return each item as a row, its least seconds when it is a wait, and about how long it takes."""
    for item in items:
        row = np.zeros(COLUMNS)
        if item.kind == "wait":
            yield row, item.duration_s, item.duration_s
        elif item.kind == "kernel":
            row = known[item.shape].copy()
            product = item.shape[0] in ("gemm", "grouped_gemm") or str(item.shape[0]).startswith("attention")
            row[HOST] = LAUNCH_S["product" if product else "other"]
            yield row, 0.0, row[FIXED] + (row[MATRIX] + row[OTHER]) / 1.6e9
        else:
            hidden = item.stream != "compute"
            beside_s = item.duration_s * BESIDE_FRACTION * item.blocks / BESIDE_BLOCKS
            row[FIXED] = beside_s if hidden else item.duration_s
            row[HOST] = LAUNCH_S["other"]
            if item.moves:
                copying_w = COPY_W * (item.blocks / COPY_BLOCKS) ** COPY_POWER
                row[BOARD_J] = max(0.0, copying_w - (0.0 if hidden else active_w)) * item.duration_s
            else:
                row[POLL] = item.duration_s * item.blocks / processors
            yield row, 0.0, row[FIXED]
