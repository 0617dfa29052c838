"""Two time scales in one loop: a step is simulated with its sinks held, then sinks are carried on at the power it drew.

A step lasts seconds and its sinks move in tens of seconds, so that a step is simulated again only when they have moved.
The steady state is where simulated power and the sinks it warms agree; a run from cold is simulated now and then.
Equation: sink = target(power(sink)), with power as a round of the step gives it and target as gpu/heat.py; solved by
substitution, of a GPU that answers to a degree by s degrees less in steps of 1 / (1 + s).
Source: gpu/heat.py, gpu/physics.py.
Ignores: how the sinks of one step move within it (a step is taken to be short beside their time constant).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.gpu.heat import SINK, Network, network
from charllm.gpu.physics import Board, board_of, decay
from charllm.layout.grid import Grid
from charllm.layout.nodes import inlets_c
from charllm.layout.placement import place_ranks
from charllm.simulate import step_loop
from charllm.simulate.fold import Fold, fold_run
from charllm.simulate.gpu_kinds import (
    PricedKind,
    brake_clocks_hz,
    draw_silicon,
    find_kinds,
    price_kinds,
    slow_hops,
    slow_run,
)
from charllm.simulate.knots import stack_knots
from charllm.simulate.sinks import mean_c_of, power_w_of, sink_target_k
from charllm.simulate.slices import POLL, Slices, clocks_of, cut_passes, waiting_rows
from charllm.simulate.step_end import GRADIENTS, StepEnds, lay_step_ends
from charllm.spec.run import RunSpec
from charllm.timeline.constants import TIMELINE, TimelineConstants
from charllm.timeline.step_time import StepTime
from charllm.timeline.turns import Turns, order_turns, turn_hops
from charllm.workload.step import Step

SETTLED_K, SETTLED_POLES_K = 0.05, 0.2
"""Sinks that move less between two rounds are steady; poles above them, that follow within a step."""
MOST_ROUNDS = 24
MOST_SERIES, LONGEST_SERIES = 64, 20_000
"""GPUs whose signals are kept, and boxes of each."""
MOST_PASSES = 8_000_000
"""Passes whose times are kept, on as many positions of every stage as that allows."""
LEAST_ROUND_S = 2.0
"""Short steps are simulated several times in a round, for the governor looks back over a second."""
SETTLED_FRACTION, STILL_FRACTION = 5e-4, 1e-6
AVERAGED_S, KNOWN_FRACTION, MOST_AVERAGED = 12.0, 2e-4, 4096
"""How long a settled step is simulated at least where clocks move, how well its mean is then to be known, and how many
rounds times GPUs that may take: rounds of 2 s have a standard deviation of 0.02 to 0.3 %."""
TOLD_K, STEEPEST = 0.2, 50.0
"""Least move of a GPU that tells how it answers to moves, and the strongest answer that is followed."""
START_W = 500.0
"""Power from which poles and means begin; the loop ends the same from any."""


class SimulatedStep(NamedTuple):
    """What a step did to every simulated GPU, [stage x position], once it repeats itself."""

    step_time_s: float
    sums: Floats
    """[gpu, sum] of one step: see simulate/step_loop.py."""
    sink_k: Floats
    """[gpu] rise of its sink."""
    series: Floats
    """[gpu, box, (watts, degrees, hertz)] of the first GPUs."""
    cluster_w: Floats
    """[box] all GPUs together."""
    box_s: float
    rounds: int
    passes: Floats
    """[turn, position, (start, end, clock, wait for members of its groups)] of the last step of the round."""
    begun: Floats
    """[gpu, state] before the last round: the step, or as many of them as make up a round."""
    averaged_from: Floats
    """[gpu, state] before the rounds that sums and length are means over."""
    averaged: int
    """How many rounds those are."""


class Machine(NamedTuple):
    """What stays the same from round to round."""

    run: RunSpec
    open_s: float
    """Length of the step at the highest clock."""
    slices: Slices
    fold: Fold
    turns: Ints
    moved_s: Floats
    """[turn, position] how long its input travels; one column where all positions are alike."""
    sent_s: Floats
    """[turn, position] how long its own send keeps its stage."""
    priced: tuple[PricedKind, ...]
    """The kinds of GPUs that are simulated; what follows is told by them."""
    ends: StepEnds
    knots: Floats
    """[kind, knot] hertz, highest first."""
    boards: tuple[Board, ...]
    """Of each kind."""
    resistance: Floats
    """[kind, pole]"""
    memory: Floats
    """[kind, (rest, board, own)] of MemoryHeat."""
    decay: Floats
    """[kind, rise] of memory, then of each pole."""
    gpus: Ints
    """[gpu] its GPU in the cluster."""
    kind: Ints
    """[gpu] its kind."""
    representatives: Ints
    """[GPU of the cluster] which simulated GPU stands for it."""
    silicon: Floats
    """[gpu] its power over the typical, at equal work."""
    brake_hz: Floats
    """[gpu] the clock a brake leaves it, or the highest."""

    @property
    def board(self) -> Board:
        """Constants of the usual kind of GPU."""
        return self.boards[0]

    def update_s(self, kind: int, clock_hz: float) -> Floats:
        """[stage] how long the update takes on a kind of GPU at a clock."""
        return self.ends.update_s(kind, self.knots[kind], clock_hz)

    @property
    def node_kind(self) -> Ints:
        """[gpu] its kind of node."""
        return np.array([one.kind.node for one in self.priced])[self.kind]

    def moved_at(self, position: int) -> Floats:
        """[turn] how long its input travels at one position."""
        return np.asarray(self.moved_s[:, position % self.moved_s.shape[1]])

    def sent_at(self, position: int) -> Floats:
        """[turn] how long its own send keeps one position."""
        return np.asarray(self.sent_s[:, position % self.sent_s.shape[1]])

    @property
    def asked_hz(self) -> Floats:
        """[gpu] the clock that was asked for."""
        return np.array([board.asked_clock_hz for board in self.boards])[self.kind]


def build_machine(step: Step, timeline: TimelineConstants = TIMELINE) -> Machine:
    """Price a step on every kind of GPU and lay out everything a round needs."""
    run, degrees = step.run, step.run.parallelism
    fold = fold_run(run)
    gpus, representatives = _places(run, fold)
    kinds, kind = find_kinds(run, gpus)
    priced = price_kinds(step, kinds, timeline)
    slowest = max((one.times[0] for one in priced if one.kind.usual), key=lambda timed: timed.step_time_s)
    turns = order_turns(degrees.schedule, degrees.pp, degrees.vpp, run.microbatches)
    moved_s, sent_s = _hops(step, slowest, turns, fold)
    nodes = [run.cluster.kinds[one.node] for one in kinds]
    boards = tuple(board_of(node.gpu, one.conditions(run)) for node, one in zip(nodes, kinds, strict=True))
    nets = [network(node, run.cluster.cooling.of(0)) for node in nodes]
    return Machine(
        run=run,
        open_s=slowest.step_time_s,
        slices=cut_passes([one.times for one in priced]),
        fold=fold,
        turns=np.stack([turns.stage, turns.program, turns.source, turns.closes], axis=1),
        moved_s=moved_s,
        sent_s=sent_s,
        priced=tuple(priced),
        ends=lay_step_ends(step, [one.times for one in priced]),
        knots=stack_knots([clocks_of(one.times) for one in priced]),
        boards=boards,
        resistance=np.array([net.resistance_k_per_w[0, :SINK] for net in nets]),
        memory=np.array([net.memory[:3] for net in nets]),
        decay=np.array([decay(boards[0].tick_s, rise_times_s(net)) for net in nets]),
        gpus=gpus,
        kind=kind,
        representatives=representatives,
        silicon=draw_silicon(run, gpus),
        brake_hz=brake_clocks_hz(run, gpus, boards, kind),
    )


def _hops(step: Step, timed: StepTime, turns: Turns, fold: Fold) -> tuple[Floats, Floats]:
    """Return for [turn, position] how long an input travels, and how long a send keeps its stage."""
    run, late_s, constants = timed.costs.run, timed.events.late_s, timed.costs.network
    usual = [column[:, None] for column in turn_hops(replace(step, run=run), turns, late_s, constants)]
    conditions = step.run.conditions
    if run.parallelism.pp == 1 or not (conditions.slow_nic_nodes or conditions.slow_link_gpus):
        return usual[0], usual[1]
    nics, links = slow_hops(step.run, fold.positions)
    found = [np.repeat(column, len(fold.positions), axis=1) for column in usual]
    for slow_nics, slow_links in ((True, False), (False, True), (True, True)):
        chosen = np.vstack([(nics == slow_nics) & (links == slow_links), np.zeros_like(nics[:1])])
        slow = turn_hops(replace(step, run=slow_run(run, nics=slow_nics, links=slow_links)), turns, late_s, constants)
        for columns, times_s, hop in zip(found, slow, (turns.hop_in, turns.hop_out), strict=True):
            columns[:] = np.where(chosen[hop], times_s[:, None], columns)
    return found[0], found[1]


def _places(run: RunSpec, fold: Fold) -> tuple[Ints, Ints]:
    """Return the cluster's GPU of each simulated one, and which simulated one stands for each GPU of the cluster."""
    grid = Grid(run.parallelism)
    stages = np.arange(run.parallelism.pp)[:, None]
    placed = place_ranks(run)
    gpus = placed[grid.rank(fold.positions[None, :], stages)].ravel()
    everyone = placed[grid.rank(np.arange(grid.positions)[None, :], stages)]
    representatives = np.empty(run.cluster.gpus, dtype=np.int64)
    representatives[everyone] = stages * len(fold.positions) + fold.representative[None, :]
    return gpus, representatives


