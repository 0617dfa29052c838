"""The fast answer: a step at the one clock it settles at, in milliseconds; kernels and schedule of the coupled one.

Equation: energy = T standing(f) + active x busy seconds + polling x seconds in or waiting for communication + joules of
the ops at the voltage of f, stage by stage; T and f as simulate/one_clock.py solves them.
Source: gpu/physics.py, simulate/one_clock.py.
Ignores: heat (leakage as at WARM_C), bursts within a step, differences between GPUs of one kind.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.physics import Energy, board_of, dynamic_j, operating_point, standing_w
from charllm.layout.nodes import node_kinds
from charllm.result.answers import name_some
from charllm.result.metrics import METRICS
from charllm.result.provenance import describe_provenance
from charllm.result.result import RunResult
from charllm.simulate.long_step import extend_times, first_part, halve
from charllm.simulate.misfit import memory_warnings
from charllm.simulate.one_clock import WARM_C, pass_rows, solve_kinds
from charllm.simulate.predict import describe_step, time_metrics
from charllm.simulate.slices import CHANNELS
from charllm.simulate.work import LONGEST_S, check_passes
from charllm.spec.run import RunSpec, idle_requests
from charllm.timeline.costs import BOARD_J, CORE_J, MATRIX_J, cost_step, read_step
from charllm.timeline.step_time import StepTime, time_step
from charllm.workload.step import Step
from charllm.workload.sync import step_sync
from charllm.workload.totals import Traffic

NO_HEAT = "no heat in the fast answer"
MOST_PASSES = 8_192
"""A longer step is solved in part and extended, as simulate/long_step.py does."""
COMPUTED = ("compute", "recompute", "optimizer", "overhead")
"""Labels of seconds without communication."""
WORKED = (*COMPUTED, "tp_exposed", "dp_exposed", "ep_exposed", "cp_exposed")
"""Labels of seconds in which a GPU executes kernels."""


def predict_fast(run: RunSpec, *, longest_s: float = LONGEST_S) -> RunResult:
    """Return memory, step time, clock, mean power and energy of a run; only memory where it does not fit.

    What needs heat is None, with the reason in `warnings`. A request that would take longer than `longest_s` is refused
    with the estimate.
    """
    step, memory, traffic, metrics = describe_step(run, longest_s)
    warnings = [*idle_requests(run), *memory_warnings(run, memory)]
    if metrics["fits"]:
        metrics.update(fast_metrics(step, traffic, longest_s))
        unknown = [name for name in METRICS if metrics[name] is None]
        warnings.append(f"{NO_HEAT}: {name_some(unknown)}")
    return RunResult(
        "simulated", run.as_table(), metrics, provenance=describe_provenance(run), warnings=warnings
    )  # fmt: skip


def fast_metrics(step: Step, traffic: Traffic | None = None, longest_s: float = LONGEST_S) -> dict[str, Any]:
    """Return the metrics of a step's time, clock and power; the use of links only where its traffic is known."""
    kinds = solve_whole(step, longest_s)
    slowest = max(kinds, key=lambda timed: timed.step_time_s)
    return {**time_metrics(step, slowest, traffic), **_power_metrics(step, kinds, slowest)}


def solve_whole(step: Step, longest_s: float = LONGEST_S) -> list[StepTime]:
    """Price a step on each kind of node at the clock that kind settles at; of a long step a part, extended."""
    part = first_part(step, MOST_PASSES)
    check_passes(part.run, longest_s)
    found = solve_kinds(part)
    if part is step:
        return found
    shorter = halve(part)
    more = (step.run.microbatches - part.run.microbatches) / (part.run.microbatches - shorter.run.microbatches)
    return [extend_times(far, _at_clock_of(far, shorter), more) for far in found]


def _at_clock_of(timed: StepTime, step: Step) -> StepTime:
    """Time a step of fewer microbatches on the same kind of node and at the same clock."""
    costs = timed.costs
    own = replace(step, run=replace(step.run, cluster=costs.run.cluster))
    return time_step(own, cost_step(own, read_step(own), costs.clock_hz, costs.network, costs.timeline))


def _power_metrics(step: Step, kinds: list[StepTime], slowest: StepTime) -> dict[str, Any]:
    """Return clock, mean power and energy, mean over the kinds of node by how many there are."""
    run, step_s = step.run, slowest.step_time_s
    counts = np.bincount(node_kinds(run.cluster), minlength=len(kinds))
    energy_j = [float(np.mean(_stage_energies_j(step, timed, step_s))) for timed in kinds]
    energy_per_gpu_j = float(np.average(energy_j, weights=counts))
    clocks_hz = [timed.costs.clock_hz for timed in kinds]
    total_j = energy_per_gpu_j * run.parallelism.world
    return {
        "power_mean_w": energy_per_gpu_j / step_s,
        "energy_per_step_j": total_j,
        "tokens_per_j": run.tokens_per_step / total_j,
        "clock_mean_hz": float(np.average(clocks_hz, weights=counts)),
    }


def _stage_energies_j(step: Step, timed: StepTime, step_s: float) -> Floats:
    """Return what one GPU of each stage takes in a step that lasts some seconds."""
    costs, gpu = timed.costs, timed.costs.run.cluster.gpu
    board = board_of(gpu, step.run.conditions)
    at = operating_point(board, costs.clock_hz, min(costs.clock_hz, board.matrix_clock_hz))
    standing = standing_w(board, at.level, WARM_C)
    polling_w = standing_w(board, at.level, WARM_C, polling=CHANNELS / gpu.multiprocessors) - standing
    active_w = standing_w(board, at.level, WARM_C, active=1.0) - standing
    hidden_s = sum(timed.hidden_s.values())
    found = []
    for stage, (row, labels) in enumerate(zip(pass_rows(step, timed), timed.stages, strict=True)):
        joules = step.run.microbatches * row
        exchanged = step_sync(step, stage) if labels["dp_exposed"] > 0 else ()
        for op in (*costs.kernels.updates[stage], *exchanged):
            joules = joules + costs.cells(op)
        energy = Energy(joules[MATRIX_J], joules[CORE_J], joules[BOARD_J])
        worked_s, computed_s = (sum(labels[label] for label in names) for names in (WORKED, COMPUTED))
        steady_j = standing * step_s + active_w * worked_s + polling_w * (step_s - computed_s + hidden_s)
        found.append(steady_j + dynamic_j(at, energy))
    return np.array(found)
