"""When each pass of each stage runs: dependency-exact events over a schedule.

A pass begins when its stage is free, its input has arrived and the host has launched it; the host of a stage launches
passes in order. Written for numba where it is installed, and the same without it, slower.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from charllm.jit import jit
from charllm.timeline.schedules import BACKWARD, FORWARD, WEIGHT

Floats = NDArray[np.float64]


class Events(NamedTuple):
    """When each item of each stage's order ran."""

    start_s: Floats
    """[stage, item]; the stage was free and the input there."""
    end_s: Floats
    arrival_s: Floats
    """When its input was there."""
    transfer_s: Floats
    """How much of the time before that was the input's transfer."""
    free_s: Floats
    """When each stage is free at the end."""
    held_s: Floats
    """How long each item's own send, where it blocks, kept the stage from the next."""


@jit
def _play(
    order: NDArray[np.int64],
    races: Floats,
    send_s: Floats,
    late_s: Floats,
    blocking: bool,
    chunks: int,
    microbatches: int,
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, int]:
    stages, items, _ = order.shape
    done = np.full((3, chunks, microbatches), -1.0)
    start, end = np.zeros((stages, items)), np.zeros((stages, items))
    arrival, transfer, held = np.zeros((stages, items)), np.zeros((stages, items)), np.zeros((stages, items))
    free, host = np.zeros(stages), np.zeros(stages)
    place = np.zeros(stages, dtype=np.int64)
    left = stages * items
    while left > 0:
        before = left
        for stage in range(stages):
            while place[stage] < items:
                item = place[stage]
                kind, chunk, mb = order[stage, item, 0], order[stage, item, 1], order[stage, item, 2]
                ready, moved = 0.0, 0.0
                if kind == FORWARD and chunk > 0:
                    ready = done[FORWARD, chunk - 1, mb]
                    moved = send_s[(chunk - 1) % stages] if stages > 1 else 0.0
                elif kind == BACKWARD and chunk < chunks - 1:
                    ready = done[BACKWARD, chunk + 1, mb]
                    moved = send_s[chunk % stages] if stages > 1 else 0.0
                    if mb == microbatches - 1 and chunk + 1 < stages:
                        moved += late_s[chunk + 1]
                elif kind == BACKWARD:
                    ready = done[FORWARD, chunk, mb]
                elif kind == WEIGHT:
                    ready = done[BACKWARD, chunk, mb]
                if ready < 0.0:
                    break
                here = ready + moved
                begin = max(free[stage], here)
                g, h = begin, host[stage]
                finish = max(races[kind, chunk, 0] + g, races[kind, chunk, 1] + h)
                host[stage] = max(races[kind, chunk, 2] + g, races[kind, chunk, 3] + h)
                start[stage, item], end[stage, item] = begin, finish
                arrival[stage, item], transfer[stage, item] = here, moved
                done[kind, chunk, mb] = finish
                sends = (kind == FORWARD and chunk < chunks - 1) or (kind == BACKWARD and chunk > 0)
                free[stage] = finish
                if blocking and sends and stages > 1:
                    link = chunk % stages if kind == FORWARD else (chunk - 1) % stages
                    held[stage, item] = send_s[link]
                    if kind == BACKWARD and mb == microbatches - 1 and chunk < stages:
                        held[stage, item] += late_s[stage]
                    free[stage] = finish + held[stage, item]
                place[stage] += 1
                left -= 1
        if left == before:
            break
    return start, end, arrival, transfer, free, held, left


def play(
    order: NDArray[np.int64],
    races: Floats,
    send_s: Floats,
    late_s: Floats | None = None,
    *,
    blocking: bool,
    chunks: int,
    microbatches: int,
) -> Events:
    """Run a schedule: `races[pass, chunk]` holds a Race, `send_s[stage]` is the hop to the next stage.

    `late_s[stage]` is what the last send of a stage, backwards, takes longer than others.
    """
    late_s = np.zeros(len(order)) if late_s is None else late_s
    *found, left = _play(order, races, send_s, late_s, blocking, chunks, microbatches)
    if left:
        raise ValueError(f"the schedule waits for itself: {left} passes can never start")
    return Events(*found)
