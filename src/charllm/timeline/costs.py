"""Seconds and joules of every op of a step at one clock: kernels as gpu/ has them, collectives as network/ has them.

A kernel's seconds are split into cycles and seconds that no clock changes, which is exact at the clock of the costs and
within a per cent some hundred MHz away: t(f) = matrix cycles / f_matrix + other cycles / f + fixed.
Equation: seconds and joules of an op = sum over the kernels it launches; a collective takes what it takes alone after
the wait for the last of its ranks, and the energy of its bytes.
Source: gpu/kernels.py, network/collectives.py, timeline/arrival.py.
Ignores: that the share of a kernel's time that follows the clock itself changes with the clock.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats, Ints
from charllm.gpu.kernels import Shapes, energy_of_kernels, read_shapes, time_kernels
from charllm.gpu.shape import KernelShape
from charllm.network.collectives import collective_seconds
from charllm.network.constants import NETWORK, NetworkConstants
from charllm.spec.hardware import Gpu
from charllm.spec.run import RunSpec
from charllm.timeline.arrival import arrival_wait_s
from charllm.timeline.constants import TIMELINE, TimelineConstants
from charllm.workload.launches import launched
from charllm.workload.op import Op, is_communication
from charllm.workload.step import Step
from charllm.workload.sync import optimizer_ops

MATRIX, OTHER, FIXED, MATRIX_J, CORE_J, BOARD_J = range(6)
"""Columns of a cost: cycles of matrix units, other cycles, seconds, joules in matrix units, on the die, beside it."""
COLUMNS = 6


class StepKernels(NamedTuple):
    """The kernels that the ops of a step launch, each distinct one once."""

    row_of: dict[int, int]
    """Identity of an op: its row."""
    shapes: Shapes
    op: Ints
    """[launch] the op's row, the kernel's place and how often it is launched."""
    kernel: Ints
    times: Floats
    launch_s: Floats
    """[op] what its launches take on a tuned host."""
    launches: Floats
    """[op] how many kernels it launches."""
    updates: tuple[tuple[Op, ...], ...]
    """[stage] what updates its weights."""


class Costs(NamedTuple):
    """What the ops of a step cost at a clock."""

    run: RunSpec
    kernels: StepKernels
    clock_hz: float
    table: Floats
    """[op, column]"""
    seconds: Floats
    """[op] at the clock."""
    collectives: dict[int, tuple[Op, float]]
    """Identity of a collective: itself, and its seconds."""
    network: NetworkConstants
    timeline: TimelineConstants
    slow_links: Mapping[str, RunSpec] = {}
    """Kind of group: the same run on links as slow as the slowest of the group's own, where they are not the usual."""

    def price(self, op: Op) -> float:
        """Return the seconds of an op."""
        if is_communication(op):
            return self.collective_s(op)
        return self.seconds.item(self.kernels.row_of[id(op)])

    def collective_s(self, op: Op) -> float:
        """Return the seconds of a collective from a typical rank's arrival, when nothing else uses its links."""
        found = self.collectives.get(id(op))
        if found is None:
            late_s = 0.0 if op.kind == "send" else arrival_wait_s(self.run, op.group, self.timeline)
            # The op is kept, so that its identity stays its own.
            found = (op, late_s + collective_seconds(op, self.run_of(op), self.network))
            self.collectives[id(op)] = found
        return found[1]

    def run_of(self, op: Op) -> RunSpec:
        """Return the run whose links a collective has."""
        return self.slow_links.get(op.group, self.run)

    def cells(self, op: Op) -> Floats:
        """Return an op's row; a collective's has its energy and no time of its own."""
        if is_communication(op):
            return np.array([0.0, 0.0, 0.0, *transfer_j(op.sent_bytes, self.run.cluster.gpu)])
        return np.asarray(self.table[self.kernels.row_of[id(op)]])

    def launch_s(self, op: Op) -> float:
        """Return what launching an op takes on a tuned host."""
        if is_communication(op):
            return self.run.framework.launch_s
        return self.kernels.launch_s.item(self.kernels.row_of[id(op)])

    def launches(self, op: Op) -> float:
        """Return how many kernels an op launches."""
        return 1.0 if is_communication(op) else self.kernels.launches.item(self.kernels.row_of[id(op)])


def transfer_j(sent_bytes: float, gpu: Gpu) -> tuple[float, float, float]:
    """Return the joules of a transfer on one GPU: what is sent is read, and as much arrives and is written.

    Ignores: reductions' arithmetic.
    """
    power, moved_bytes = gpu.power, 2 * sent_bytes
    on_board = moved_bytes * power.memory_byte_j + sent_bytes * power.link_byte_j
    return 0.0, moved_bytes * power.cache_byte_j, on_board


