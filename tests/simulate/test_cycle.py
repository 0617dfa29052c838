"""Phases that follow each other: rests and repeated steps."""

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.gpu.physics import idle_w
from charllm.simulate import step_loop
from charllm.simulate.cycle import OWN, Phase, _lengthen, _rest, hand_on
from charllm.simulate.sinks import sink_target_k
from charllm.simulate.steady import build_machine, start_state
from charllm.workload.step import build_step


def test_gpus_at_rest_draw_idle_power_and_cool_towards_its_temperature() -> None:
    run = resolve_run({"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 8}})
    machine = build_machine(build_step(run))
    state = start_state(machine, 600.0)
    sink_k = sink_target_k(machine, np.full(8, 600.0))
    idle = idle_w(machine.board)
    before_k, rest_s = state[:, step_loop.POLES :].sum(axis=1), 120.0
    found = _rest(Phase("wait", None, rest_s=rest_s), machine, state, sink_k)
    sums = found.simulated_step.sums
    assert found.seconds == found.simulated_step.step_time_s == rest_s
    assert sums[:, step_loop.ENERGY] == pytest.approx(np.full(8, idle * rest_s))
    assert sums[:, step_loop.PEAK_W] == pytest.approx(np.full(8, idle))
    assert sums[:, step_loop.CLOCK_S] / rest_s == pytest.approx(machine.asked_hz)
    assert sums[:, step_loop.CLOCK2_S] / rest_s == pytest.approx(machine.asked_hz**2)
    assert sums[:, step_loop.HEAT_S] / rest_s == pytest.approx(sums[:, step_loop.HOT_C])
    after_k = state[:, step_loop.POLES :].sum(axis=1)
    assert after_k == pytest.approx(before_k * idle / 600, rel=0.02)
    assert state[:, step_loop.MEAN_W] == pytest.approx(np.full(8, idle), rel=1e-3)
    assert len(found.cluster_w) == round(rest_s / machine.board.tick_s)
    assert found.cluster_w == pytest.approx(np.full(4800, 8 * idle))


def test_later_boxes_are_repeated_after_the_first_ones() -> None:
    first, later = np.array([1.0, 2.0, 3.0]), np.array([7.0, 8.0])
    assert _lengthen(first, later, 8, axis=0).tolist() == [1, 2, 3, 7, 8, 7, 8, 7]
    assert _lengthen(first, later, 2, axis=0).tolist() == [1, 2]
    assert _lengthen(first[None], later[None], 5, axis=1).tolist() == [[1, 2, 3, 7, 8]]


def test_steps_of_a_phase_are_its_tokens_of_each_sequence() -> None:
    request = {"model": "llama3-8b", "cluster": "h200x8", "framework": "vllm",
               "parallelism": {"tp": 8, "schedule": "forward-only"},
               "training": {"global_batch_size": 4, "micro_batch_size": 1, "seq_length": 512},
               "generation": {"prompt_tokens": 512, "new_tokens": 512}}  # fmt: skip
    run = resolve_run(request)
    in_row = run.generation.tokens_in_row if run.generation else 0
    assert Phase("decode", build_step(run), times=31).steps == 31 * in_row
    assert Phase("wait", None, times=2.4).steps == 2


def test_gpus_begin_a_phase_as_the_one_before_left_them_but_for_what_is_the_phases_own() -> None:
    request = {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 8}}
    before, after = (build_machine(build_step(resolve_run(request))) for _ in range(2))
    left = start_state(before, 600.0) + 0.25
    assert hand_on(after, after, left) is left
    found, fresh = hand_on(after, before, left), start_state(after)
    own = np.isin(np.arange(left.shape[1]), list(OWN))
    assert np.array_equal(found[:, ~own], left[:, ~own])
    assert np.array_equal(found[:, own], fresh[:, own])
    assert not own[-1]