def start_state(machine: Machine, power_w: float = START_W, clock_fraction: float = 1.0) -> Floats:
    """Return GPUs that have drawn some power for long."""
    state = np.zeros((len(machine.gpus), step_loop.POLES + machine.resistance.shape[1]))
    state[:, step_loop.CLOCK] = np.minimum(clock_fraction * machine.asked_hz, machine.brake_hz)
    state[:, step_loop.BRAKE_HZ] = machine.brake_hz
    state[:, step_loop.MEAN_W] = power_w
    state[:, step_loop.BOX_LEFT] = machine.board.tick_s
    state[:, step_loop.SILICON] = machine.silicon
    state[:, step_loop.MEMORY :] = rises_k(machine, np.full(len(state), power_w))
    return state


def rises_k(machine: Machine, power_w: Floats) -> Floats:
    """[gpu, rise] to which some power without traffic drives memory and the poles of the die."""
    rest_k, board_k_per_w, _ = machine.memory[machine.kind].T
    return np.column_stack([rest_k + board_k_per_w * power_w, power_w[:, None] * machine.resistance[machine.kind]])


def shutdown_c(machine: Machine) -> Floats:
    """[gpu] temperature at which it turns itself off; infinite where none is known."""
    limits_c = [node.gpu.shutdown_temperature_c or np.inf for node in machine.run.cluster.kinds]
    return np.array(limits_c)[machine.node_kind]


