"""One step on every GPU, each at its clock of the moment: the inner part of the loop, as machine code.

A GPU works through slices; every 25 ms a box of its power ends, warms its die and moves its clock.
Where a collective ends a slice the members of its group wait for the last of them, polling. A pass waits for its input.
Equation: seconds of a slice at a clock as in simulate/slices.py; watts, the clock after a box and the rise of each fast
pole as in gpu/physics.py.
Source: those files.
Ignores: that a clock moves inside a box; sinks, which are held (simulate/steady.py).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.gpu.physics import Board, Energy, OperatingPoint, dynamic_j, next_clock, operating_point, relax, standing_w
from charllm.jit import compiled
from charllm.simulate.slices import (
    ALONE,
    ALONE_CYCLES,
    BOARD_J,
    CORE_J,
    CYCLES,
    FIXED,
    LAUNCHED,
    LAUNCHED_CYCLES,
    LAUNCHING,
    LAUNCHING_CYCLES,
    LEAST,
    MATRIX_J,
    POLL,
    SYNCED,
    SYNCED_CYCLES,
    Slices,
)
from charllm.simulate.step_end import CLOSING, GRADIENTS, PARTS, UPDATE, WEIGHTS, StepEnds

(CLOCK, MEAN_W, TIME, BOX_LEFT, BOX_J, CAUSE, TEMPERATURE, AIR_C, SILICON, BOX_HEAT_J, LAST_W, BRAKE_HZ,
 HOST_FREE, CLOSING_S, INTERVAL, CORE, MATRIX_CORE, LEVEL, MEMORY, POLES) = range(20)  # fmt: skip
"""State of a GPU: clock, mean power over a second, its time, what is left of the box and what it took, what
holds the clock, die temperature, what lies under its fast poles, its power over the typical,
joules of the box that warm the die, power of the box before, clock a brake leaves it, when its host has launched
what came so far, seconds of work since its last backward pass began; what its clock decides: interval between knots,
fields of OperatingPoint; then all rises that follow within a step: of memory, and the poles of the die."""
(ENERGY, CLOCK_S, CLOCK2_S, PEAK_W, SENSOR_W, HOT_C, COLD_C, HEAT_S, POWER_S, THERMAL_S, BRAKE_S, POWER_LOSS,
 THERMAL_LOSS, BRAKE_LOSS, GROUP_WAIT, INPUT_WAIT, BUSY, HOST_S, EXCHANGED_S, UPDATE_HOST_S,
 STRAGGLER_S, MEMORY_HOT_C, MEMORY_HEAT_S) = range(23)  # fmt: skip
"""Sums over a step: joules, clock x time, its square, highest watts of a slice and of a box, highest and lowest
degrees, degrees x time, seconds under each cause, clock lost to each x time, waits in groups and for input, seconds of
work, those that the GPU waited for launches in passes, those of exchanges that end a step, those that it then
waited for its host, those that the slowest of equal GPUs is behind; highest
degrees of memory, degrees x time."""
SUMS, SIGNALS = 23, 4
STAGE, PROGRAM, SOURCE, CLOSES = range(4)
"""Columns of a turn: its stage, its pass, the turn whose output it needs, whether its stage goes backward no more."""
TOTALS = (ENERGY, CLOCK_S, CLOCK2_S, *range(HEAT_S, MEMORY_HOT_C), MEMORY_HEAT_S)
"""Sums that grow with time; the others are extremes."""
POLLING, IDLE = range(2)
"""Slices of a GPU that waits: for others, and for its host."""
ENDING = ("stage", "gradients", "others", "update", "host", "weights", "last")
"""Where a GPU's moments are noted at the end of a step: waits, and parts that it works through."""
SHORTEST_S = 1e-12
SAME_FRACTION = 1e-9
"""Passes that differ by less take equally long."""


def board_rows(boards: Sequence[Board]) -> Any:
    """Return constants of several kinds of boards as records that compiled code reads by name."""
    return np.array(list(boards), dtype=[(name, np.float64) for name in Board._fields]).view(np.recarray)


