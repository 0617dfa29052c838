"""How a run from a cold start is told by few steps: how many each stands for, and what they add up to."""

import math
from itertools import pairwise

import numpy as np
import pytest

from charllm.gpu.heat import SINK, network
from charllm.gpu.physics import idle_w
from charllm.simulate import step_loop
from charllm.simulate.cold import _idle_c, _left, _until_moved, simulate_from_cold, warm_up
from tests.simulate.runs import ran, under

SMALL = {"model": "llama3.2-1b", "cluster": "h200x1", "training": {"global_batch_size": 64}}


def test_what_is_left_of_a_run_is_counted_in_steps_or_by_the_clock() -> None:
    assert _left(2.0, 3.0, 6.0, 10, None) == 7.0
    assert _left(2.0, 3.0, 6.0, None, 11.0) == 2.5
    assert _left(2.0, 3.0, 6.0, None, 5.0) == 1e-9


def test_a_step_stands_for_those_until_a_sink_has_moved_half_a_kelvin_or_half_of_what_is_left() -> None:
    time_s = np.array([100.0, 40.0])
    # 10 K to go: 0.5 K are moved after -100 ln(1 - 0.05) = 5.13 s; 0.6 K: half of it after 40 ln 2 = 27.7 s.
    assert _until_moved(np.array([0.0, 5.0]), np.array([10.0, 5.6]), time_s, 1.0) == 5.0
    assert _until_moved(np.array([10.0, 5.0]), np.array([10.0, 5.6]), time_s, 1.0) == 27.0
    assert _until_moved(np.array([10.0, 5.6]), np.array([10.0, 5.0]), time_s, 1.0) == 27.0
    # At least the step itself; settled sinks, within 0.05 K, need none.
    assert _until_moved(np.array([0.0, 5.0]), np.array([90.0, 5.6]), time_s, 10.0) == 1.0
    assert _until_moved(np.array([0.0, 5.0]), np.array([0.04, 5.04]), time_s, 1.0) == math.inf


def test_the_steps_of_a_run_add_up_to_its_length_and_its_energy() -> None:
    machine = ran(base=SMALL).machine
    moments = list(warm_up(machine, 100, None))
    assert sum(one.covered for one in moments) == 100
    assert moments[0].begun_s == 0.0
    for before, after in pairwise(moments):
        assert after.begun_s == pytest.approx(before.begun_s + before.covered * before.simulated_step.step_time_s)
    total = simulate_from_cold(machine, 100, None)
    lasted_s = sum(one.covered * one.simulated_step.step_time_s for one in moments)
    spent_j = sum(one.covered * one.simulated_step.sums[0, step_loop.ENERGY] for one in moments)
    assert total.step_time_s == pytest.approx(lasted_s / 100)
    assert total.sums[0, step_loop.ENERGY] == pytest.approx(spent_j / 100)
    assert total.rounds == len(moments)
    hottest_c = max(one.simulated_step.sums[0, step_loop.HOT_C] for one in moments)
    assert total.sums[0, step_loop.HOT_C] == hottest_c
    assert np.array_equal(total.sink_k, moments[-1].sink_k)


def test_a_sink_goes_to_its_target_with_its_own_time_constant() -> None:
    machine = ran(base=SMALL).machine
    cluster, board = machine.run.cluster, machine.board
    net = network(cluster.node, cluster.cooling)
    first, second = (moment for moment, _ in zip(warm_up(machine, None, 600.0), range(2), strict=False))
    cold_k = net.resistance_k_per_w[0, SINK] * idle_w(board)
    power_w = first.simulated_step.sums[0, step_loop.ENERGY] / first.simulated_step.step_time_s
    target_k = net.resistance_k_per_w[0, SINK] * power_w
    lasted_s = first.covered * first.simulated_step.step_time_s
    left = math.exp(-lasted_s / net.time_s[0, SINK])
    assert first.sink_k[0] == pytest.approx(target_k + (cold_k - target_k) * left)
    assert second.begun_s == pytest.approx(lasted_s)
    poles_k = float(np.sum(machine.resistance[0])) * idle_w(board)
    assert _idle_c(machine)[0] == pytest.approx(cluster.cooling.inlet_of(0) + cold_k + poles_k)


def test_a_sink_that_is_twice_as_bad_warms_for_twice_as_long() -> None:
    bad = ran(under(hot_gpus=[0], hot_sink_fraction=2.0), SMALL).machine
    usual = ran(base=SMALL).machine
    slow, fast = (next(iter(warm_up(machine, None, 600.0))) for machine in (bad, usual))
    net = network(usual.run.cluster.node, usual.run.cluster.cooling)
    power_w = slow.simulated_step.sums[0, step_loop.ENERGY] / slow.simulated_step.step_time_s
    cold_k, target_k = (2 * net.resistance_k_per_w[0, SINK] * watts for watts in (idle_w(bad.board), power_w))
    lasted_s = slow.covered * slow.simulated_step.step_time_s
    left = math.exp(-lasted_s / (2 * net.time_s[0, SINK]))
    assert slow.sink_k[0] == pytest.approx(target_k + (cold_k - target_k) * left)
    assert slow.sink_k[0] > fast.sink_k[0]