def shuts_down(machine: Machine, simulated_step: SimulatedStep) -> bool:
    """Whether a GPU got so hot that it turned itself off."""
    return bool(np.any(simulated_step.sums[:, step_loop.HOT_C] >= shutdown_c(machine)))


def repeats_of(machine: Machine) -> int:
    """Return how often a step is simulated in a round: short ones several times."""
    return max(1, int(np.ceil(LEAST_ROUND_S / machine.open_s)))


def simulate_once(machine: Machine, state: Floats, sink_k: Floats, repeats: int | None = None) -> SimulatedStep:
    """Simulate a step with sinks held, several times over when it is short or as often as asked; `state` moves on."""
    return _simulate(machine, state, sink_k, -1, np.ones(1), repeats)


def add_steps(before: SimulatedStep | None, simulated_step: SimulatedStep, times: float) -> SimulatedStep:
    """Add a simulated step `times` over to what was simulated before; extremes are kept."""
    totals = list(step_loop.TOTALS)
    sums = simulated_step.sums.copy()
    sums[:, totals] *= times
    step_time_s = times * simulated_step.step_time_s
    if before is not None:
        sums[:, totals] += before.sums[:, totals]
        for column in (step_loop.PEAK_W, step_loop.SENSOR_W, step_loop.HOT_C, step_loop.MEMORY_HOT_C):
            sums[:, column] = np.maximum(sums[:, column], before.sums[:, column])
        sums[:, step_loop.COLD_C] = np.minimum(sums[:, step_loop.COLD_C], before.sums[:, step_loop.COLD_C])
        step_time_s += before.step_time_s
    return simulated_step._replace(step_time_s=step_time_s, sums=sums)


