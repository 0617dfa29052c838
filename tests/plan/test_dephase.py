"""Staggered replicas cost what they are spread over; independent jobs cost nothing."""

from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.plan.dephase import STAGGERS_S, Stagger, free_slack_s, spread_jobs, stagger_replicas
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


def test_jobs_add_up_as_a_hand_makes_them(found: Simulation) -> None:
    # A step of 4 s that draws 3 kW for 1 s and 1 kW for 3 s. Four of them, a second apart, always draw 6 kW; two draw 4
    # and 2 kW by turns; eight, half a second apart, always 12 kW. Together they change by 2 kW each in a second.
    power_w = np.repeat([3000.0, 1000.0, 1000.0, 1000.0], 40)
    assert found.simulated is not None
    step = found.simulated.simulated_step._replace(step_time_s=4.0, box_s=0.025, cluster_w=power_w)
    jobs = spread_jobs(found._replace(simulated=found.simulated._replace(simulated_step=step)))
    assert [one.together_ramp_w_per_s for one in jobs] == pytest.approx([4000.0, 8000.0, 16_000.0])
    assert [one.spread_ramp_w_per_s for one in jobs] == pytest.approx([2000.0, 0.0, 0.0], abs=1e-6)
    # Sines of k / 4 Hz, k from 1 to 12, have amplitudes 2000 x 2 / (pi k) |sin(pi k / 4)|; two jobs keep the even ones.
    amplitudes = np.array([4000 / np.pi / k * abs(np.sin(np.pi * k / 4)) for k in range(1, 13)])
    assert jobs[0].together_swing_w == pytest.approx(2 * 2 * np.sqrt(np.sum(amplitudes**2)), rel=0.01)
    assert jobs[0].spread_swing_w == pytest.approx(2 * 2 * np.sqrt(np.sum(amplitudes[1::2] ** 2)), rel=0.01)
    assert [one.spread_swing_w for one in jobs[1:]] == pytest.approx([0.0, 0.0], abs=1e-6)


def test_a_step_of_less_than_two_boxes_has_no_swing(found: Simulation) -> None:
    assert found.simulated is not None
    step = found.simulated.simulated_step._replace(step_time_s=0.04, box_s=0.025, cluster_w=np.ones(1))
    assert spread_jobs(found._replace(simulated=found.simulated._replace(simulated_step=step))) == []


def test_staggers_lie_around_the_second_of_a_ramp_up_to_a_fifth_of_the_step(
    found: Simulation, curve: list[Stagger]
) -> None:
    assert STAGGERS_S == (0.25, 0.5, 1.0, 2.0, 4.0)
    assert [one.stagger_s for one in curve[1:]] == [
        stagger_s for stagger_s in STAGGERS_S if stagger_s <= found.result.metrics["step_time_s"] / 5
    ]
