"""What a step takes at any clock: told by its GPU alone, whatever limits it has."""

from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.simulate.knots import draw_lines, interval_of, knots_hz
from charllm.simulate.predict import simulate
from charllm.simulate.recorded import price_at
from charllm.simulate.steady import MOST_ROUNDS, build_machine, simulate_to_steady
from charllm.spec.request import merge
from charllm.workload.step import build_step

HOSTED: dict[str, Any] = {
    "model": "mpt-125m",
    "cluster": "mi355x1",
    "training": {"micro_batch_size": 4, "global_batch_size": 16},
}
"""A run whose GPU waits for its host."""
HOT: dict[str, Any] = {
    "model": "gpt3-1.3b",
    "cluster": {"base": "b200x8", "cooling": {"inlet_c": 45.0}},
    "training": {"global_batch_size": 32},
    "conditions": {"hot_gpus": [5], "hot_sink_fraction": 7.0},
}


def test_lines_meet_at_knots() -> None:
    knots = knots_hz(resolve_run(HOSTED).cluster.gpu)
    times_s = np.linspace(1.0, 5.0, len(knots)) ** 2
    cycles, fixed_s = draw_lines(times_s, knots)
    assert cycles / knots[:-1] + fixed_s == pytest.approx(times_s[:-1])
    assert cycles / knots[1:] + fixed_s == pytest.approx(times_s[1:])
    assert [interval_of(knots, hertz) for hertz in (knots[0], knots[3] - 1.0, knots[-1])] == [0, 3, len(knots) - 2]


def test_limits_do_not_change_what_a_slice_takes() -> None:
    free, capped = (
        build_machine(build_step(resolve_run(merge(HOSTED, {"conditions": conditions}))))
        for conditions in ({}, {"power_cap_w": 700.0, "clock_cap_hz": 1.5e9})
    )
    assert np.array_equal(free.slices.table, capped.slices.table)
    assert np.array_equal(free.ends.times_s, capped.ends.times_s)


def test_a_cap_that_holds_nothing_changes_nothing() -> None:
    free, capped = (
        simulate(resolve_run(merge(HOSTED, {"conditions": conditions}))).metrics
        for conditions in ({}, {"power_cap_w": 700.0})
    )
    assert free["breakdown_s"]["overhead"] > free["breakdown_s"]["compute"]
    assert capped["step_time_s"] == free["step_time_s"]


@pytest.mark.parametrize("place", [0, 4, 7])
def test_a_step_at_a_steady_clock_takes_what_it_was_priced_at(place: int) -> None:
    hertz = float(knots_hz(resolve_run(HOSTED).cluster.gpu)[place])
    step = build_step(resolve_run(merge(HOSTED, {"conditions": {"clock_cap_hz": hertz}})))
    machine = build_machine(step)
    priced = price_at(step, machine.priced[0], hertz)
    assert simulate_to_steady(machine).step_time_s == pytest.approx(priced.step_time_s, rel=1e-9)


def test_a_gpu_that_heat_throttles_hard_settles() -> None:
    machine = build_machine(build_step(resolve_run(HOT)))
    found = simulate_to_steady(machine)
    assert found.rounds < MOST_ROUNDS
    hot = simulate(resolve_run(HOT)).metrics
    assert hot["throttled_time_fraction"]["thermal"] > 0