def average_rounds(machine: Machine, state: Floats, settled: SimulatedStep) -> SimulatedStep:
    """Average a settled step over further rounds where clocks move: where a step meets the governor's ticks differs."""
    clocks, square = settled.sums[:, step_loop.CLOCK_S], settled.sums[:, step_loop.CLOCK2_S]
    if np.all(square * settled.step_time_s <= (1 + STILL_FRACTION) * clocks**2):
        return settled
    least, most = AVERAGED_S / (settled.step_time_s * repeats_of(machine)), MOST_AVERAGED / len(state)
    total, lengths = settled, [settled.step_time_s]
    while len(lengths) < least or (1 < len(lengths) < most and _error_fraction(lengths) > KNOWN_FRACTION):
        one = simulate_once(machine, state, settled.sink_k)
        total = add_steps(total, one, 1.0)
        lengths.append(one.step_time_s)
    count, sums = len(lengths), total.sums.copy()
    sums[:, list(step_loop.TOTALS)] /= count
    mean_s = total.step_time_s / count
    return total._replace(step_time_s=mean_s, sums=sums, averaged_from=settled.begun, averaged=count)


def _error_fraction(lengths: Sequence[float]) -> float:
    """Return the standard error of a mean over that mean; of few lengths more, whose spread may be small by chance."""
    count = len(lengths)
    return float(np.std(lengths, ddof=1) / np.mean(lengths)) / sqrt(count) * (1 + 2 / count)


class Watched(NamedTuple):
    """What one simulated GPU did in a step besides its work, mean over the steps that were simulated."""

    waits_s: Floats
    """How long it waited wherever it may wait in its passes (step_loop.py)."""
    ends_s: dict[str, float]
    """How long each part of the end of a step took, by its name in step_loop.ENDING."""