class GpuStates(NamedTuple):
    """GPUs at work: what they are, how they stand, and what is written down of them."""

    state: Floats
    """[gpu, state]"""
    sums: Floats
    """[gpu, sum]"""
    kind: Ints
    """[gpu] its kind; what follows is told by it."""
    knots: Floats
    """[kind, knot] hertz, highest first: a slice has a row for each interval between two (simulate/knots.py)."""
    boards: Any
    """[kind] records with the fields of Board."""
    resistance: Floats
    """[kind, pole] of the die and what follows it fast."""
    memory: Floats
    """[kind, (K at rest, K per watt of the board, K per watt of traffic)] fields of MemoryHeat."""
    decay: Floats
    """[kind, rise] what a box leaves of a difference: of memory, then of each pole."""
    series: Floats
    """[gpu, box, (watts, degrees, hertz, cause)] of the first GPUs; clock and cause hold from the end of the box."""
    cluster: Floats
    """[box] watts of all GPUs that the simulated ones stand for."""
    weights: Floats
    """[position] how many GPUs each simulated one stands for; the same in every stage."""
    passes: Floats
    """[turn, position, (start, end, clock, wait)] of each pass: seconds of the step, mean hertz, and how long it waited
    for members of its groups."""
    watched: int
    """GPU whose moments are noted, or -1."""
    moments: Floats
    """Next free place, then the watched GPU's time before and after each point where it may wait: before a pass, after
    each of its slices, and around each of ENDING."""


def set_clock(states: GpuStates, gpu: int, clock_hz: float) -> None:
    """Give one GPU a clock, and what that decides."""
    state, kind = states.state, states.kind[gpu]
    board, knots = states.boards[kind], states.knots
    at = operating_point(board, clock_hz, min(clock_hz, board.matrix_clock_hz))
    interval = 0
    while interval < knots.shape[1] - 2 and clock_hz < knots[kind, interval + 1]:
        interval += 1
    state[gpu, CLOCK], state[gpu, INTERVAL] = clock_hz, interval
    state[gpu, CORE], state[gpu, MATRIX_CORE], state[gpu, LEVEL] = at.core, at.matrix, at.level


def spend(states: GpuStates, gpu: int, table: Floats, kind: int, item: int, least_s: float) -> None:
    """Let one GPU do a slice, however often its clock moves meanwhile; `least_s` bounds its length from below.

    `table[kind, item, interval between knots]` is the slice, which takes as long at any clock where it has one row; its
    host is `late_s` behind its GPU where the slice begins.
    """
    state, sums, board = states.state, states.sums, states.boards[states.kind[gpu]]
    silicon, began_s, late_s = state[gpu, SILICON], state[gpu, TIME], state[gpu, HOST_FREE] - state[gpu, TIME]
    clock, at = state[gpu, CLOCK], 0
    left = 1.0
    while left > SHORTEST_S:
        clock, temperature, box_left_s = state[gpu, CLOCK], state[gpu, TEMPERATURE], state[gpu, BOX_LEFT]
        at = min(int(state[gpu, INTERVAL]), table.shape[2] - 1)
        work = Energy(table[kind, item, at, MATRIX_J], table[kind, item, at, CORE_J], table[kind, item, at, BOARD_J])
        cycles = table[kind, item, at, CYCLES]
        active = 1.0 if max(cycles, work.board_j + work.core_j + work.matrix_j) > 0 else 0.0
        cycle_s = 1 / clock
        gpu_s = max(least_s, cycles * cycle_s + table[kind, item, at, FIXED])
        launched_s = late_s + table[kind, item, at, LAUNCHED_CYCLES] * cycle_s + table[kind, item, at, LAUNCHED]
        alone_s = table[kind, item, at, ALONE_CYCLES] * cycle_s + table[kind, item, at, ALONE]
        length_s = max(gpu_s, alone_s, launched_s, table[kind, item, at, LEAST])
        if length_s <= SHORTEST_S:
            break
        point = OperatingPoint(state[gpu, CORE], state[gpu, MATRIX_CORE], state[gpu, LEVEL])
        standing = standing_w(board, point.level, temperature, silicon, table[kind, item, at, POLL], active)
        watts = standing + dynamic_j(point, work, silicon) / length_s
        step_s = min(left * length_s, box_left_s)
        left -= step_s / length_s
        state[gpu, TIME] += step_s
        state[gpu, BOX_LEFT] = box_left_s - step_s
        state[gpu, BOX_J] += watts * step_s
        state[gpu, BOX_HEAT_J] += (watts - board.off_die_fraction * work.board_j / length_s) * step_s
        sums[gpu, ENERGY] += watts * step_s
        sums[gpu, CLOCK_S] += clock * step_s
        sums[gpu, CLOCK2_S] += clock * clock * step_s
        sums[gpu, HEAT_S] += temperature * step_s
        sums[gpu, MEMORY_HEAT_S] += (state[gpu, AIR_C] + state[gpu, MEMORY]) * step_s
        sums[gpu, PEAK_W] = max(sums[gpu, PEAK_W], watts)
        if active > 0:
            sums[gpu, BUSY] += step_s
            state[gpu, CLOSING_S] += step_s * gpu_s / length_s
            sums[gpu, HOST_S] += step_s * (1 - gpu_s / length_s)
        cause = int(state[gpu, CAUSE])
        if cause > 0:
            sums[gpu, POWER_S + cause - 1] += step_s
            sums[gpu, POWER_LOSS + cause - 1] += max(0.0, board.asked_clock_hz - clock) * step_s
        if box_left_s - step_s <= SHORTEST_S:
            end_box(states, gpu, standing)
    launching_s = table[kind, item, at, LAUNCHING_CYCLES] / clock + table[kind, item, at, LAUNCHING]
    synced_s = table[kind, item, at, SYNCED_CYCLES] / clock + table[kind, item, at, SYNCED]
    state[gpu, HOST_FREE] = max(state[gpu, HOST_FREE] + launching_s, began_s + synced_s)


