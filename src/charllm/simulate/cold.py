"""A run from a cold start: some steps, or some seconds, of which only those are simulated in which sinks have moved.

Equation: over steps of t seconds at the power of the last round, a sink's rise x goes to its target as
x = target + (x0 - target) exp(-t / time constant); a step is simulated again when some sink has moved by MOVED_K, or
by half of what is left, until all are SETTLED_K from their targets: near its limit a GPU loses a tenth of its clock in
0.5 K. A run ends when a GPU gets so hot that it turns itself off.
Source: gpu/heat.py for targets and time constants.
Ignores: coolant and air that warm up themselves; clocks that move between two rounds.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.heat import FLOW_EXPONENT, SINK
from charllm.gpu.physics import decay, idle_w, relax
from charllm.layout.nodes import inlets_c
from charllm.simulate import step_loop
from charllm.simulate.sinks import mean_c_of, node_flows, normal_networks, power_w_of, sink_fractions, sink_target_k
from charllm.simulate.steady import (
    SETTLED_K,
    Machine,
    SimulatedStep,
    add_steps,
    carry_poles,
    shuts_down,
    simulate_once,
    start_state,
)

MOVED_K = 0.5
"""A step is simulated again when a sink, or a pole above it, has moved so far; a sink sooner where less is left."""
COARSE_K = 4.0
"""The same where only the time until a GPU turns itself off is asked for."""
MOST_ROUNDS = 1000
"""Where temperatures still swing after so many rounds, the last one stands for the rest; a run warms up within 200."""


LONGEST_S = 24 * 3600.0


class Moment(NamedTuple):
    """A step that was simulated during a warm-up, and how many like it follow."""

    begun_s: float
    """Seconds since the cold start."""
    covered: float
    """Steps that it stands for."""
    simulated_step: SimulatedStep
    sink_k: Floats
    """[gpu] rise of its sink at the end of those steps."""


def simulate_from_cold(machine: Machine, steps: int | None, seconds_s: float | None) -> SimulatedStep:
    """Simulate a run of some length that begins with idle GPUs; sums are means over its steps."""
    total, done, rounds = None, 0.0, 0
    for moment in warm_up(machine, steps, seconds_s):
        total = add_steps(total, moment.simulated_step, moment.covered)
        done, rounds = done + moment.covered, rounds + 1
        if shuts_down(machine, moment.simulated_step):
            break
    if total is None:
        raise ValueError("a run from a cold start has at least one step")
    sums = total.sums.copy()
    sums[:, list(step_loop.TOTALS)] /= done
    last, ran_s = moment.simulated_step, moment.begun_s + moment.covered * moment.simulated_step.step_time_s
    return total._replace(step_time_s=ran_s / done, sums=sums, sink_k=moment.sink_k, series=last.series,
                          cluster_w=last.cluster_w, rounds=rounds)  # fmt: skip


def seconds_to_shutdown(machine: Machine) -> float | None:
    """Return how long after a cold start a GPU turns itself off."""
    for moment in warm_up(machine, None, LONGEST_S, COARSE_K):
        if shuts_down(machine, moment.simulated_step):
            return moment.begun_s
    return None


def warm_up(machine: Machine, steps: int | None, seconds_s: float | None, moved_k: float = MOVED_K) -> Iterator[Moment]:
    """Simulate the steps of a run that begins with idle GPUs, one for each time that sinks have moved."""
    cluster = machine.run.cluster
    nets = normal_networks(cluster)
    resting_w = idle_w(machine.board)
    state = start_state(machine, resting_w)
    sink_k = sink_target_k(machine, np.full(len(state), resting_w))
    normal_s = np.stack([net.time_s[:, SINK] for net in nets])[machine.node_kind, machine.gpus % cluster.node.gpus]
    normal_s = normal_s * sink_fractions(machine.run)[machine.gpus]
    pole_s = float(np.max(-machine.board.tick_s / np.log(machine.decay)))
    done, ran_s, rounds = 0.0, 0.0, 0
    while True:
        before_k = state[:, step_loop.MEMORY :].copy()
        simulated_step = simulate_once(machine, state, sink_k)
        rounds += 1
        left = _left(simulated_step.step_time_s, done, ran_s, steps, seconds_s)
        mean_c = mean_c_of(simulated_step)
        target_k = sink_target_k(machine, power_w_of(simulated_step), mean_c)
        # A sink that gives its heat away faster also follows faster.
        time_s = normal_s * node_flows(machine, mean_c)[machine.gpus // cluster.node.gpus] ** FLOW_EXPONENT
        covered = min(left, _until_moved(sink_k, target_k, time_s, simulated_step.step_time_s, moved_k))
        far_k = carry_poles(machine, state, before_k, 0.0)
        if far_k > moved_k:
            moments_s = -pole_s * math.log1p(-moved_k / far_k)
            covered = min(covered, max(1.0, math.floor(moments_s / simulated_step.step_time_s)))
        if rounds == 1:
            # It begins with the governor of an idle GPU, which has to find its clock.
            covered = min(left, 1.0)
        if rounds == MOST_ROUNDS:
            covered = left
        carry_poles(machine, state, before_k, max(0.0, covered * simulated_step.step_time_s - state[0, step_loop.TIME]))
        sink_k = relax(sink_k, target_k, decay(covered * simulated_step.step_time_s, time_s))
        yield Moment(ran_s, covered, simulated_step, sink_k)
        if covered >= left:
            return
        done, ran_s = done + covered, ran_s + covered * simulated_step.step_time_s


def tabulate_warm_up(machine: Machine, seconds_s: float) -> dict[str, list[float | None]]:
    """Return lowest, mean and highest temperature, power and clock of GPUs from a cold start on, means over a step.

    The first row are the idle GPUs, whose power and clock say nothing of the job.
    """
    weights = np.tile(machine.fold.weights, machine.run.parallelism.pp)
    columns: dict[str, list[float | None]] = {"t_s": [0.0]}

    def add(name: str, values: Floats) -> None:
        ends = {"low": values.min(), "mean": np.average(values, weights=weights), "high": values.max()}
        for end, value in ends.items():
            columns.setdefault(f"{name}_{end}", []).append(None if np.isnan(value) else float(value))

    cold_c = _idle_c(machine)
    add("temperature_c", cold_c)
    for name in ("power_w", "clock_hz"):
        add(name, np.full_like(cold_c, np.nan))
    for moment in warm_up(machine, None, seconds_s):
        simulated_step = moment.simulated_step
        columns["t_s"].append(moment.begun_s + simulated_step.step_time_s / 2)
        for name, place in (
            ("power_w", step_loop.ENERGY),
            ("temperature_c", step_loop.HEAT_S),
            ("clock_hz", step_loop.CLOCK_S),
        ):
            add(name, simulated_step.sums[:, place] / simulated_step.step_time_s)
    # The last step that was simulated stands for all that follow.
    rest = {name: values[-1] for name, values in columns.items()} | {"t_s": max(seconds_s, columns["t_s"][-1] or 0.0)}
    return {name: [*values, rest[name]] for name, values in columns.items()}


def _idle_c(machine: Machine) -> Floats:
    """Return the temperature of every GPU that has been idle for long."""
    cluster, resting_w = machine.run.cluster, idle_w(machine.board)
    poles_k = start_state(machine, resting_w)[:, step_loop.POLES :].sum(axis=1)
    inlet_c = np.array(inlets_c(cluster), dtype=np.float64)[machine.gpus // cluster.node.gpus]
    return np.asarray(inlet_c + sink_target_k(machine, np.full(len(machine.gpus), resting_w)) + poles_k)


def _left(step_time_s: float, done: float, ran_s: float, steps: int | None, seconds_s: float | None) -> float:
    """Return how many steps are left; the last one may be cut short by the clock."""
    if steps is not None:
        return steps - done
    return max(1e-9, ((seconds_s or 0.0) - ran_s) / step_time_s)


def _until_moved(
    sink_k: np.ndarray, target_k: np.ndarray, time_s: np.ndarray, step_time_s: float, moved_k: float = MOVED_K
) -> float:
    """Return after how many steps, at least one, some sink has moved far enough to simulate a step again."""
    distance = np.abs(target_k - sink_k)
    far = distance > SETTLED_K
    if not far.any():
        return math.inf
    moments_s = -time_s[far] * np.log1p(-np.minimum(0.5, moved_k / distance[far]))
    return max(1.0, math.floor(float(np.min(moments_s)) / step_time_s))