def watch_gpu(machine: Machine, simulated_step: SimulatedStep, gpu: int) -> Watched:
    """Return how one simulated GPU waited and ended its steps.

    The rounds that the step is the mean of are repeated from where they began, and so come out the same.
    """
    slices = machine.slices
    lengths = (slices.spans[:, 1] - slices.spans[:, 0]) * slices.spans[:, 2]
    mine = machine.turns[machine.turns[:, 0] == gpu // len(machine.fold.weights), 1]
    points = len(step_loop.ENDING) + sum(
        1 + int(np.sum(lengths[slices.first[one] : slices.first[one + 1]])) for one in mine
    )
    state, lasted_s = simulated_step.averaged_from.copy(), np.zeros(points)
    for _ in range(simulated_step.averaged):
        moments = np.ones(1 + 2 * points * repeats_of(machine))
        _simulate(machine, state, simulated_step.sink_k, gpu, moments)
        before_s, after_s = moments[1:].reshape(-1, points, 2).transpose(2, 0, 1)
        lasted_s += np.mean(after_s - before_s, axis=0) / simulated_step.averaged
    passes_s, ends_s = np.split(lasted_s, [-len(step_loop.ENDING)])
    return Watched(passes_s, dict(zip(step_loop.ENDING, ends_s.tolist(), strict=True)))


def _simulate(
    machine: Machine, state: Floats, sink_k: Floats, watched: int, moments: Floats, repeats: int | None = None
) -> SimulatedStep:
    repeats, box_s = repeats or repeats_of(machine), machine.board.tick_s
    lowest_hz = min(*(board.clock_min_hz for board in machine.boards), machine.brake_hz.min())
    stretch, before_s = machine.asked_hz.max() / lowest_hz, state[0, step_loop.TIME] or np.inf
    # Room for a step at the lowest clock, or for twice the round before, which hardly differs: zeroing more takes time.
    most_s = min(2 * before_s, stretch * repeats * (machine.open_s + machine.fold.begin_s.max()))
    boxes = min(LONGEST_SERIES, int(most_s / box_s) + 8)
    series = np.zeros((min(MOST_SERIES, len(state)), boxes, step_loop.SIGNALS))
    cluster_w, positions = np.zeros(boxes), len(machine.fold.weights)
    passes = np.zeros((len(machine.turns), min(positions, max(1, MOST_PASSES // len(machine.turns))), 4))
    sums = np.zeros((len(state), step_loop.SUMS))
    sums[:, step_loop.COLD_C], sums[:, [step_loop.HOT_C, step_loop.MEMORY_HOT_C]] = np.inf, -np.inf
    cluster = machine.run.cluster
    state[:, step_loop.AIR_C] = inlets_c(cluster)[machine.gpus // cluster.node.gpus] + sink_k
    state[:, step_loop.TEMPERATURE] = state[:, step_loop.AIR_C] + state[:, step_loop.POLES :].sum(axis=1)
    state[:, [step_loop.TIME, step_loop.HOST_FREE]] = 0.0
    begun = state.copy()
    states = step_loop.GpuStates(
        state, sums, machine.kind, machine.knots, step_loop.board_rows(machine.boards), machine.resistance,
        machine.memory, machine.decay, series, cluster_w, machine.fold.weights, passes, watched, moments,
    )  # fmt: skip
    end_s = np.empty((len(machine.turns) + 1, positions))
    polling = machine.ends.rows[:, GRADIENTS, 0, POLL].tolist()
    waiting = np.array([[waiting_rows(fraction), waiting_rows(0.0)] for fraction in polling])
    ended_s = step_loop.simulate_steps(
        repeats, states, machine.turns, machine.fold.begin_s, machine.moved_s, machine.sent_s, machine.slices,
        machine.fold.members, machine.fold.offsets, machine.ends, waiting, end_s,
    )  # fmt: skip
    sums[:, list(step_loop.TOTALS)] /= repeats
    full = int(ended_s / box_s)
    # Copied, for the whole arrays are far longer than what a step fills.
    series, cluster_w = series[:, :full].copy(), cluster_w[:full].copy()
    return SimulatedStep(ended_s / repeats, sums, sink_k, series, cluster_w, box_s, repeats, passes, begun, begun, 1)


def repeat_poles(machine: Machine, state: Floats, before_k: Floats) -> Floats:
    """Return where poles end if the round that has just ended is repeated for ever.

    A round takes a pole from x to a x + b, whatever x is, so that repeats of it lead to b / (1 - a).
    """
    after_k, boxes = state[:, step_loop.MEMORY :], state[0, step_loop.TIME] / machine.board.tick_s
    left = machine.decay[machine.kind] ** boxes
    return np.asarray((after_k - left * before_k) / (1 - left))


def carry_poles(machine: Machine, state: Floats, before_k: Floats, more_s: float) -> float:
    """Move poles on as if the round that has just ended were repeated; returns how far dies are from its end."""
    after_k, repeated_k = state[:, step_loop.MEMORY :], repeat_poles(machine, state, before_k)
    far_k, of_box = float(np.max(np.abs(repeated_k - after_k)[:, 1:])), machine.decay[machine.kind]
    state[:, step_loop.MEMORY :] = repeated_k + (after_k - repeated_k) * of_box ** (more_s / machine.board.tick_s)
    return far_k


def rise_times_s(net: Network) -> Floats:
    """Return the time constants of all that follows within a step: of memory, and of the die's poles."""
    return np.array([net.memory.time_s, *net.time_s[0, :SINK]])


def proceed() -> None:
    """Let the work go on."""


def simulate_to_steady(
    machine: Machine, state: Floats | None = None, before_round: Callable[[], None] = proceed
) -> SimulatedStep:
    """Simulate a step until sinks, poles and power agree, or until `before_round` raises."""
    state = start_state(machine) if state is None else state
    poles = state[:, step_loop.MEMORY :]
    sink_k = sink_target_k(machine, np.full(len(state), START_W))
    before_s, rounds, share = 0.0, 0, np.ones(len(state))
    was = leads = np.full(len(state), np.inf)
    while True:
        before_round()
        before_k = poles.copy()
        simulated_step = simulate_once(machine, state, sink_k)
        rounds += 1
        target_k = sink_target_k(machine, power_w_of(simulated_step), mean_c_of(simulated_step))
        repeated_k = repeat_poles(machine, state, before_k)
        moved_k, far_k = np.max(np.abs(target_k - sink_k)), np.max(np.abs(repeated_k - poles)[:, 1:])
        still = moved_k < SETTLED_K and far_k < SETTLED_POLES_K
        settled = still and abs(simulated_step.step_time_s / max(before_s, 1e-12) - 1) < SETTLED_FRACTION
        if settled or rounds == MOST_ROUNDS:
            return average_rounds(machine, state, simulated_step)._replace(rounds=rounds)
        # A throttled GPU cools when it is warmed: it moves by the share that its last move shows to lead there.
        now, led = sink_k + before_k[:, 1:].sum(axis=1), target_k + repeated_k[:, 1:].sum(axis=1)
        told = np.isfinite(was) & (np.abs(now - was) > TOLD_K)
        slope = (led - leads)[told] / (now - was)[told]
        share[told] = 1 / (1 + np.clip(-slope, 0.0, STEEPEST))
        was, leads = now, led
        sink_k = sink_k + share * (target_k - sink_k)
        poles[:] = before_k + share[:, None] * (repeated_k - before_k)
        before_s = simulated_step.step_time_s
