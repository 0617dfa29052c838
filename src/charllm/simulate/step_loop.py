"""One step on every GPU, each at its clock of the moment: the inner part of the loop, as machine code.

A GPU works through slices; every 25 ms a box of its power ends, warms its die and moves its clock.
Where a collective ends a slice the members of its group wait for the last of them, polling. A pass waits for its input.
Equation: seconds of a slice at a clock as in simulate/slices.py; watts as in gpu/board.py; at the end of a box
x = R P + (x - R P) exp(-box / time constant) for each fast pole, and the clock moves as gpu/governor.py says.
Source: those files.
Ignores: that a clock moves inside a box; sinks, which are held (simulate/steady.py).
"""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.gpu.governor import Limits, next_clock
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
from charllm.simulate.step_end import LAST_PASS, UPDATE, StepEnds

(CLOCK, MEAN_W, TIME, BOX_LEFT, BOX_J, CAUSE, TEMPERATURE, AIR_C, SILICON, BOX_HEAT_J, LAST_W, BRAKE_HZ,
 HOST_FREE, PASS_S, POLES) = range(15)  # fmt: skip
"""State of a GPU: clock, mean power over a second, its time, what is left of the box and what it took, what
holds the clock, die temperature, what lies under its fast poles, its power over the typical,
joules of the box that warm the die, power of the box before, clock a brake leaves it, when its host has launched
what came so far, how long its last pass took; then the poles."""
(ENERGY, CLOCK_S, CLOCK2_S, PEAK_W, SENSOR_W, HOT_C, COLD_C, HEAT_S, POWER_S, THERMAL_S, BRAKE_S, POWER_LOSS,
 THERMAL_LOSS, BRAKE_LOSS, GROUP_WAIT, INPUT_WAIT, BUSY, HOST_S) = range(18)  # fmt: skip
