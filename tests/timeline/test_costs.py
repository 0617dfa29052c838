"""Costs of ops: what gpu/ says of their kernels, as cycles and seconds, and what network/ says of collectives."""

from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.catalog.tables import entries
from charllm.gpu.kernels import energy_of_kernels, read_shapes, time_kernels
from charllm.network.collectives import collective_seconds
from charllm.spec.request import merge
from charllm.timeline.arrival import arrival_wait_s
from charllm.timeline.costs import (
    BOARD_J,
    CORE_J,
    FIXED,
    MATRIX,
    MATRIX_J,
    OTHER,
    Costs,
    cost_step,
    matrix_hz,
    read_step,
)
from charllm.workload.launches import launched
from charllm.workload.op import Op, is_communication
from charllm.workload.step import Step, build_step

DENSE: dict[str, Any] = {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 2, "pp": 2}}
SPARSE: dict[str, Any] = {"model": "mixtral-8x7b", "cluster": "h200x8", "parallelism": {"ep": 8}}
REQUESTS = {
    "dense": DENSE,
    "sparse": SPARSE,
    "eager": merge(DENSE, {"framework": "pytorch-eager", "training": {"global_batch_size": 64}}),
    "fp8": merge(DENSE, {"training": {"precision": "fp8"}}),
    "recomputed": merge(SPARSE, {"training": {"recompute": "full"}}),
}
CLOCK_HZ = 1.5e9


def step_of(name: str) -> Step:
    return build_step(resolve_run(REQUESTS[name]))


def ops_of(step: Step) -> list[Op]:
    """List the ops of every block, forward, backward and recomputed."""
    blocks = [block for chunk in step.chunks for block in chunk.blocks]
    ops = [op for block in blocks for module in block.modules for op in (*module.forward, *module.backward)]
    return ops + [op for block in blocks for op in block.replay.ops]


def costed(step: Step, clock_hz: float = CLOCK_HZ) -> Costs:
    return cost_step(step, read_step(step), clock_hz)


def seconds_at(costs: Costs, op: Op, clock_hz: float) -> float:
    row = costs.cells(op)
    return float(row[MATRIX] / matrix_hz(costs.run.cluster.gpu, clock_hz) + row[OTHER] / clock_hz + row[FIXED])


@pytest.mark.parametrize("name", REQUESTS)
def test_an_op_takes_the_seconds_and_joules_of_its_kernels(name: str) -> None:
    step = step_of(name)
    costs, gpu = costed(step), step.run.cluster.gpu
    for op in (op for op in ops_of(step) if not is_communication(op)):
        kernels = launched(op, step.run)
        shapes = read_shapes([one.shape for one in kernels], gpu, in_step=True, eager=True)
        times = time_kernels(shapes, gpu, np.full(len(kernels), CLOCK_HZ))
        often = np.array([one.times for one in kernels])
        assert costs.price(op) == pytest.approx(float(often @ times.running_s), rel=1e-9), op.name
        joules = [float(often @ part) for part in energy_of_kernels(shapes, gpu, times)]
        assert costs.cells(op)[[MATRIX_J, CORE_J, BOARD_J]] == pytest.approx(joules, rel=1e-9), op.name
        called_s = sum(one.times * one.host_s(step.run.framework.launch_s) for one in kernels)
        assert costs.launch_s(op) == pytest.approx(called_s)


@pytest.mark.parametrize("away_hz", [-1e8, 1e8])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_pass_is_within_a_per_cent_some_100_mhz_away(name: str, away_hz: float) -> None:
    step = step_of(name)
    costs, there = costed(step), costed(step, CLOCK_HZ + away_hz)
    ops = [op for op in ops_of(step) if not is_communication(op)]
    linear_s = sum(seconds_at(costs, op, CLOCK_HZ + away_hz) for op in ops)
    assert linear_s == pytest.approx(sum(there.price(op) for op in ops), rel=0.01)


@pytest.mark.parametrize("name", REQUESTS)
def test_more_clock_is_never_slower(name: str) -> None:
    step = step_of(name)
    kernels = read_step(step)
    clocks = np.linspace(6e8, step.run.cluster.gpu.clock_max_hz, 8)
    seconds = [cost_step(step, kernels, clock_hz).seconds for clock_hz in clocks]
    assert np.all(np.diff(seconds, axis=0) <= 1e-12)


@pytest.mark.parametrize("model", sorted(entries("models")))
def test_every_op_of_every_model_has_a_row_that_takes_time_and_energy(model: str) -> None:
    step = build_step(resolve_run({"model": model, "cluster": "h200x8"}))
    costs = costed(step)
    ops = [*ops_of(step), *(op for ops in costs.kernels.updates for op in ops)]
    assert ops
    for op in ops:
        row = costs.cells(op)
        assert np.all(row >= 0)
        assert row[[MATRIX_J, CORE_J, BOARD_J]].sum() > 0, op.name
        assert costs.price(op) > 0, op.name


def test_a_collective_lasts_as_long_at_any_clock_and_takes_its_bytes_energy() -> None:
    step = step_of("dense")
    slow, fast = costed(step, 8e8), costed(step, 1.9e9)
    moved = [op for op in ops_of(step) if is_communication(op)]
    assert moved
    for op in moved:
        expected_s = arrival_wait_s(step.run, op.group, slow.timeline) + collective_seconds(op, step.run, slow.network)
        assert slow.price(op) == fast.price(op) == pytest.approx(expected_s)
        power = step.run.cluster.gpu.power
        board_j = 2 * op.sent_bytes * power.memory_byte_j + op.sent_bytes * power.link_byte_j
        assert slow.cells(op)[BOARD_J] == pytest.approx(board_j)
        assert slow.cells(op)[[MATRIX, OTHER, FIXED]].sum() == 0


def test_only_products_cycle_with_matrix_units() -> None:
    step = step_of("sparse")
    costs = costed(step)
    for op in (op for op in ops_of(step) if not is_communication(op)):
        product = op.kind in ("gemm", "grouped_gemm")
        assert product or costs.cells(op)[MATRIX] == 0, op.name
        assert not product or costs.cells(op)[OTHER] == 0, op.name
