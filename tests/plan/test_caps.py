from functools import cache
from itertools import pairwise

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.errors import DoesNotFit, SpecError
from charllm.plan.caps import KINDS, KNEES, CapPoint, Judge, find_knees, sweep_caps
from charllm.plan.stage_caps import StageCaps, advise_stages, group_stages, stage_capped_run
from charllm.spec.request import Table, merge

SMALL: Table = {
    "model": "llama3-8b",
    "cluster": "h200x8",
    "parallelism": {"tp": 2, "pp": 4, "layers_per_stage": [10, 10, 9, 3]},
    "training": {"global_batch_size": 16},
}
"""The last stage waits for the others."""


@cache
def swept(kind: str) -> list[CapPoint]:
    return sweep_caps(resolve_run(SMALL), KINDS[kind])


@cache
def staged() -> StageCaps:
    return advise_stages(resolve_run(SMALL), KINDS["clock"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_lower_cap_never_raises_power_nor_shortens_the_step(kind: str) -> None:
    points = swept(kind)
    caps = [point.caps[0] for point in points]
    assert caps == sorted(caps, reverse=True)
    for higher, lower in pairwise(points):
        assert lower.metrics["power_mean_w"] <= 1.002 * higher.metrics["power_mean_w"]
        assert lower.metrics["step_time_s"] >= 0.998 * higher.metrics["step_time_s"]


@pytest.mark.parametrize("kind", KINDS)
def test_energy_is_power_over_the_step(kind: str) -> None:
    for point in swept(kind):
        metrics = point.metrics
        assert metrics["energy_per_step_j"] == pytest.approx(8 * metrics["power_mean_w"] * metrics["step_time_s"])


def test_power_keeps_to_its_cap_and_the_clock_to_its_own() -> None:
    # Below 250 W an H200 runs at its lowest clock, and draws what that takes.
    assert all(point.metrics["power_mean_w"] <= point.caps[0] for point in swept("power") if point.caps[0] >= 250)
    assert all(point.metrics["clock_mean_hz"] <= 1.001 * point.caps[0] for point in swept("clock"))


@pytest.mark.parametrize("kind", KINDS)
def test_knees_are_the_best_points_with_neighbours_close_by(kind: str) -> None:
    points = swept(kind)
    for name, place in find_knees(points).items():
        keys = [KNEES[name].key(point.metrics) for point in points]
        assert keys[place] == min(keys)
        beside = points[max(0, place - 1) : place + 2]
        assert all(abs(one.caps[0] / points[place].caps[0] - 1) < 0.05 for one in beside), name


def test_gpu_hours_for_nothing_move_the_least_money_to_lower_caps() -> None:
    points = swept("power")
    assert find_knees(points)["least money"] <= find_knees(points)["most tokens per joule"]


def test_free_caps_of_stages_leave_the_step_time_and_save_energy() -> None:
    uniform, free = staged().levels[0]
    assert free.metrics["step_time_s"] == pytest.approx(uniform.metrics["step_time_s"], rel=0.002)
    assert free.metrics["energy_per_step_j"] < 0.99 * uniform.metrics["energy_per_step_j"]
    assert free.caps[3] < free.caps[1]


def test_at_every_level_stages_take_no_longer_and_no_more_energy_than_one_cap_for_all() -> None:
    levels = staged().levels
    assert len(levels) > 2
    for uniform, own in levels:
        assert own.metrics["step_time_s"] <= 1.002 * uniform.metrics["step_time_s"]
        assert own.metrics["energy_per_step_j"] <= uniform.metrics["energy_per_step_j"]
        assert max(own.caps) <= uniform.caps[0]
    assert find_knees([level.staged for level in levels])["knee"] < len(levels) - 1


def test_stages_that_do_the_same_share_a_cap() -> None:
    run = resolve_run(merge(SMALL, {"parallelism": {"layers_per_stage": [8, 8, 8, 8]}}))
    assert sorted(group.stages for group in group_stages(run, Judge())) == [(0,), (1, 2), (3,)]
    capped = stage_capped_run(run, KINDS["clock"], (1e9, 1.1e9, 1.2e9, 1.3e9))
    assert [capped.caps[gpu].clock_hz for gpu in (0, 1, 2, 7)] == [1e9, 1e9, 1.1e9, 1.3e9]


def test_what_cannot_be_advised_is_refused() -> None:
    flat = resolve_run({"model": "llama3-8b", "cluster": "h200x8"})
    with pytest.raises(SpecError, match="one pipeline stage"):
        advise_stages(flat, KINDS["power"])
    with pytest.raises(SpecError, match="200 to 700 W"):
        sweep_caps(flat, KINDS["power"], at=[900.0])
    with pytest.raises(DoesNotFit, match="ignore-memory"):
        sweep_caps(resolve_run({"model": "llama3-70b", "cluster": "h200x8"}), KINDS["power"], at=[700.0])
