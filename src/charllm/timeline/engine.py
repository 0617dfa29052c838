"""When each pass of each stage runs: dependency-exact events over a schedule.

A pass begins when its stage is free, its input has arrived and the host has launched it; the host of a stage launches
passes in order. Where gradients of a chunk leave as soon as its last backward pass has them, sends of the stage meet
them on its NICs: while both are under way each has half, so that a send of s seconds beside exchanges with l seconds
left takes min(s, l) longer, and they do, too. Written for numba where it is installed, and the same without it, slower.
Equation: start = max(end of the stage's pass before and of its blocking send, end of the pass it needs + transfer); end
= the race of host and GPU from there (timeline/host_race.py).
Source: network/sharing.py for flows on the same NICs.
Ignores: stages that differ in their hosts; sends of a stage that meet each other on its NICs.
"""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.jit import compiled
from charllm.timeline.schedules import BACKWARD, FORWARD, WEIGHT


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
    late_s: Floats
    """What each item's own send took longer for gradients on the same NICs."""
    left_s: Floats
    """[stage] gradients that were left to exchange when its last pass ended, in seconds alone on the NICs."""
    launched_s: Floats
    """[stage] when the host has launched its last pass."""


class Progress(NamedTuple):
    """How far a schedule has come."""

    done_s: Floats
    """[pass, chunk, microbatch] when it ended, or -1."""
    delay_s: Floats
    """[chunk, microbatch] what its gradient's send took longer."""
    drained_s: Floats
    """[stage] since when what is left of its gradients has had the NICs."""
    place: Ints
    """[stage] the next item of its order."""


class Flows(NamedTuple):
    """Gradients that leave while a stage still works, one entry a stage."""

    gradients_s: Floats
    """Exchange of one chunk's, alone."""
    bucket_s: Floats
    """What of it comes after the pass at least: its last bucket."""
    shares_nics: Floats
    """1 where sends over the hop to the next stage leave through the same NICs."""


def _left(left_s: float, since_s: float, now_s: float) -> float:
    """Return what is left of an exchange that has had its NICs since some time."""
    return max(0.0, left_s - (now_s - since_s))


@compiled
def _simulate(
    order: Ints, races: Floats, send_s: Floats, flows: Flows, blocking: bool, events: Events,
    progress: Progress,
) -> int:  # fmt: skip
    """Fill in the events; returns how many passes could never start."""
    gradients_s, bucket_s, shares_nics = flows
    start, end, arrival, transfer, free, held, late, left_s, host = events
    done, delay, drained, place = progress
    (stages, items, _), (chunks, microbatches) = order.shape, delay.shape
    left = stages * items
    while left > 0:
        before = left
        for stage in range(stages):
            while place[stage] < items:
                item = place[stage]
                kind, chunk, mb = order[stage, item]
                ready, moved = 0.0, 0.0
                if kind == FORWARD and chunk > 0:
                    ready = done[FORWARD, chunk - 1, mb]
                    moved = send_s[(chunk - 1) % stages] if stages > 1 else 0.0
                elif kind == BACKWARD and chunk < chunks - 1:
                    ready = done[BACKWARD, chunk + 1, mb]
                    moved = send_s[chunk % stages] + delay[chunk + 1, mb] if stages > 1 else 0.0
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
                if kind == BACKWARD and mb == microbatches - 1 and gradients_s[stage] > 0.0:
                    due_s = _left(left_s[stage], drained[stage], begin) + gradients_s[stage]
                    left_s[stage], drained[stage] = max(bucket_s[stage], due_s - (finish - begin)), finish
                sends = (kind == FORWARD and chunk < chunks - 1) or (kind == BACKWARD and chunk > 0)
                free[stage] = finish
                if sends and stages > 1:
                    link = chunk % stages if kind == FORWARD else (chunk - 1) % stages
                    if kind == BACKWARD and shares_nics[link] > 0.0 and left_s[stage] > 0.0:
                        left_s[stage], drained[stage] = _left(left_s[stage], drained[stage], finish), finish
                        late[stage, item] = delay[chunk, mb] = min(send_s[link], left_s[stage])
                        # The last send's seconds are added by what follows the passes.
                        left_s[stage] += late[stage, item] if item < items - 1 else 0.0
                    if blocking:
                        held[stage, item] = send_s[link] + late[stage, item]
                        free[stage] = finish + held[stage, item]
                place[stage] += 1
                left -= 1
        if left == before:
            break
    return int(left)


def simulate_schedule(
    order: Ints,
    races: Floats,
    send_s: Floats,
    flows: Flows | None = None,
    *,
    blocking: bool,
    chunks: int,
    microbatches: int,
) -> Events:
    """Run a schedule: `races[pass, chunk]` holds a Race, `send_s[stage]` is the hop to the next stage."""
    stages, items, _ = order.shape
    nothing = np.zeros(stages)
    shapes = (*[(stages, items)] * 4, stages, *[(stages, items)] * 2, stages, stages)
    events = Events(*[np.zeros(shape) for shape in shapes])
    done_s, delay_s = np.full((3, chunks, microbatches), -1.0), np.zeros((chunks, microbatches))
    progress = Progress(done_s, delay_s, np.zeros(stages), np.zeros(stages, dtype=np.int64))
    left = _simulate(order, races, send_s, flows or Flows(nothing, nothing, nothing), blocking, events, progress)
    if left:
        raise ValueError(f"the schedule deadlocks: {left} passes can never start")
    return events