@compiled
def spend_rows(states: GpuStates, gpu: int, table: Floats, least_s: Floats) -> None:
    """Let one GPU work through the slices of a table in order, each for some seconds at least."""
    set_clock(states, gpu, states.state[gpu, CLOCK])
    for item in range(len(least_s)):
        spend(states, gpu, table, 0, item, least_s[item])


def note_moment(states: GpuStates) -> None:
    """Write down the time of the watched GPU."""
    place = int(states.moments[0])
    states.moments[place] = states.state[states.watched, TIME]
    states.moments[0] += 1


def end_box(states: GpuStates, gpu: int, standing: float) -> None:
    """Close a box of power: warm the die, move the clock, write it down."""
    state, sums, kind = states.state, states.sums, states.kind[gpu]
    board = states.boards[kind]
    box_s = board.tick_s
    box_w, heat_w = state[gpu, BOX_J] / box_s, state[gpu, BOX_HEAT_J] / box_s
    state[gpu, BOX_J] = state[gpu, BOX_HEAT_J] = 0.0
    temperature = state[gpu, AIR_C]
    for pole in range(states.resistance.shape[1]):
        target_k = heat_w * states.resistance[kind, pole]
        rise_k = relax(state[gpu, POLES + pole], target_k, states.decay[kind, 1 + pole])
        state[gpu, POLES + pole] = rise_k
        temperature += rise_k
    state[gpu, TEMPERATURE] = temperature
    rest_k, board_k_per_w, own_k_per_w = states.memory[kind, 0], states.memory[kind, 1], states.memory[kind, 2]
    memory_k = rest_k + board_k_per_w * box_w + own_k_per_w * (box_w - heat_w)
    state[gpu, MEMORY] = relax(state[gpu, MEMORY], memory_k, states.decay[kind, 0])
    memory_c = state[gpu, AIR_C] + state[gpu, MEMORY]
    sums[gpu, MEMORY_HOT_C] = max(sums[gpu, MEMORY_HOT_C], memory_c)
    sums[gpu, HOT_C] = max(sums[gpu, HOT_C], temperature)
    sums[gpu, COLD_C] = min(sums[gpu, COLD_C], temperature)
    sums[gpu, SENSOR_W] = max(sums[gpu, SENSOR_W], box_w)
    mean_w = state[gpu, MEAN_W] + (box_w - state[gpu, MEAN_W]) * (1 - board.mean_left_fraction)
    seen_w = (box_w + state[gpu, LAST_W]) / 2
    state[gpu, MEAN_W], state[gpu, LAST_W] = mean_w, box_w
    clock, cause = next_clock(
        board, state[gpu, CLOCK], seen_w, mean_w, standing, temperature, state[gpu, BRAKE_HZ], memory_c
    )
    set_clock(states, gpu, clock)
    state[gpu, CAUSE] = cause
    state[gpu, BOX_LEFT] = box_s
    box = int(state[gpu, TIME] / box_s + 0.5) - 1
    if 0 <= box < len(states.cluster):
        states.cluster[box] += states.weights[gpu % len(states.weights)] * box_w
        if gpu < len(states.series):
            series = states.series
            series[gpu, box, 0], series[gpu, box, 1] = box_w, temperature
            series[gpu, box, 2], series[gpu, box, 3] = clock, cause


@compiled
def simulate_steps(
    repeats: int, states: GpuStates, turns: Ints, begin_s: Floats, moved_s: Floats, sent_s: Floats, slices: Slices,
    members: Ints, offsets: Ints, ends: StepEnds, waiting: Floats, end: Floats,
) -> float:  # fmt: skip
    """Simulate a step some times in a row; returns when the last one ends."""
    ended_s = 0.0
    for _ in range(repeats):
        ended_s = simulate_step(states, turns, begin_s, moved_s, sent_s, slices, members, offsets, ends, waiting, end)
    return ended_s


