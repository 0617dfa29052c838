"""What one rank sends in one step: every collective and send of the ops that the simulator prices, with its group."""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from charllm.errors import SpecError
from charllm.layout.grid import Grid, Ranks, cached_groups
from charllm.spec.parallelism import Parallelism
from charllm.workload.op import Op, is_communication
from charllm.workload.step import Step
from charllm.workload.totals import stage_ops


class Message(NamedTuple):
    """A collective or send as one rank calls it."""

    group: str
    """Kind of group (layout/grid.py)."""
    ranks: tuple[int, ...]
    """Members of the group, this rank among them."""
    kind: str
    """A key of workload/op.py:COLLECTIVES but ring_exchange, which is listed as its sends."""
    message_bytes: int
    """The larger of the rank's two buffers: what is gathered, what is reduced, what is sent."""


Messages = Counter[Message]
"""Message: how often a rank calls it in a step."""


def rank_messages(step: Step, rank: int) -> Messages:
    """Count every collective and send of one rank in one step."""
    world = step.run.parallelism.world
    if not 0 <= rank < world:
        raise SpecError("rank", rank, f"0 to {world - 1}")
    stage = int(Grid(step.run.parallelism).stage(rank))
    found: Messages = Counter()
    for op, times, _phase in stage_ops(step, stage):
        if is_communication(op):
            for kind, calls in list_calls(step, op):
                found[locate_message(step, rank, op, kind)] += round(times) * calls
    for op, times in _boundary_sends(step, stage):
        found[locate_message(step, rank, op, op.kind)] += times
    return found


def list_calls(step: Step, op: Op) -> Iterator[tuple[str, int]]:
    """List the kinds of call of an op and how many each is: a ring exchange is the sends that it is made of."""
    if op.kind == "ring_exchange":
        yield "send", Grid(step.run.parallelism).degree(op.group) - 1
    else:
        yield op.kind, 1


def locate_message(step: Step, rank: int, op: Op, kind: str) -> Message:
    """Return a call of an op as a message: with the ranks of this rank's group."""
    degrees, name = step.run.parallelism, op.group
    members = cached_groups(degrees, name)[_rows_by_rank(degrees, name)[rank]].tolist()
    return Message(name, tuple(sorted(members)), kind, round(op.message_bytes))


@lru_cache(maxsize=64)
def _rows_by_rank(degrees: Parallelism, group: str) -> Ranks:
    """Return for every rank which of the groups of a kind it is in."""
    rows = cached_groups(degrees, group)
    found = np.zeros(degrees.world, dtype=np.int64)
    found[rows] = np.arange(len(rows))[:, None]
    return found


def _boundary_sends(step: Step, stage: int) -> Iterator[tuple[Op, int]]:
    """List what a rank hands to other stages: activations to the next chunk, their gradients to the one before."""
    last = len(step.chunks) - 1
    for op in step.boundary_ops:
        for chunk in range(stage, len(step.chunks), step.run.parallelism.pp):
            yield op, step.run.microbatches * ((chunk < last) + (chunk > 0))
