"""Every op of every layer and microbatch on every GPU as an event of its own, so that GPUs may differ.

Passes, schedule and ending of a step are those of `step_time`, and so is its time when GPUs are equal. A kernel on rank
r takes its seconds x slower[r]. A collective begins when the last member of its group has come to it and takes as long
for all: the others wait. Activations go between ranks at the same position of neighbouring stages.

Equation: host h += launch; GPU g = max(g, h) + seconds, where a collective first raises g to its group's latest.
Ignores: how a slower kernel changes what hides under it (a hidden collective, too, is waited for where it stands in the
pass); what a slower rank adds to its update.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from charllm.cost.calibration import CALIBRATION, Calibration
from charllm.jit import jit
from charllm.layout.grid import GROUPS, Grid, cached_groups
from charllm.spec.parallelism import Parallelism
from charllm.timeline.engine import Floats
from charllm.timeline.passes import ChunkPasses, Item
from charllm.timeline.schedules import BACKWARD, FORWARD, WEIGHT, needed_pass, order_arrays
from charllm.timeline.step_time import finish_step, hop_seconds, time_step
from charllm.workload.step import Step

Ints = NDArray[np.int64]

KERNEL, HOST, SYNC = -1, -2, -3
"""What an item is; from 0: a collective, and which of GROUPS it is on."""
CODES = {"kernel": KERNEL, "host": HOST, "sync": SYNC, **{group: place for place, group in enumerate(GROUPS)}}
NOWHERE = -1


class UnfoldedStep(NamedTuple):
    """When a step ends; for each rank when its passes end, and what it waits for."""

    step_time_s: float
    free_s: Floats
    """[rank] its last pass has ended, and been sent where sends block."""
    collective_wait_s: Floats
    """[rank] in collectives of its passes, for slower members of their groups."""
    input_wait_s: Floats
    """[rank] between passes, for the neighbouring stage and the transfer from it."""
    exchange_wait_s: Floats
    """[rank] after its last pass, for the slowest rank of its stage."""
    op_events: int
    """Ops and collectives, each counted on each GPU that takes part."""


class Turns(NamedTuple):
    """The passes of all stages, each after what it needs: arrays of one entry a pass."""

    stage: Ints
    program: Ints
    """Which pass of which chunk: the row of _Program.first."""
    source: Ints
    """The turn whose result it needs, or NOWHERE."""
    hop_in: Ints
    """The stage from which that result is sent on, or NOWHERE."""
    hop_out: Ints
    """The hop its own result takes, or NOWHERE."""


class _Program(NamedTuple):
    """What passes consist of: pass i is the spans first[i] to first[i + 1], a span some items several times over."""

    first: Ints
    spans: Ints
    """[span, (first item, item after the last, repeats)]"""
    codes: Ints
    seconds: Floats
    launch_s: Floats


def play_unfolded(step: Step, calibration: Calibration = CALIBRATION, slower: ArrayLike | None = None) -> UnfoldedStep:
    """Play one step on all ranks; `slower[rank]` is the time of its kernels over what they are priced at."""
    degrees = step.run.parallelism
    ranks = _ranks(degrees)
    factors = np.ones(degrees.world) if slower is None else np.asarray(slower, dtype=np.float64)
    if factors.shape != (degrees.world,) or not np.all(factors > 0):
        raise ValueError(f"slower: one factor above 0 for each of {degrees.world} ranks")
    folded = time_step(step, calibration)
    turns = order_turns(degrees.schedule, degrees.pp, degrees.vpp, step.run.microbatches)
    moved_s, sent_s = turn_hops(step, turns, folded.events.late_s, calibration)
    free, wait, idle = _play_turns(
        turns.stage,
        turns.program,
        turns.source,
        moved_s,
        sent_s,
        *_program(folded.passes),
        *_groups(degrees),
        factors[ranks],
    )
    slowest = free.max(axis=1)
    ended = finish_step(step, folded, slowest, calibration)
    by_rank = np.argsort(ranks, axis=None)
    return UnfoldedStep(
        ended.step_time_s,
        free.ravel()[by_rank],
        wait.ravel()[by_rank],
        idle.ravel()[by_rank],
        (slowest[:, None] - free).ravel()[by_rank],
        folded.op_events,
    )


def turn_hops(step: Step, turns: Turns, late_s: Floats, calibration: Calibration) -> tuple[Floats, Floats]:
    """Return for each turn how long its input travels, and how long its own send keeps its stage."""
    # NOWHERE is the last entry, which takes no time.
    hop_s = np.append(hop_seconds(step, calibration), 0.0)
    moved_s, sent_s = hop_s[turns.hop_in], hop_s[turns.hop_out]
    if late_s.any():
        late = np.zeros(len(turns.stage))
        for stage, own_s in enumerate(late_s):
            late[turns.stage == stage] = own_s
        moved_s = moved_s + np.where(turns.hop_in == NOWHERE, 0.0, late[turns.source])
        sent_s = sent_s + late
    return moved_s, sent_s * ("pp" not in step.run.parallelism.overlap)


def _ranks(degrees: Parallelism) -> Ints:
    """Return the rank at each [stage, position]."""
    grid = Grid(degrees)
    return grid.rank(np.arange(grid.positions)[None, :], np.arange(degrees.pp)[:, None])


@lru_cache(maxsize=256)
def _groups(degrees: Parallelism) -> tuple[Ints, Ints]:
    """Return for each of GROUPS the positions of a stage, group after group, and how many make a group."""
    grid = Grid(degrees)
    members = np.tile(np.arange(grid.positions), (len(GROUPS), 1))
    sizes = np.ones(len(GROUPS), dtype=np.int64)
    for place, group in enumerate(GROUPS):
        if group != "pp":
            rows = cached_groups(degrees, group)
            # All stages are grouped alike, and the first one's groups come first.
            members[place] = grid.position(rows[: len(rows) // degrees.pp]).ravel()
            sizes[place] = rows.shape[1]
    return members, sizes


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
            raise ValueError(f"the schedule waits for itself after {before} passes")
    return Turns(*np.array(turns, dtype=np.int64).T.copy())


def _next(kind: int, chunk: int, chunks: int) -> int:
    """Return the chunk that a pass hands its result to: its own when there is none."""
    if kind == FORWARD:
        return min(chunk + 1, chunks - 1)
    return max(chunk - 1, 0) if kind == BACKWARD else chunk


def _hop(chunk: int, other: int, pp: int) -> int:
    """Return the hop between neighbouring chunks: the stage of the earlier one."""
    return NOWHERE if chunk == other or pp == 1 else min(chunk, other) % pp


def _program(passes: list[ChunkPasses]) -> _Program:
    """Write the passes of all chunks down, forward ones first; items that several of them share once."""
    items: list[Item] = []
    begins: dict[int, int] = {}
    first, spans = [0], []
    for kind in (FORWARD, BACKWARD, WEIGHT):
        for one in passes:
            for span in one[kind].spans:
                begin = begins.setdefault(id(span.items), len(items))
                if begin == len(items):
                    items += span.items
                spans.append((begin, begin + len(span.items), span.repeats))
            first.append(len(spans))
    return _Program(
        np.array(first),
        np.array(spans, dtype=np.int64).reshape(-1, 3),
        np.array([CODES[item.group or item.kind] for item in items], dtype=np.int64),
        np.array([item.seconds for item in items]),
        np.array([item.launch_s for item in items]),
    )


@jit
def _play_turns(
    stages: Ints, programs: Ints, sources: Ints, moved_s: Floats, sent_s: Floats,
    first: Ints, spans: Ints, codes: Ints, seconds: Floats, launch_s: Floats,
    members: Ints, sizes: Ints, slower: Floats,
) -> tuple[Floats, Floats, Floats]:  # fmt: skip
    """Return when each [stage, position] is free, its waits in collectives and those for its input."""
    positions = slower.shape[1]
    gpu, host = np.zeros(slower.shape), np.zeros(slower.shape)
    wait, idle = np.zeros(slower.shape), np.zeros(slower.shape)
    # One row more, for what needs nothing: it is there at 0.
    end = np.zeros((len(stages) + 1, positions))
    for turn in range(len(stages)):
        stage, program = stages[turn], programs[turn]
        g, h, factor, waited = gpu[stage], host[stage], slower[stage], wait[stage]
        for at in range(positions):
            here = max(g[at], end[sources[turn], at] + moved_s[turn])
            idle[stage, at] += here - g[at]
            g[at] = here
        for span in range(first[program], first[program + 1]):
            for _ in range(spans[span, 2]):
                for item in range(spans[span, 0], spans[span, 1]):
                    code, takes, launch = codes[item], seconds[item], launch_s[item]
                    if code == KERNEL:
                        for at in range(positions):
                            h[at] += launch
                            g[at] = max(g[at], h[at]) + takes * factor[at]
                    elif code == HOST:
                        for at in range(positions):
                            h[at] += launch
                    elif code == SYNC:
                        for at in range(positions):
                            h[at] = max(h[at], g[at])
                    else:
                        for row in range(0, positions, sizes[code]):
                            latest = 0.0
                            for place in range(row, row + sizes[code]):
                                at = members[code, place]
                                h[at] += launch
                                g[at] = max(g[at], h[at])
                                latest = max(latest, g[at])
                            for place in range(row, row + sizes[code]):
                                at = members[code, place]
                                waited[at] += latest - g[at]
                                g[at] = latest + takes
        for at in range(positions):
            end[turn, at] = g[at]
            g[at] += sent_s[turn]
    return gpu, wait, idle
