"""Staggered replicas cost what they are spread over; independent jobs cost nothing."""

from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.plan.dephase import Stagger, free_slack_s, spread_jobs, stagger_replicas
from charllm.simulate.predict import Simulation, predict

REQUEST: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": "h200x8",
    "parallelism": {"tp": 2, "pp": 2, "dp": 2},
    "training": {"global_batch_size": 128},
}


@pytest.fixture(scope="module")
def found() -> Simulation:
    return predict(resolve_run(REQUEST))


@pytest.fixture(scope="module")
def curve(found: Simulation) -> list[Stagger]:
    return list(stagger_replicas(found))


def test_a_stagger_of_equal_replicas_costs_as_many_seconds_a_step(found: Simulation, curve: list[Stagger]) -> None:
    before_s = found.result.metrics["step_time_s"]
    assert curve[0].stagger_s == curve[0].cost_fraction == 0
    assert free_slack_s(found) == 0
    assert len(curve) > 3
    for one in curve[1:]:
        assert one.step_time_s - before_s == pytest.approx(one.stagger_s, rel=0.1)
        assert one.cost_fraction == pytest.approx(1 - before_s / one.step_time_s)


def test_a_stagger_of_about_a_second_lowers_the_ramp(curve: list[Stagger]) -> None:
    ramps = {one.stagger_s: one.ramp_w_per_s or 0.0 for one in curve}
    assert min(ramps.values()) < 0.9 * ramps[0.0]


def test_a_stagger_within_the_slack_of_a_faster_replica_is_free() -> None:
    weak = {"weak_gpus": [0], "weak_power_fraction": 1.8}
    slow = predict(resolve_run({**REQUEST, "conditions": weak}))
    slack_s = free_slack_s(slow)
    assert slack_s > 0.1
    within = predict(resolve_run({**REQUEST, "conditions": {**weak, "replica_stagger_s": slack_s / 2}}))
    assert within.result.metrics["step_time_s"] == pytest.approx(slow.result.metrics["step_time_s"], rel=0.005)


def test_one_replica_has_nothing_to_stagger() -> None:
    alone = predict(resolve_run({**REQUEST, "parallelism": {"tp": 2, "pp": 4}}))
    assert list(stagger_replicas(alone)) == []


def test_jobs_that_are_spread_over_a_step_swing_less(found: Simulation) -> None:
    jobs = spread_jobs(found)
    assert [one.jobs for one in jobs] == [2, 4, 8]
    for one in jobs:
        assert one.spread_swing_w < one.together_swing_w
        assert one.spread_ramp_w_per_s < one.together_ramp_w_per_s
    assert np.ptp([one.together_swing_w / one.jobs for one in jobs]) == pytest.approx(0, abs=1e-6)
