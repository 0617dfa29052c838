"""Steps of different kinds in turn on the same GPUs, over and over: phases of a generation or an RL step.

Each phase is simulated where the one before left clocks, fast poles and the governor's mean; sinks are held at what the
mean power of the whole cycle leads to. A phase of many equal steps is simulated for its first seconds and, with poles
where repeating leads them, for as many again that stand for the rest.
Equation: sink = target(sum of energies / sum of seconds), solved by substitution.
Source: simulate/steady.py.
Ignores: how sinks move within a cycle, which matters where a phase lasts longer than their time constant (about 30 s).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.physics import decay, idle_w, relax
from charllm.simulate import step_loop
from charllm.simulate.sinks import sink_target_k
from charllm.simulate.steady import (
    LEAST_ROUND_S,
    START_W,
    Machine,
    SimulatedStep,
    add_steps,
    build_machine,
    proceed,
    repeat_poles,
    rises_k,
    simulate_once,
    start_state,
)
from charllm.workload.step import Step

MOST_ROUNDS, SETTLED_W = 8, 2.0
"""Rounds over the cycle, and mean power of a GPU that moves no further."""
OWN = (step_loop.SILICON, step_loop.BRAKE_HZ)
"""State of a GPU that a phase does not hand on: it belongs to the machine."""
MOST_BOXES = 2000
"""Boxes of signals over a cycle that are kept; longer cycles have longer boxes."""


class Phase(NamedTuple):
    """Equal steps in a row, or a rest: seconds in which the GPUs wait for something else."""

    name: str
    step: Step | None
    times: float = 1
    rest_s: float = 0.0
    tokens: float = 0.0
    """Tokens that the whole phase reads or writes."""

    @property
    def steps(self) -> int:
        """How many tokens each sequence gets, or how many equal steps follow each other."""
        asked = self.step.run.generation if self.step else None
        return round(self.times * (asked.tokens_in_row if asked else 1))


class PhaseRun(NamedTuple):
    """A phase as it was simulated."""

    phase: Phase
    machine: Machine
    simulated_step: SimulatedStep
    """Mean of its steps."""
    series: Floats
    """[gpu, box, signal] over the phase."""
    cluster_w: Floats
    """[box] over the phase."""

    @property
    def seconds(self) -> float:
        """How long the phase takes."""
        return self.phase.times * self.simulated_step.step_time_s

    @property
    def energy_j(self) -> Floats:
        """[GPU of the cluster] over the phase."""
        return np.asarray(self.simulated_step.sums[self.machine.representatives, step_loop.ENERGY] * self.phase.times)

    @property
    def kelvin_s(self) -> Floats:
        """[GPU of the cluster] degrees times seconds of the phase."""
        return np.asarray(self.simulated_step.sums[self.machine.representatives, step_loop.HEAT_S] * self.phase.times)


def simulate_cycle(phases: Sequence[Phase], before_round: Callable[[], None] = proceed) -> list[PhaseRun]:
    """Simulate phases in order until the mean power of the cycle no longer moves the sinks."""
    machines = [build_machine(phase.step) if phase.step else None for phase in phases]
    some = next(machine for machine in machines if machine)
    known = [machine or some for machine in machines]
    mean_w, mean_c = np.full(some.run.cluster.gpus, START_W), None
    state, before = start_state(some), some
    for _ in range(MOST_ROUNDS):
        runs: list[PhaseRun] = []
        for phase, machine in zip(phases, known, strict=True):
            before_round()
            state = hand_on(machine, before, state)
            before = machine
            sink_k = sink_target_k(machine, mean_w[machine.gpus], None if mean_c is None else mean_c[machine.gpus])
            runs.append(_run_phase(phase, machine, state, sink_k))
        total_s = sum(one.seconds for one in runs)
        now_w = np.sum([one.energy_j for one in runs], axis=0) / total_s
        mean_c = np.sum([one.kelvin_s for one in runs], axis=0) / total_s
        moved_w, mean_w = float(np.max(np.abs(now_w - mean_w))), now_w
        if moved_w < SETTLED_W:
            break
    return runs


def hand_on(machine: Machine, before: Machine, state: Floats) -> Floats:
    """Return the state in which GPUs begin a phase: that in which the phase before left them."""
    if machine is before:
        return state
    found = start_state(machine)
    kept = [column for column in range(found.shape[1]) if column not in OWN]
    found[:, kept] = state[before.representatives[machine.gpus]][:, kept]
    return found


def _run_phase(phase: Phase, machine: Machine, state: Floats, sink_k: Floats) -> PhaseRun:
    if phase.step is None:
        return _rest(phase, machine, state, sink_k)
    count = max(1, min(int(phase.times), int(np.ceil(LEAST_ROUND_S / machine.open_s))))
    before_k = state[:, step_loop.MEMORY :].copy()
    first = simulate_once(machine, state, sink_k, repeats=count)
    if phase.times == count:
        return PhaseRun(phase, machine, first, first.series, first.cluster_w)
    state[:, step_loop.MEMORY :] = repeat_poles(machine, state, before_k)
    later = simulate_once(machine, state, sink_k, repeats=count)
    total = add_steps(add_steps(None, first, count), later, phase.times - count)
    sums = total.sums.copy()
    sums[:, list(step_loop.TOTALS)] /= phase.times
    mean = total._replace(step_time_s=total.step_time_s / phase.times, sums=sums)
    boxes = round(phase.times * mean.step_time_s / mean.box_s)
    return PhaseRun(
        phase,
        machine,
        mean,
        _lengthen(first.series, later.series, boxes, axis=1),
        _lengthen(first.cluster_w, later.cluster_w, boxes, axis=0),
    )


def _lengthen(first: Floats, later: Floats, boxes: int, axis: int) -> Floats:
    """Repeat the later boxes after the first ones until there are enough; boxes are thinned where they are many."""
    length, period = first.shape[axis], max(1, later.shape[axis])
    places = np.arange(boxes)
    joined = np.concatenate([first, later], axis=axis)
    return np.asarray(joined.take(np.where(places < length, places, length + (places - length) % period), axis=axis))


def _rest(phase: Phase, machine: Machine, state: Floats, sink_k: Floats) -> PhaseRun:
    """Let GPUs wait at the power of an idle context; poles follow, and the governor forgets."""
    power_w = np.array([idle_w(board) for board in machine.boards])[machine.kind] + 0.0
    boxes = max(1, round(phase.rest_s / machine.board.tick_s))
    left = machine.decay[machine.kind] ** boxes
    rises = state[:, step_loop.MEMORY :]
    rises[:] = relax(rises, rises_k(machine, power_w), left)
    forgotten = decay(phase.rest_s, machine.board.mean_s)
    state[:, step_loop.MEAN_W] = power_w + (state[:, step_loop.MEAN_W] - power_w) * forgotten
    state[:, step_loop.LAST_W], state[:, step_loop.CLOCK] = power_w, machine.asked_hz
    state[:, step_loop.CAUSE] = 0.0
    air_c = state[:, step_loop.AIR_C]
    die_c, memory_c = air_c + state[:, step_loop.POLES :].sum(axis=1), air_c + state[:, step_loop.MEMORY]
    sums = np.zeros((len(state), step_loop.SUMS))
    sums[:, step_loop.ENERGY] = power_w * phase.rest_s
    sums[:, step_loop.CLOCK_S], sums[:, step_loop.CLOCK2_S] = (machine.asked_hz**n * phase.rest_s for n in (1, 2))
    sums[:, step_loop.PEAK_W] = sums[:, step_loop.SENSOR_W] = power_w
    sums[:, step_loop.HOT_C] = sums[:, step_loop.COLD_C] = die_c
    sums[:, step_loop.HEAT_S] = die_c * phase.rest_s
    sums[:, step_loop.MEMORY_HOT_C], sums[:, step_loop.MEMORY_HEAT_S] = memory_c, memory_c * phase.rest_s
    signals = np.stack([power_w, die_c, machine.asked_hz, np.zeros(len(state))], axis=1)[:64, None, :]
    weights = np.tile(machine.fold.weights, machine.run.parallelism.pp)
    cluster_w = np.full(boxes, float(np.sum(weights * power_w)))
    step = SimulatedStep(phase.rest_s, sums, sink_k, np.repeat(signals, boxes, axis=1), cluster_w, machine.board.tick_s,
                         1, np.zeros((0, 0, 4)), state.copy(), state.copy(), 1)  # fmt: skip
    return PhaseRun(phase._replace(times=1), machine, step, step.series, cluster_w)


def join_phases(runs: Sequence[PhaseRun]) -> tuple[Machine, SimulatedStep]:
    """Return the cycle as one step of the phase that takes longest: sums added up, extremes kept, signals in a row."""
    machine = max(runs, key=lambda one: one.seconds).machine
    total = None
    for one in runs:
        rows = one.machine.representatives[machine.gpus]
        own = one.simulated_step._replace(sums=one.simulated_step.sums[rows])
        total = add_steps(total, own, one.phase.times)
    if total is None:
        raise ValueError("a cycle has at least one phase")
    kept = min(len(one.series) for one in runs)
    alike = all(len(one.machine.gpus) == len(machine.gpus) for one in runs)
    series = np.concatenate([one.series[: kept if alike else 1] for one in runs], axis=1)
    cluster_w = np.concatenate([one.cluster_w for one in runs])
    return machine, total._replace(series=series, cluster_w=cluster_w, sink_k=runs[-1].simulated_step.sink_k)


def shorten(step: SimulatedStep) -> SimulatedStep:
    """Return a cycle with longer boxes where it has very many, for tables and pages."""
    boxes = len(step.cluster_w)
    wide = -(-boxes // MOST_BOXES)
    if wide == 1:
        return step
    whole = boxes // wide * wide
    cluster_w = step.cluster_w[:whole].reshape(-1, wide).mean(axis=1)
    series = step.series[:, :whole].reshape(len(step.series), -1, wide, step.series.shape[2])
    thinned = series.mean(axis=2)
    thinned[..., -1] = series[:, :, 0, -1]
    return step._replace(cluster_w=cluster_w, series=thinned, box_s=step.box_s * wide)


def tabulate_phases(runs: Sequence[PhaseRun]) -> dict[str, list[Any]]:
    """Return seconds, energy, power, temperature and clock of each phase."""
    columns: dict[str, list[Any]] = {name: [] for name in (
        "phase", "steps", "seconds", "tokens", "energy_j", "power_mean_w", "power_peak_w", "temperature_mean_c",
        "temperature_peak_c", "clock_mean_hz", "throttled_fraction",
    )}  # fmt: skip
    for one in runs:
        sums, each_s = one.simulated_step.sums, one.simulated_step.step_time_s
        everyone = one.machine.representatives
        row = {
            "phase": one.phase.name,
            "steps": one.phase.steps,
            "seconds": one.seconds,
            "tokens": one.phase.tokens,
            "energy_j": float(np.sum(one.energy_j)),
            "power_mean_w": float(np.mean(sums[everyone, step_loop.ENERGY]) / each_s),
            "power_peak_w": float(sums[:, step_loop.SENSOR_W].max()),
            "temperature_mean_c": float(np.mean(sums[everyone, step_loop.HEAT_S]) / each_s),
            "temperature_peak_c": float(sums[:, step_loop.HOT_C].max()),
            "clock_mean_hz": float(np.mean(sums[everyone, step_loop.CLOCK_S]) / each_s),
            "throttled_fraction": float(np.mean(sums[everyone, step_loop.POWER_S]) / each_s),
        }
        for name, value in row.items():
            columns[name].append(value)
    return columns
