"""A closer bound of one strategy's step time: its passes, as short as they can be, on its own schedule.

Equation: jitter (max over stages of (end of its passes and of its exchange of gradients) + longest update), where
passes take kernels at a clock at or above that of the step, and the communication that no overlap can hide. The
schedule is simulated by the simulator's own engine (timeline/engine.py), so that bubbles and hops are exact.
Source: timeline/engine.py, plan/bounds.py.
Ignores, each of which only adds: hosts that launch late, latency and buckets of exchanges, sends beside gradients.
"""

from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.network.constants import NETWORK
from charllm.plan.bounds import IN_PASSES, TimeBounds, at_clock, least_jitter
from charllm.plan.composition import compose
from charllm.plan.rows import Links, Rows
from charllm.plan.share import ShareBlocks, ShareCosts
from charllm.spec.run import RunSpec
from charllm.spec.schedules import SCHEDULES
from charllm.timeline.engine import simulate_schedule
from charllm.timeline.host_race import NEVER
from charllm.timeline.passes import hidden_axes
from charllm.timeline.schedules import BACKWARD, order_arrays
from charllm.timeline.step_time import hop_seconds
from charllm.workload.step import Step, model_kinds

CLOCK_STEP = 0.004
"""Clocks are rounded up to multiples of this share, so that strategies that differ in little share a schedule."""


class SimulatedSchedule(NamedTuple):
    """When the stages of a pipeline are done at the earliest."""

    free_s: Floats
    """[stage] after the last pass."""
    leaving_s: Floats
    """[stage] when gradients can leave at the earliest, where dp is overlapped."""
    clock_hz: float
    weights: Floats
    """[stage, (dense, expert)]"""


class Schedules:
    """Schedules of one batch of strategies, each simulated once."""

    def __init__(self, blocks: ShareBlocks, costs: ShareCosts, bounds: TimeBounds) -> None:
        self.blocks, self.costs, self.bounds = blocks, costs, bounds
        self.weights = blocks.weights()[:2].T
        self.known: dict[tuple[object, ...], SimulatedSchedule] = {}

    def least_time_s(self, run: RunSpec, recompute: str, rows: Rows, links: Links, row: int) -> float:
        """Return the least step time of a strategy."""
        simulated = self._simulated(run, recompute, float(self.bounds.clock_hz[row]))
        rates, ranks = links.rates[row], np.array([rows.shard_ranks[row], rows.expert_shard_ranks[row]])
        gradients_s, weights_s = simulated.weights @ rates[0], simulated.weights @ rates[1]
        update_s = (simulated.weights / ranks).sum(axis=1) * self._update_s(simulated.clock_hz)
        if "dp" in run.parallelism.overlap:
            ends_s = np.maximum(simulated.free_s, simulated.leaving_s + gradients_s)
        else:
            ends_s, update_s = simulated.free_s + gradients_s, update_s + weights_s
        return float((ends_s.max() + update_s.max()) * least_jitter(run))

    def _update_s(self, clock_hz: float) -> float:
        return float(at_clock(self.costs.clocks_hz, self.costs.update_s[None], np.array([clock_hz]))[0])

    def _simulated(self, run: RunSpec, recompute: str, clock_hz: float) -> SimulatedSchedule:
        step = CLOCK_STEP * self.costs.clocks_hz[-1]
        clock_hz = min(float(np.ceil(clock_hz / step) * step), float(self.costs.clocks_hz[-1]))
        degrees, hidden = run.parallelism, hidden_axes(run) - {"dp"}
        key = (degrees.pp, degrees.vpp, degrees.dp, degrees.schedule, recompute, hidden, clock_hz)
        if key not in self.known:
            self.known[key] = self._simulate(run, recompute, hidden & IN_PASSES, clock_hz)
        return self.known[key]

    def _simulate(self, run: RunSpec, recompute: str, hidden: frozenset[str], clock_hz: float) -> SimulatedSchedule:
        degrees, costs = run.parallelism, self.costs
        chunks = compose(model_kinds(run), degrees.layers_per_stage, degrees.pp, recompute).chunks
        split = SCHEDULES[degrees.schedule].puts_off_weights
        known = frozenset().union(*self.bounds.exposed)
        exposed_forward, exposed = self.bounds.exposed[hidden & known][int(split)]
        forward, late, total = (
            at_clock(costs.clocks_hz, seconds, np.full(len(seconds), clock_hz))
            for seconds in (costs.forward_s, costs.weight_s * split, costs.total_s)
        )
        columns = [forward + exposed_forward, total - forward - late + exposed - exposed_forward, late]
        races = np.full((3, len(chunks), 4), NEVER)
        for kind, seconds in enumerate(columns):
            races[kind, :, 0], races[kind, :, 3] = chunks @ seconds, 0.0
        order = order_arrays(degrees.schedule, degrees.pp, degrees.vpp, run.microbatches)
        hops_s = hop_seconds(Step(run, self.blocks.step.cut, ()), NETWORK)
        blocking = "pp" not in hidden_axes(run)
        events = simulate_schedule(
            order, races, hops_s, blocking=blocking, chunks=len(chunks), microbatches=run.microbatches
        )
        final = (order[:, :, 0] == BACKWARD) & (order[:, :, 2] == run.microbatches - 1)
        leaving_s = np.where(final, events.start_s, np.inf).min(axis=1)
        held = np.stack([chunks[stage :: degrees.pp].sum(axis=0) for stage in range(degrees.pp)])
        return SimulatedSchedule(events.free_s, leaving_s, clock_hz, held @ self.weights)