"""Sums over a step: joules, clock x time, its square, highest watts of a slice and of a box, highest and lowest
degrees, degrees x time, seconds under each cause, clock lost to each x time, waits in groups and for input, seconds of
work, and those that the GPU waited for launches."""
SUMS, SIGNALS = 18, 4
TOTALS = (ENERGY, CLOCK_S, CLOCK2_S, *range(HEAT_S, SUMS))
"""Sums that grow with time; the others are extremes."""
(STATIC_W, CONTEXT_W, ACTIVE_W, LEAK, REFERENCE_C, SLOPE, REFERENCE_HZ, FLOOR, MAX_HZ, POLLING_W, OFF_DIE) = range(11)
"""Constants of a board's power, as gpu/board.py has them, and which share of memory's power the die never feels."""
CLOCK_MAX_HZ, MATRIX_CLOCK_HZ = (Limits._fields.index(name) for name in ("clock_max_hz", "matrix_clock_hz"))
SHORTEST_S = 1e-12


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
    board: Floats
    """[kind, constant]"""
    limits: Floats
    """[kind, field of Limits]"""
    resistance: Floats
    """[kind, pole] of the die and what follows it fast."""
    decay: Floats
    """[kind, pole] what a box leaves of a difference."""
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
    each of its slices, and twice at the end of a step."""


def read_limits(row: Floats) -> Limits:
    """Return a row of limits under their names."""
    return Limits(row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9], row[10], row[11],
                  row[12], row[13], row[14], row[15])  # fmt: skip


def find_interval(knots: Floats, clock_hz: float, intervals: int) -> int:
    """Return the interval between knots in which a clock lies; a slice with one row has it at any clock."""
    place = 0
    while place < intervals - 1 and clock_hz < knots[place + 1]:
        place += 1
    return place


def spend(states: GpuStates, gpu: int, rows: Floats, least_s: float) -> None:
    """Let one GPU do one slice, however often its clock moves meanwhile; `least_s` bounds its length from below.

    `rows[interval between knots]` are a slice; its host is `late_s` behind its GPU where the slice begins.
    """
    mine, total, kind = states.state[gpu], states.sums[gpu], states.kind[gpu]
    board, limits, knots = states.board[kind], states.limits[kind], states.knots[kind]
    began_s, late_s = mine[TIME], mine[HOST_FREE] - mine[TIME]
    clock, at = mine[CLOCK], 0
    left = 1.0
    while left > SHORTEST_S:
        clock = mine[CLOCK]
        at = find_interval(knots, clock, len(rows))
        working = max(rows[at, CYCLES], rows[at, BOARD_J] + rows[at, CORE_J] + rows[at, MATRIX_J]) > 0
        matrix_clock = min(clock, limits[MATRIX_CLOCK_HZ])
        cycle_s = 1 / clock
        gpu_s = max(least_s, rows[at, CYCLES] * cycle_s + rows[at, FIXED])
        launched_s = late_s + rows[at, LAUNCHED_CYCLES] * cycle_s + rows[at, LAUNCHED]
        alone_s = rows[at, ALONE_CYCLES] * cycle_s + rows[at, ALONE]
        length_s = max(gpu_s, alone_s, launched_s, rows[at, LEAST])
        if length_s <= SHORTEST_S:
            break
        # The equation of gpu/board.py, written out for machine code; a test holds both together.
        volts = max(board[FLOOR], 1 + board[SLOPE] * (clock - board[REFERENCE_HZ]))
        matrix_volts = max(board[FLOOR], 1 + board[SLOPE] * (matrix_clock - board[REFERENCE_HZ]))
        top_volts = max(board[FLOOR], 1 + board[SLOPE] * (board[MAX_HZ] - board[REFERENCE_HZ]))
        level = clock / board[MAX_HZ] * (volts / top_volts) ** 2
        leaking = mine[SILICON] * board[LEAK] * (mine[TEMPERATURE] - board[REFERENCE_C])
        standing = max(0.0, board[STATIC_W] + leaking)
        standing += level * (board[CONTEXT_W] + rows[at, POLL] * board[POLLING_W]) + (
            board[ACTIVE_W] if working else 0.0
        )
        core = mine[SILICON] * (rows[at, MATRIX_J] * matrix_volts**2 + rows[at, CORE_J] * volts**2)
        watts = standing + (core + rows[at, BOARD_J]) / length_s
        step_s = min(left * length_s, mine[BOX_LEFT])
        left -= step_s / length_s
        mine[TIME] += step_s
        mine[BOX_LEFT] -= step_s
        mine[BOX_J] += watts * step_s
        mine[BOX_HEAT_J] += (watts - board[OFF_DIE] * rows[at, BOARD_J] / length_s) * step_s
        total[ENERGY] += watts * step_s
        total[CLOCK_S] += clock * step_s
        total[CLOCK2_S] += clock * clock * step_s
        total[HEAT_S] += mine[TEMPERATURE] * step_s
        total[PEAK_W] = max(total[PEAK_W], watts)
        if working:
            total[BUSY] += step_s
            total[HOST_S] += step_s * (1 - gpu_s / length_s)
        cause = int(mine[CAUSE])
        if cause > 0:
            total[POWER_S + cause - 1] += step_s
            total[POWER_LOSS + cause - 1] += max(0.0, limits[CLOCK_MAX_HZ] - clock) * step_s
        if mine[BOX_LEFT] <= SHORTEST_S:
            end_box(states, gpu, standing)
    launching_s = rows[at, LAUNCHING_CYCLES] / clock + rows[at, LAUNCHING]
    mine[HOST_FREE] = max(mine[HOST_FREE] + launching_s, began_s + rows[at, SYNCED_CYCLES] / clock + rows[at, SYNCED])


@compiled
def spend_rows(states: GpuStates, gpu: int, rows: Floats, least_s: Floats) -> None:
    """Let one GPU work through rows in order."""
    for place in range(len(rows)):
        spend(states, gpu, rows[place], least_s[place])


def note_moment(states: GpuStates) -> None:
    """Write down the time of the watched GPU."""
    place = int(states.moments[0])
    states.moments[place] = states.state[states.watched, TIME]
    states.moments[0] += 1


def end_box(states: GpuStates, gpu: int, standing_w: float) -> None:
    """Close a box of power: warm the die, move the clock, write it down."""
    mine, total, kind = states.state[gpu], states.sums[gpu], states.kind[gpu]
    limits = read_limits(states.limits[kind])
    resistance, decay, box_s = states.resistance[kind], states.decay[kind], limits.tick_s
    box_w, heat_w = mine[BOX_J] / box_s, mine[BOX_HEAT_J] / box_s
    mine[BOX_J] = mine[BOX_HEAT_J] = 0.0
    temperature = mine[AIR_C]
    for pole in range(len(resistance)):
        target = heat_w * resistance[pole]
        mine[POLES + pole] = target + (mine[POLES + pole] - target) * decay[pole]
        temperature += mine[POLES + pole]
    mine[TEMPERATURE] = temperature
    total[HOT_C] = max(total[HOT_C], temperature)
    total[COLD_C] = min(total[COLD_C], temperature)
    total[SENSOR_W] = max(total[SENSOR_W], box_w)
    mine[MEAN_W] += (box_w - mine[MEAN_W]) * (1 - np.exp(-box_s / limits.mean_s))
    seen_w = (box_w + mine[LAST_W]) / 2
    mine[LAST_W] = box_w
    mine[CLOCK], cause = next_clock(limits, mine[CLOCK], seen_w, mine[MEAN_W], standing_w, temperature, mine[BRAKE_HZ])
    mine[CAUSE] = cause
    mine[BOX_LEFT] = box_s
    box = int(mine[TIME] / box_s + 0.5) - 1
    if 0 <= box < len(states.cluster):
        states.cluster[box] += states.weights[gpu % len(states.weights)] * box_w
        if gpu < len(states.series):
            states.series[gpu, box, 0], states.series[gpu, box, 1] = box_w, temperature
            states.series[gpu, box, 2], states.series[gpu, box, 3] = mine[CLOCK], cause


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

    `begin_s` is when the data of each position is there, `waiting` the slice of a GPU that polls, and `end` receives
    when each turn ends at each position; its last row is when the step can begin.
    """
    state, positions = states.state, len(states.weights)
    began_s = state[0, TIME]
    kept = states.passes.shape[1]
    for gpu in range(len(state)):
        state[gpu, HOST_FREE] = state[gpu, TIME]
    for at in range(positions):
        end[len(turns), at] = began_s + begin_s[at]
    for turn in range(len(turns)):
        base, program = turns[turn, 0] * positions, turns[turn, 1]
        noted = base <= states.watched < base + positions
        if noted:
            note_moment(states)
        for at in range(positions):
            wait = end[turns[turn, 2], at] + moved_s[turn, at % moved_s.shape[1]] - state[base + at, TIME]
            if wait > 0:
                states.sums[base + at, INPUT_WAIT] += wait
                spend(states, base + at, waiting, wait)
            state[base + at, PASS_S] = -state[base + at, TIME]
            if at < kept:
                states.passes[turn, at, 0] = state[base + at, TIME] - began_s
                states.passes[turn, at, 2] = -states.sums[base + at, CLOCK_S]
                states.passes[turn, at, 3] = -states.sums[base + at, GROUP_WAIT]
        if noted:
            note_moment(states)
        for span in range(slices.first[program], slices.first[program + 1]):
            for _ in range(slices.spans[span, 2]):
                for item in range(slices.spans[span, 0], slices.spans[span, 1]):
                    for at in range(positions):
                        spend(states, base + at, slices.table[states.kind[base + at], item], 0.0)
                    if noted:
                        note_moment(states)
                    if slices.group_barriers[item]:
                        wait_for_group(states, slices.group_barriers[item], members, offsets, base, waiting)
                    if noted:
                        note_moment(states)
        for at in range(positions):
            end[turn, at] = state[base + at, TIME]
            state[base + at, PASS_S] += state[base + at, TIME]
            if at < kept:
                one = states.passes[turn, at]
                one[1] = state[base + at, TIME] - began_s
                one[2] = (states.sums[base + at, CLOCK_S] + one[2]) / max(SHORTEST_S, one[1] - one[0])
                one[3] += states.sums[base + at, GROUP_WAIT]
            if sent_s[turn, at % sent_s.shape[1]] > 0:
                spend(states, base + at, waiting, sent_s[turn, at % sent_s.shape[1]])
    return float(finish(states, ends, waiting))


