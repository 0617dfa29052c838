"""A step of very many microbatches: as many are simulated as tell the rest, for equal microbatches repeat.

Equation: once a pipeline is full, each further microbatch adds the same seconds and joules. With a step of n and one of
m < n microbatches simulated at the same temperatures, whatever grows with a step's length is for N microbatches
x(N) = x(n) + (x(n) - x(m)) (N - n) / (n - m).
Source: periodic schedules; what it leaves out is beside MOST_PASSES.
Ignores: what the first microbatches of a step do to its fast temperatures and to the governor.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.simulate import step_loop
from charllm.simulate.cold import simulate_from_cold
from charllm.simulate.recorded import Path, PathPart, close_times, critical_path, price_as_simulated
from charllm.simulate.sinks import mean_c_of, power_w_of, sink_target_k
from charllm.simulate.steady import Machine, SimulatedStep, build_machine, proceed, simulate_once, simulate_to_steady
from charllm.simulate.work import check_length, check_passes, check_rounds, passes_of, slices_of
from charllm.spec.run import RunSpec
from charllm.timeline.step_time import StepTime
from charllm.workload.step import Step, build_step

MOST_PASSES, MOST_SLICES = 65_536, 3e5
"""A longer step is cut: a second or less. Step time and energy move by less than 0.02 %."""
LEAST_ROUNDS = 8
"""Microbatches for each stage that are simulated at least, so that the pipeline is full most of the time."""


class Execution(NamedTuple):
    """A simulated step."""

    step: Step
    """As it was simulated: with fewer microbatches than asked for, where those tell the rest."""
    machine: Machine
    simulated_step: SimulatedStep
    timed: StepTime
    path: Path


def execute(
    step: Step, longest_s: float, *, whole: bool = False, before_round: Callable[[], None] = proceed
) -> Execution:
    """Simulate a step, or as much of a long one as tells the rest; all of it where it is asked for as a `whole`."""
    part, machine = _lay_out(step, longest_s, whole=whole)
    conditions = step.run.conditions
    if conditions.steps is None and conditions.seconds_s is None:
        simulated_step = simulate_to_steady(machine, before_round=before_round)
    else:
        simulated_step = simulate_from_cold(machine, conditions.steps, conditions.seconds_s)
    return _close(part, machine, simulated_step)


def _close(step: Step, machine: Machine, simulated_step: SimulatedStep) -> Execution:
    """Tell where the seconds of a simulated step went."""
    timed = close_times(machine, price_as_simulated(step, machine, simulated_step), simulated_step)
    return Execution(step, machine, simulated_step, timed, critical_path(machine, simulated_step))


def first_part(step: Step, most_passes: int = MOST_PASSES) -> Step:
    """Return a step with as many of its microbatches as have no more passes than that; itself where all have."""
    fewer = _fewer(step.run, most_passes / passes_of(step.run))
    return step if fewer == step.run.microbatches else build_step(_with_microbatches(step.run, fewer))


def _lay_out(step: Step, longest_s: float, *, whole: bool) -> tuple[Step, Machine]:
    """Price and lay out a step; a long one with fewer microbatches, unless it is needed whole."""
    whole = whole or step.run.conditions.steps is not None or step.run.conditions.seconds_s is not None
    part = step if whole else first_part(step)
    while True:
        check_passes(part.run, longest_s)
        check_length(part, longest_s)
        machine = build_machine(part)
        fewer = _fewer(part.run, MOST_SLICES / slices_of(machine))
        if whole or fewer == part.run.microbatches:
            check_rounds(machine, longest_s)
            return part, machine
        part = build_step(_with_microbatches(step.run, fewer))


def _fewer(run: RunSpec, fraction: float) -> int:
    """Return a share of a run's microbatches, in whole rounds of the pipeline; all of them where they are few."""
    pp, all_of_them = run.parallelism.pp, run.microbatches
    wanted = max(LEAST_ROUNDS * pp, int(min(1.0, fraction) * all_of_them))
    if wanted >= all_of_them:
        return all_of_them
    return wanted - (wanted - all_of_them) % pp