def simulate_step(
    states: GpuStates, turns: Ints, begin_s: Floats, moved_s: Floats, sent_s: Floats, slices: Slices, members: Ints,
    offsets: Ints, ends: StepEnds, waiting: Floats, end: Floats,
) -> float:  # fmt: skip
    """Simulate one step on every GPU; returns when it ends. GPU g is position g % positions of stage g // positions.

    `begin_s` is when the data of each position is there, `ends` what ends a step, `waiting` holds the slices of each
    kind of GPU that polls and that idles, and `end` receives when each turn ends at each position; its last row is when
    the step can begin.
    """
    state, sums, passes, positions = states.state, states.sums, states.passes, len(states.weights)
    began_s, kept = state[0, TIME], passes.shape[1]
    for gpu in range(len(state)):
        set_clock(states, gpu, state[gpu, CLOCK])
        state[gpu, HOST_FREE] = state[gpu, TIME]
    for at in range(positions):
        end[len(turns), at] = began_s + begin_s[at]
    for turn in range(len(turns)):
        base, program, source = turns[turn, STAGE] * positions, turns[turn, PROGRAM], turns[turn, SOURCE]
        noted = base <= states.watched < base + positions
        if noted:
            note_moment(states)
        for at in range(positions):
            gpu = base + at
            wait = end[source, at] + moved_s[turn, at % moved_s.shape[1]] - state[gpu, TIME]
            if wait > 0:
                sums[gpu, INPUT_WAIT] += wait
                spend(states, gpu, waiting, states.kind[gpu], POLLING, wait)
            if turns[turn, CLOSES]:
                state[gpu, CLOSING_S] = 0.0
            if at < kept:
                passes[turn, at, 0] = state[gpu, TIME] - began_s
                passes[turn, at, 2] = -sums[gpu, CLOCK_S]
                passes[turn, at, 3] = -sums[gpu, GROUP_WAIT]
        if noted:
            note_moment(states)
        for span in range(slices.first[program], slices.first[program + 1]):
            for _ in range(slices.spans[span, 2]):
                for item in range(slices.spans[span, 0], slices.spans[span, 1]):
                    for gpu in range(base, base + positions):
                        spend(states, gpu, slices.table, states.kind[gpu], item, 0.0)
                    if noted:
                        note_moment(states)
                    if slices.group_barriers[item]:
                        wait_for_groups(states, slices.group_barriers[item], members, offsets, base, waiting)
                    if noted:
                        note_moment(states)
        for at in range(positions):
            gpu = base + at
            end[turn, at] = state[gpu, TIME]
            if at < kept:
                ended_s = state[gpu, TIME] - began_s
                length_s = max(SHORTEST_S, ended_s - passes[turn, at, 0])
                passes[turn, at, 1] = ended_s
                passes[turn, at, 2] = (sums[gpu, CLOCK_S] + passes[turn, at, 2]) / length_s
                passes[turn, at, 3] += sums[gpu, GROUP_WAIT]
            if sent_s[turn, at % sent_s.shape[1]] > 0:
                spend(states, gpu, waiting, states.kind[gpu], POLLING, sent_s[turn, at % sent_s.shape[1]])
    return finish_step(states, ends, waiting, began_s)


def wait_for_groups(states: GpuStates, mask: int, members: Ints, offsets: Ints, base: int, waiting: Floats) -> None:
    """Let the members of each group that a slice's collectives join wait for the last of them."""
    state = states.state
    for group in range(len(offsets)):
        if not mask >> group & 1:
            continue
        for row in range(offsets.shape[1] - 1):
            first, after = offsets[group, row], offsets[group, row + 1]
            if after - first < 2:
                continue
            latest = 0.0
            for place in range(first, after):
                latest = max(latest, state[base + members[group, place], TIME])
            for place in range(first, after):
                gpu = base + members[group, place]
                wait = latest - state[gpu, TIME]
                if wait > 0:
                    states.sums[gpu, GROUP_WAIT] += wait
                    spend(states, gpu, waiting, states.kind[gpu], POLLING, wait)


