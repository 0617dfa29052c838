"""The passes of all stages in one order in which each comes after what it needs, and what their transfers take."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.network.constants import NetworkConstants
from charllm.timeline.passes import hidden_axes
from charllm.timeline.schedules import BACKWARD, FORWARD, needed_pass, order_arrays
from charllm.timeline.step_time import hop_seconds
from charllm.workload.step import Step

NOWHERE = -1


class Turns(NamedTuple):
    """The passes of all stages, each after what it needs: arrays of one entry a pass."""

    stage: Ints
    program: Ints
    """Which pass of which chunk: the row of `first` in simulate/slices.py."""
    source: Ints
    """The turn whose result it needs, or NOWHERE."""
    hop_in: Ints
    """The stage from which that result is sent on, or NOWHERE."""
    hop_out: Ints
    """The hop its own result takes, or NOWHERE."""
    closes: Ints
    """1 for the last backward pass of a stage, under which gradients are exchanged; without any, for its last pass."""


def turn_hops(step: Step, turns: Turns, late_s: Floats, network: NetworkConstants) -> tuple[Floats, Floats]:
    """Return for each turn how long its input travels, and how long its own send keeps its stage."""
    # NOWHERE is the last entry, which takes no time.
    hop_s = np.append(hop_seconds(step, network), 0.0)
    moved_s, sent_s = hop_s[turns.hop_in], hop_s[turns.hop_out]
    if late_s.any():
        late = np.zeros(len(turns.stage))
        for stage, own_s in enumerate(late_s):
            late[turns.stage == stage] = own_s
        moved_s = moved_s + np.where(turns.hop_in == NOWHERE, 0.0, late[turns.source])
        sent_s = sent_s + late
    return moved_s, sent_s * ("pp" not in hidden_axes(step.run))


@lru_cache(maxsize=256)
def order_turns(schedule: str, pp: int, vpp: int, microbatches: int) -> Turns:
    """Put the passes of all stages in an order in which each comes after what it needs."""
    orders, chunks = order_arrays(schedule, pp, vpp, microbatches).tolist(), pp * vpp
    turns: list[tuple[int, int, int, int, int]] = []
    turn_of: dict[tuple[int, int, int], int] = {}
    places = [0] * pp
    while len(turns) < pp * len(orders[0]):
        before = len(turns)
        for stage, order in enumerate(orders):
            for kind, chunk, microbatch in order[places[stage] :]:
                needs = needed_pass(kind, chunk, chunks)
                source = turn_of.get((*needs, microbatch)) if needs else NOWHERE
                if source is None:
                    break
                turn_of[kind, chunk, microbatch] = len(turns)
                hop_in = _hop(chunk, needs[1] if needs else chunk, pp)
                turns.append(
                    (stage, kind * chunks + chunk, source, hop_in, _hop(chunk, _next(kind, chunk, chunks), pp))
                )
                places[stage] += 1
        if len(turns) == before:
            raise ValueError(f"the schedule deadlocks after {before} passes")
    stages, programs, *others = np.array(turns, dtype=np.int64).T.copy()
    closes, backward = np.zeros_like(stages), programs // chunks == BACKWARD
    closing = backward if backward.any() else np.ones_like(backward)
    for stage in range(pp):
        closes[np.flatnonzero(closing & (stages == stage))[-1]] = 1
    source, hop_in, hop_out = others
    return Turns(stages, programs, source, hop_in, hop_out, closes)


def _next(kind: int, chunk: int, chunks: int) -> int:
    """Return the chunk that a pass hands its result to: its own when there is none."""
    if kind == FORWARD:
        return min(chunk + 1, chunks - 1)
    return max(chunk - 1, 0) if kind == BACKWARD else chunk


def _hop(chunk: int, other: int, pp: int) -> int:
    """Return the hop between neighbouring chunks: the stage of the earlier one."""
    return NOWHERE if chunk == other or pp == 1 else min(chunk, other) % pp