def _with_microbatches(run: RunSpec, microbatches: int) -> RunSpec:
    batch = microbatches * run.training.micro_batch_size * run.parallelism.dp
    return replace(run, training=replace(run.training, global_batch_size=batch))


def extend(simulated: Execution, step: Step) -> Execution:
    """Extend what grows with a step's length to all microbatches of the step that was asked for.

    It is done twice: a longer step spends less of its time in the bubble, and the power it draws leads to other
    temperatures.
    """
    if simulated.step is step:
        return simulated
    machine, begun = simulated.machine, simulated.simulated_step.begun
    shorter = halve(simulated.step)
    half = build_machine(shorter)
    sink_k, whole = simulated.simulated_step.sink_k, simulated
    for _ in range(2):
        far = _again(simulated.step, machine, begun, sink_k)
        near = _again(shorter, half, begun, sink_k)
        whole = _extrapolate(far, near, step)
        sink_k = sink_target_k(machine, power_w_of(whole.simulated_step), mean_c_of(whole.simulated_step))
    return whole


def halve(step: Step) -> Step:
    """Return a step with about half of its microbatches, in whole rounds of the pipeline."""
    pp, count = step.run.parallelism.pp, step.run.microbatches
    return build_step(_with_microbatches(step.run, count - pp * (count // (2 * pp))))


def _again(step: Step, machine: Machine, begun: Floats, sink_k: Floats) -> Execution:
    """Simulate a step once, at given temperatures of the sinks."""
    return _close(step, machine, simulate_once(machine, begun.copy(), sink_k))


def _extrapolate(far: Execution, near: Execution, step: Step) -> Execution:
    """Draw the line through two lengths of a step to the one that was asked for."""
    count = far.step.run.microbatches
    more = (step.run.microbatches - count) / (count - near.step.run.microbatches)
    step_time_s = _extended(far.simulated_step.step_time_s, near.simulated_step.step_time_s, more)
    totals = list(step_loop.TOTALS)
    sums = far.simulated_step.sums.copy()
    sums[:, totals] += np.maximum(0.0, sums[:, totals] - near.simulated_step.sums[:, totals]) * more
    timed = extend_times(far.timed, near.timed, more)
    simulated_step = far.simulated_step._replace(step_time_s=step_time_s, sums=sums)
    path = _extended_path(far.path, near.path, more)
    return Execution(step, far.machine._replace(run=step.run), simulated_step, timed, path)


def _extended(of_far: float, of_near: float, more: float) -> float:
    # What does not grow may be a little less in the longer step.
    return of_far + max(0.0, of_far - of_near) * more


def extend_times(far: StepTime, near: StepTime, more: float) -> StepTime:
    """Draw the line through the times of two lengths of a step, `more` times as far again as they lie apart."""

    def each(of_far: dict[str, float], of_near: dict[str, float]) -> dict[str, float]:
        return {name: _extended(value, of_near[name], more) for name, value in of_far.items()}

    step_time_s = _extended(far.step_time_s, near.step_time_s, more)
    stages = [_filled(each(*pair), step_time_s) for pair in zip(far.stages, near.stages, strict=True)]
    return far._replace(
        step_time_s=step_time_s,
        stages=stages,
        hidden_s=each(far.hidden_s, near.hidden_s),
        op_events=round(_extended(far.op_events, near.op_events, more)),
    )


def _filled(labels: dict[str, float], step_time_s: float) -> dict[str, float]:
    """Let labels add up to the step again, which rounding may have moved."""
    factor = step_time_s / sum(labels.values())
    return {label: seconds * factor for label, seconds in labels.items()}


def _extended_path(far: Path, near: Path, more: float) -> Path:
    before = {(part.stage, part.node): part.seconds for part in near.parts}
    parts = [
        PathPart(part.stage, part.node, part.seconds + max(0.0, part.seconds - before.get(part[:2], 0.0)) * more)
        for part in far.parts
    ]
    return far._replace(
        parts=sorted(parts, key=lambda part: -part.seconds),
        passes=round(far.passes + (far.passes - near.passes) * more),
        crossings=round(far.crossings + max(0, far.crossings - near.crossings) * more),
        transfer_s=far.transfer_s + max(0.0, far.transfer_s - near.transfer_s) * more,
    )
