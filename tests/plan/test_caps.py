from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.errors import DoesNotFit, SpecError
from charllm.plan import stage_caps
from charllm.plan.cap_table import tabulate_caps
from charllm.plan.caps import KINDS, KNEES, CapPoint, Judge, find_knees, sweep_caps
from charllm.plan.money import Tariff
from charllm.plan.stage_caps import StageCaps, StageGroup, advise_stages, group_stages, stage_capped_run
from charllm.spec.request import Table, merge
from charllm.spec.run import RunSpec

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


def test_caps_are_a_tenth_of_the_range_apart_and_a_fortieth_beside_a_knee() -> None:
    points = swept("power")
    caps = [point.caps[0] for point in points]
    tenth = (caps[0] - caps[-1]) / 10
    assert max(high - low for high, low in pairwise(caps)) <= tenth + 1
    knee = find_knees(points)["knee"]
    assert 0 < knee < len(caps) - 1
    assert max(caps[knee - 1] - caps[knee], caps[knee] - caps[knee + 1]) <= tenth / 4 + 1


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


def known_point(energy_j: float) -> CapPoint:
    metrics: Any = {"step_time_s": 1.0, "energy_per_step_j": energy_j}
    return CapPoint((1.9e9,) * 4, metrics)


def by_hand(limits_hz: tuple[float, ...], asked: list[tuple[float, ...]]) -> Any:
    """A judge to whom a stage below its limit makes the step longer, and a hertz costs a nanojoule."""

    def judge(run: RunSpec) -> dict[str, float]:
        clocks = [run.caps[gpu].clock_hz or 0.0 for gpu in (0, 2, 4, 6)]
        asked.append(tuple(clocks))
        slower = max(max(0.0, limit / clock - 1) for limit, clock in zip(limits_hz, clocks, strict=True))
        return {"step_time_s": 1.0 + slower, "energy_per_step_j": 1e-9 * sum(clocks)}

    return judge


def test_the_lowest_cap_that_keeps_the_step_is_bisected_between_three_fifths_and_the_cap_of_all() -> None:
    run, asked = resolve_run(SMALL), list[tuple[float, ...]]()
    judge = by_hand((1.9e9, 1.9e9, 1.0e9, 1.5e9), asked)
    known = known_point(7.6)
    clock = KINDS["clock"]
    found = stage_caps._lowest(run, clock, judge, StageGroup((3,), 0.5), known, 1.0)
    # From 1.14 to 1.9 GHz: 1.52 keeps it, 1.33, 1.425, 1.4725 and 1.49625 do not.
    assert [round(caps[3] / 1e6, 2) for caps in asked] == [1520.0, 1330.0, 1425.0, 1472.5, 1496.25]
    assert found.caps == (1.9e9, 1.9e9, 1.9e9, 1.52e9)
    assert all(caps[:3] == (1.9e9,) * 3 for caps in asked)
    # One that may go lower stops a thirty-second above three fifths; stages of a group go together.
    lowest = stage_caps._lowest(run, clock, judge, StageGroup((2,), 0.5), found, 1.0)
    assert lowest.caps[2] == pytest.approx((0.6 + 0.4 / 32) * 1.9e9)
    assert lowest.caps[3] == 1.52e9
    both = stage_caps._lowest(run, clock, judge, StageGroup((2, 3), 0.5), known, 1.0)
    assert both.caps == (1.9e9, 1.9e9, 1.52e9, 1.52e9)
    # A cap that saves no energy is not set.
    cheap = known_point(1.0)
    assert stage_caps._lowest(run, clock, judge, StageGroup((3,), 0.5), cheap, 1.0) is cheap
    # A longer step that is allowed: 1.5 GHz may run at 1.4.
    longer = stage_caps._lowest(run, clock, judge, StageGroup((3,), 0.5), known, 1.0 + 1.5 / 1.4 - 1)
    assert 1.4e9 <= longer.caps[3] < 1.43e9


def test_levels_and_tolerances_of_stages_are_those_of_the_frontier() -> None:
    run, asked = resolve_run(SMALL), list[tuple[float, ...]]()
    judge = by_hand((1.9e9, 1.9e9, 1.0e9, 1.5e9), asked)
    groups = [StageGroup((2,), 0.3), StageGroup((3,), 0.1)]
    first = known_point(7.6)
    level = stage_caps._level(run, KINDS["clock"], judge, groups, None, first)
    assert level.uniform is first
    # The group that waits most has three quarters of 0.15 %, and the last all of it.
    assert level.staged.metrics["step_time_s"] <= 1.0015
    assert level.staged.caps[2] < 1.2e9
    assert level.staged.caps[3] == 1.52e9
    assert stage_caps.LEVEL_FRACTIONS == (0.97, 0.91, 0.85, 0.79, 0.73, 0.67)


def test_what_cannot_be_advised_is_refused() -> None:
    flat = resolve_run({"model": "llama3-8b", "cluster": "h200x8"})
    with pytest.raises(SpecError, match="one pipeline stage"):
        advise_stages(flat, KINDS["power"])
    with pytest.raises(SpecError, match="200 to 700 W"):
        sweep_caps(flat, KINDS["power"], at=[900.0])
    with pytest.raises(DoesNotFit, match="ignore-memory"):
        sweep_caps(resolve_run({"model": "llama3-70b", "cluster": "h200x8"}), KINDS["power"], at=[700.0])


def test_changes_of_points_have_intervals_and_the_first_point_none() -> None:
    run = resolve_run(SMALL)
    table = tabulate_caps(run, KINDS["power"], sweep_caps(run, KINDS["power"], at=[700.0, 500.0]), Tariff())
    first, second = table["points"]
    assert first["time_change_low_fraction"] == first["time_change_high_fraction"] == 0.0
    low, high = (second[f"time_change_{end}_fraction"] for end in ("low", "high"))
    assert low < second["time_change_fraction"] < high
    assert "power limit" in table["basis"]["time"]