def read_step(step: Step) -> StepKernels:
    """List the kernels of every op of a step."""
    updates = tuple(optimizer_ops(step, stage) for stage in range(step.run.parallelism.pp))
    return read_ops(_distinct_ops(step, updates), step.run, updates)


def read_ops(ops: Sequence[Op], run: RunSpec, updates: tuple[tuple[Op, ...], ...] = ()) -> StepKernels:
    """List the kernels of ops that run on a GPU."""
    places: dict[KernelShape, int] = {}
    lists = [(row, one) for row, op in enumerate(ops) for one in launched(op, run)]
    launches = [(row, places.setdefault(one.shape, len(places)), one.times) for row, one in lists]
    called_s = [one.host_s(run.framework.launch_s) for _row, one in lists]
    table = np.array(launches, dtype=np.int64).reshape(-1, 3)
    shapes = _shapes(tuple(places), run.cluster.gpu, eager=run.framework.graphs == "none")
    times = table[:, 2].astype(np.float64)
    launch_s, kernels = np.zeros(len(ops)), np.zeros(len(ops))
    np.add.at(launch_s, table[:, 0], times * np.array(called_s))
    np.add.at(kernels, table[:, 0], times * np.array([max(1.0, one.looped) for _row, one in lists]))
    rows = {id(op): row for row, op in enumerate(ops)}
    return StepKernels(rows, shapes, table[:, 0], table[:, 1], times, launch_s, kernels, updates)


@lru_cache(maxsize=512)
def _shapes(shapes: tuple[KernelShape, ...], gpu: Gpu, *, eager: bool) -> Shapes:
    """Describe kernels, remembered: steps with the same share of a layer launch the same ones."""
    return read_shapes(shapes, gpu, in_step=True, eager=eager)


def _distinct_ops(step: Step, updates: tuple[tuple[Op, ...], ...]) -> list[Op]:
    """List every op that runs on a GPU, each once."""
    found: dict[int, Op] = {}
    seen: set[tuple[int, int]] = set()
    for chunk in step.chunks:
        for block in chunk.blocks:
            key = (id(block.modules), id(block.replay))
            if key in seen:
                continue
            seen.add(key)
            for module in block.modules:
                for op in (*module.forward, *module.backward):
                    found[id(op)] = op
            for op in block.replay.ops:
                found[id(op)] = op
    for ops in updates:
        for op in ops:
            found[id(op)] = op
    return [op for op in found.values() if not is_communication(op)]


def cost_step(
    step: Step, kernels: StepKernels, clock_hz: float, network: NetworkConstants = NETWORK,
    timeline: TimelineConstants = TIMELINE,
) -> Costs:  # fmt: skip
    """Return what every op of a step costs at one clock."""
    table, seconds = cost_ops(kernels, step.run.cluster.gpu, clock_hz)
    return Costs(step.run, kernels, clock_hz, table, seconds, {}, network, timeline)


def cost_ops(kernels: StepKernels, gpu: Gpu, clock_hz: float) -> tuple[Floats, Floats]:
    """Return a row of costs for each op, and its seconds, at one clock."""
    shapes = kernels.shapes
    rows = kernel_rows(shapes, gpu, np.full(len(shapes.flop), clock_hz))
    table = np.zeros((len(kernels.launch_s), COLUMNS))
    np.add.at(table, kernels.op, kernels.times[:, None] * rows[kernels.kernel])
    seconds = table[:, MATRIX] / matrix_hz(gpu, clock_hz) + table[:, OTHER] / clock_hz + table[:, FIXED]
    return table, seconds


def matrix_hz(gpu: Gpu, clock_hz: float) -> float:
    """Return the clock of full matrix units."""
    return min(clock_hz, gpu.burst_clock_hz)


def kernel_rows(shapes: Shapes, gpu: Gpu, clock_hz: Floats) -> Floats:
    """Return one call of each kernel as a row of costs, linearised at a clock each."""
    times = time_kernels(shapes, gpu, clock_hz)
    energies = energy_of_kernels(shapes, gpu, times)
    bound_s = times.clock_bound * times.running_s
    products = shapes.masks["products"]
    rows = np.zeros((len(clock_hz), COLUMNS))
    full_hz = np.minimum(clock_hz, gpu.burst_clock_hz)
    rows[:, MATRIX] = np.where(products, bound_s * full_hz, 0.0)
    rows[:, OTHER] = np.where(products, 0.0, bound_s * clock_hz)
    rows[:, FIXED] = times.running_s - bound_s
    rows[:, MATRIX_J], rows[:, CORE_J], rows[:, BOARD_J] = energies
    return rows