def wait_for_group(states: GpuStates, mask: int, members: Ints, offsets: Ints, base: int, waiting: Floats) -> None:
    """Let the members of each group that a slice's collectives join wait for the last of them."""
    for group in range(len(offsets)):
        if not mask >> group & 1:
            continue
        for row in range(offsets.shape[1] - 1):
            own = members[group, offsets[group, row] : offsets[group, row + 1]]
            if len(own) < 2:
                continue
            latest = 0.0
            for at in own:
                latest = max(latest, states.state[base + at, TIME])
            for at in own:
                wait = latest - states.state[base + at, TIME]
                if wait > 0:
                    states.sums[base + at, GROUP_WAIT] += wait
                    spend(states, base + at, waiting, wait)


def finish(states: GpuStates, ends: StepEnds, waiting: Floats) -> float:
    """Wait for the last GPU, then exchange, update and end the step together."""
    last_s = latest_time(states)
    for gpu in range(len(states.state)):
        wait_until(states, gpu, last_s, waiting, INPUT_WAIT)
        times_s = ends.times_s[states.kind[gpu], gpu // len(states.weights)]
        rows = ends.rows[states.kind[gpu], gpu // len(states.weights)]
        place, share = place_between(times_s, states.state[gpu, PASS_S])
        for part in range(len(rows)):
            least_s = times_s[place, 1 + part] + share * (times_s[place + 1, 1 + part] - times_s[place, 1 + part])
            spend(states, gpu, rows[part], 0.0 if part == UPDATE else least_s)
    last_s = latest_time(states)
    for gpu in range(len(states.state)):
        wait_until(states, gpu, last_s, waiting, GROUP_WAIT)
    return float(last_s)


def place_between(times_s: Floats, pass_s: float) -> tuple[int, float]:
    """Return the knot below which a pass of some length lies, and its share of the way to the next."""
    place = 0
    while place < len(times_s) - 2 and pass_s > times_s[place + 1, LAST_PASS]:
        place += 1
    width_s = times_s[place + 1, LAST_PASS] - times_s[place, LAST_PASS]
    if width_s <= SHORTEST_S:
        return place, 0.0
    return place, min(1.0, max(0.0, (pass_s - times_s[place, LAST_PASS]) / width_s))


def latest_time(states: GpuStates) -> float:
    """Return when the last GPU is where it is."""
    latest = 0.0
    for gpu in range(len(states.state)):
        latest = max(latest, states.state[gpu, TIME])
    return latest


def wait_until(states: GpuStates, gpu: int, time_s: float, waiting: Floats, cause: int) -> None:
    """Let one GPU wait until a time; `cause` is the column of the sums that the wait is added to."""
    wait = time_s - states.state[gpu, TIME]
    states.sums[gpu, cause] += wait
    if gpu == states.watched:
        note_moment(states)
    spend(states, gpu, waiting, wait)
    if gpu == states.watched:
        note_moment(states)