def finish_step(states: GpuStates, ends: StepEnds, waiting: Floats, began_s: float) -> float:
    """Exchange gradients in each stage, wait for the last of all, update, wait for hosts and exchange weights.

    An exchange begins when the slowest GPU of a stage has something to give.
    """
    positions = len(states.weights)
    for base in range(0, len(states.state), positions):
        last_s, longest_s = latest_time(states, base, base + positions), 0.0
        for gpu in range(base, base + positions):
            longest_s = max(longest_s, states.state[gpu, CLOSING_S])
        for gpu in range(base, base + positions):
            states.state[gpu, CLOSING_S] = longest_s
            wait_until(states, gpu, last_s, waiting, GROUP_WAIT)
            end_part(states, ends, gpu, GRADIENTS)
    gradients_at_s = latest_time(states, 0, len(states.state))
    for gpu in range(len(states.state)):
        kind, stage = states.kind[gpu], gpu // positions
        wait_until(states, gpu, gradients_at_s, waiting, INPUT_WAIT)
        end_part(states, ends, gpu, UPDATE)
        begun_s = states.state[gpu, HOST_FREE]
        if ends.reads_norm:
            begun_s = max(begun_s, gradients_at_s)
        done_s = max(begun_s + ends.launch_s[kind, stage], gradients_at_s + ends.offloaded_s[kind, stage])
        wait_until(states, gpu, max(done_s, states.state[gpu, TIME]), waiting, UPDATE_HOST_S)
        end_part(states, ends, gpu, WEIGHTS)
    last_s = latest_time(states, 0, len(states.state))
    behind_s = ends.straggling_fraction * (last_s - began_s)
    for gpu in range(len(states.state)):
        states.sums[gpu, GROUP_WAIT] -= behind_s
        states.sums[gpu, STRAGGLER_S] += behind_s
        wait_until(states, gpu, last_s + behind_s, waiting, GROUP_WAIT)
    return float(last_s + behind_s)


def end_part(states: GpuStates, ends: StepEnds, gpu: int, part: int) -> None:
    """Let one GPU do a part of the end of its step; what is left of an exchange follows the work that hid it."""
    kind, stage, least_s = states.kind[gpu], gpu // len(states.weights), 0.0
    closing_s = states.state[gpu, CLOSING_S]
    if part != UPDATE:
        place, share = place_between(states, ends.times_s, gpu, stage)
        before_s, after_s = ends.times_s[kind, stage, place, 1 + part], ends.times_s[kind, stage, place + 1, 1 + part]
        least_s = before_s + share * (after_s - before_s)
        states.sums[gpu, EXCHANGED_S] += least_s
    if gpu == states.watched:
        note_moment(states)
    spend(states, gpu, ends.rows, kind, PARTS * stage + part, least_s)
    # What ends a step hides nothing.
    states.state[gpu, CLOSING_S] = closing_s
    if gpu == states.watched:
        note_moment(states)


def place_between(states: GpuStates, times_s: Floats, gpu: int, stage: int) -> tuple[int, float]:
    """Return the knot at which the work since a stage's last backward pass takes as long, and its share of the way on.

    Work that no clock changes takes as long at several knots: then the clock decides.
    """
    kind, clock, took_s = states.kind[gpu], states.state[gpu, CLOCK], states.state[gpu, CLOSING_S]
    place = int(states.state[gpu, INTERVAL])
    while place < times_s.shape[2] - 2 and took_s > (1 + SAME_FRACTION) * times_s[kind, stage, place + 1, CLOSING]:
        place += 1
    while place > 0 and took_s < (1 - SAME_FRACTION) * times_s[kind, stage, place, CLOSING]:
        place -= 1
    shorter_s, longer_s = times_s[kind, stage, place, CLOSING], times_s[kind, stage, place + 1, CLOSING]
    if longer_s - shorter_s > SAME_FRACTION * longer_s:
        share = (took_s - shorter_s) / (longer_s - shorter_s)
    else:
        high, low = states.knots[kind, place], states.knots[kind, place + 1]
        share = (1 / clock - 1 / high) / (1 / low - 1 / high) if low > 0 else 0.0
    return place, min(1.0, max(0.0, share))


def latest_time(states: GpuStates, first: int, after: int) -> float:
    """Return when the last of some GPUs in a row is where it is."""
    latest = 0.0
    for gpu in range(first, after):
        latest = max(latest, states.state[gpu, TIME])
    return latest


def wait_until(states: GpuStates, gpu: int, time_s: float, waiting: Floats, cause: int) -> None:
    """Let one GPU wait until a time; `cause` is the column of the sums that the wait is added to."""
    wait = time_s - states.state[gpu, TIME]
    states.sums[gpu, cause] += wait
    if gpu == states.watched:
        note_moment(states)
    spend(states, gpu, waiting, states.kind[gpu], IDLE if cause == UPDATE_HOST_S else POLLING, wait)
    if gpu == states.watched:
        note_moment(states)
