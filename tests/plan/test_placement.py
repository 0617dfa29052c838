"""Decided placements: never worse than the run as it is, within budgets, reproduced by simulate to the digit."""

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import charllm
from charllm.catalog.resolve import resolve_run
from charllm.cli import main
from charllm.errors import SpecError
from charllm.plan.cap_shift import lower_hull, node_budget_w, present_caps_w, slowness_at, tabulate_caps
from charllm.plan.placement import PAIR, Effort, Judged, _model, judge_placements
from charllm.plan.placement_model import Decision, build_model, decided_run, model_seconds, present_decision
from charllm.plan.placement_slots import cut_slot_groups, find_units
from charllm.plan.placement_solver import _Problem, solve
from charllm.plan.settings import DECISIONS
from charllm.plan.slowness import find_references, own_slowness, simulated_slowness
from charllm.simulate.predict import Simulation, predict
from charllm.spec.run import RunSpec

WEAK = 5
FLAGS: dict[str, Any] = {"model": "llama3-8b", "cluster": "h200x8", "tp": 2, "pp": 4, "gbs": 32}
REQUEST: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": "h200x8",
    "parallelism": {"tp": 2, "pp": 4},
    "training": {"global_batch_size": 32},
}


def run_with(**conditions: object) -> RunSpec:
    return resolve_run({**REQUEST, "conditions": conditions})


@pytest.fixture(scope="module")
def uneven() -> RunSpec:
    """Dies that differ, under limits that leave room to shift."""
    return run_with(silicon_spread_fraction=0.06, power_cap_w=550.0)


@pytest.fixture(scope="module")
def found(uneven: RunSpec) -> Simulation:
    return predict(uneven)


@pytest.fixture(scope="module")
def placed(uneven: RunSpec) -> list[Judged]:
    return list(judge_placements(uneven, effort=Effort(most_work=0.05, rounds=1)))[1:]


@pytest.mark.parametrize("kinds", [("ranks",), ("layers",), PAIR, ("caps",), DECISIONS], ids="+".join)
def test_the_solver_is_never_worse_than_the_present_by_its_own_model(found: Simulation, kinds: tuple[str, ...]) -> None:
    for reference in find_references(found):
        own = own_slowness(found, reference)
        caps = tabulate_caps(found.step.run, partial(simulated_slowness, reference)) if "caps" in kinds else None
        model = build_model(found, reference.role, own, ranks="ranks" in kinds, layers="layers" in kinds, caps=caps)
        solution = solve(model, 0.05)
        assert solution.present_s == model_seconds(model, present_decision(model))
        assert solution.bound_s <= solution.seconds <= solution.present_s
        assert solution.seconds == model_seconds(model, solution.decision)
        assert solution.gap_fraction >= 0
        assert sum(solution.decision.layers) == found.step.run.model.layers


def test_no_decision_beats_the_bound_of_a_joint_one_and_its_gap_is_small(found: Simulation) -> None:
    reference, _ = find_references(found)
    caps = tabulate_caps(found.step.run, partial(simulated_slowness, reference))
    model = build_model(found, reference.role, own_slowness(found, reference), ranks=True, layers=True, caps=caps)
    solution, bound_s = solve(model, 0.1), _Problem(model, 2.0).solve(0.1)[1]
    draw = np.random.default_rng(3)
    for _ in range(200):
        slot_groups = tuple(model.slot_groups[place] for place in draw.permutation(len(model.slot_groups)))
        layers = list(found.step.run.parallelism.layers_per_stage)
        few, more = draw.permutation(len(layers))[:2]
        if layers[few] - 1 in model.layers[few].layers and layers[more] + 1 in model.layers[more].layers:
            layers[few], layers[more] = layers[few] - 1, layers[more] + 1
        watts = np.clip(draw.normal(caps.budget_w / 8, 40, 8), caps.caps_w[0], caps.caps_w[-1])
        watts = watts * min(1.0, caps.budget_w / watts.sum())
        decision = Decision(slot_groups, tuple(layers), tuple(watts.tolist()))
        assert bound_s <= model_seconds(model, decision)
    assert bound_s <= solution.seconds
    assert solution.gap_fraction < 0.08


def test_the_model_prices_the_run_nearly_as_the_simulator_does(found: Simulation) -> None:
    reference, _ = find_references(found)
    model = build_model(found, reference.role, own_slowness(found, reference), ranks=False, layers=False, caps=None)
    assert model_seconds(model, present_decision(model)) == pytest.approx(found.result.metrics["step_time_s"], rel=0.04)


def test_what_is_reported_was_simulated_and_is_not_slower(placed: list[Judged]) -> None:
    names = [one.name for one in placed]
    assert names == ["ranks", "layers", "caps", "ranks+layers", "all"]
    for one in placed:
        assert one.gain_fraction >= 0
        assert predict(one.run).result.metrics == one.metrics
        assert one.note or one.gain_fraction > 0
        assert one.gap_fraction is not None
    assert placed[-1].gain_fraction == max(one.gain_fraction for one in placed) > 0.01


def test_limits_stay_within_the_budget_of_their_node_and_of_the_gpu(placed: list[Judged], uneven: RunSpec) -> None:
    shifted = [one.run for one in placed if one.run.conditions.capped_gpus]
    assert shifted
    for run in shifted:
        assert node_budget_w(run) <= node_budget_w(uneven) + 1e-9
        caps_w, gpu = present_caps_w(run), run.cluster.gpu
        assert gpu.power_cap_min_w <= caps_w.min() < caps_w.max() <= gpu.power_cap_w


def test_weaker_dies_get_more_watts(placed: list[Judged]) -> None:
    run = next(one.run for one in placed if one.name == "caps")
    dies = np.random.default_rng(run.conditions.seed).standard_normal(run.cluster.gpus)
    assert np.corrcoef(dies, present_caps_w(run))[0, 1] > 0.5


def test_the_stage_on_a_weak_gpu_has_the_fewest_layers() -> None:
    run = run_with(weak_gpus=[WEAK], weak_power_fraction=1.6)
    # Without a vocabulary every stage has equal work, so that only the weak GPU tells them apart.
    run = replace(run, model=replace(run.model, vocab=0))
    decided = max(judge_placements(run, PAIR, effort=Effort(0.1, 1)), key=lambda one: one.gain_fraction).run
    layers = decided.parallelism.layers_per_stage
    rank = decided.conditions.gpu_of_rank.index(WEAK) if decided.conditions.gpu_of_rank else WEAK
    assert layers[rank // 2] == min(layers) < max(layers)


def test_a_file_of_a_placement_reproduces_it_to_the_digit(tmp_path: Path) -> None:
    words: dict[str, Any] = {**FLAGS, "conditions": {"silicon_spread_fraction": 0.06}}
    path = tmp_path / "placement.toml"
    decided = charllm.place(**words, decide=("layers", "caps"), node_budget=4400, work=0.02, out=path)
    best = next(row for row in decided.rows if row["name"] == decided.best)
    again = charllm.simulate(**words, placement=path)
    assert decided.best != "default"
    for name in ("step_time_s", "temperature_swing_k", "clock_std_fraction", "power_mean_w"):
        assert again.metrics[name] == best[name]
    stored = charllm.simulate(again)
    assert stored.metrics.step_time_s == again.metrics.step_time_s


def test_units_stay_within_a_node_and_slot_groups_are_cut_from_fast_to_slow() -> None:
    run = resolve_run({"model": "llama3-70b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 4, "pp": 4}})
    units = find_units(run)
    assert units is not None
    assert units.ranks.shape == (4, 2, 4)
    slow = np.tile([1.0, 0.9, 0.9, 1.0, 1.0, 0.9, 1.0, 0.9], 4)
    slot_groups = cut_slot_groups(run, 4, slow)
    assert [group.gpus for group in slot_groups[:2]] == [(1, 2, 5, 7), (0, 3, 4, 6)]
    assert all(group.node == gpu // 8 for group in slot_groups for gpu in group.gpus)


def test_experts_of_a_stage_stay_together() -> None:
    run = resolve_run({"model": "mixtral-8x22b", "cluster": "charllm-ppt-h200", "parallelism": {"ep": 8, "pp": 4}})
    units = find_units(run)
    assert units is not None
    assert units.size == 8


def test_gradient_exchanges_stay_on_the_links_they_have() -> None:
    run = resolve_run({
        "model": "llama3-70b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 2, "pp": 8},
        "conditions": {"silicon_spread_fraction": 0.06},
    })  # fmt: skip
    before = predict(run, ignore_memory=True)
    reference, _ = find_references(before)
    model = build_model(before, reference.role, own_slowness(before, reference), ranks=True, layers=False, caps=None)
    decision = solve(model, 1.0).decision
    nodes = np.array([group.node for group in decision.slot_groups]).reshape(8, 2)
    assert np.all(nodes[:, 0] == nodes[:, 1])
    assert decided_run(model, decision).conditions.gpu_of_rank


def test_a_hull_lies_below_its_table() -> None:
    caps_w = np.array([400.0, 500.0, 600.0, 700.0])
    slowness = np.array([1.2, 1.0, 1.05, 0.9])
    lines = lower_hull(caps_w, slowness)
    for cap_w, value in zip(caps_w, slowness, strict=True):
        assert max(slope * cap_w + intercept for slope, intercept in lines) <= value + 1e-12
    assert math.isclose(max(slope * 400 + intercept for slope, intercept in lines), 1.2)


def test_one_stage_has_no_ranks_to_place() -> None:
    run = resolve_run({"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 8}})
    _, ranks = judge_placements(run, ("ranks",))
    assert ranks.gain_fraction == 0
    assert ranks.note.startswith("one stage")


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"decide": "ranks,rows"}, "decide"),
        ({"decide": ()}, "decide"),
        ({"node_budget": 500.0}, "node_budget"),
        ({"node_budget": 1e5}, "node_budget"),
        ({"out": "/nowhere/placement.toml"}, "out"),
    ],
)
def test_a_wrong_decision_names_its_field(words: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as error:
        charllm.place(**FLAGS, **words)
    assert error.value.field == field


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("gpu_of_rank = [0, 1, 2, 3, 4, 5, 6, 99]", "conditions.placement"),
        ("gpu_of_rank = [0, 1, 2, 3, 4, 5, 6, 7]\nlayers_per_stage = [8, 8, 8, 9]", "parallelism.layers_per_stage"),
        (
            "gpu_of_rank = [0, 1, 2, 3, 4, 5, 6, 7]\ncapped_gpus = [0]\ncapped_power_w = [99]",
            "conditions.capped_power_w",
        ),
        ("gpu_of_rank = [0, 1, 2, 3, 4, 5, 6, 7]\nslots = [0]", "slots"),
        ("layers_per_stage = [8, 8, 8, 8]", "gpu_of_rank"),
        ("gpu_of_rank = 3 +", "valid TOML"),
    ],
)
def test_a_wrong_placement_file_is_refused_with_its_field(
    text: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    flags = [word for name, value in FLAGS.items() for word in (f"--{name}", str(value))]
    assert main(["simulate", *flags, "--placement", str(path)]) == 2
    assert field in capsys.readouterr().err


def test_a_run_that_does_not_fit_ends_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", "--model", "gpt3-175b", "--cluster", "h200x8", "--tp", "8"]) == 3
    assert "does not fit" in capsys.readouterr().err


def test_limits_between_those_that_were_simulated_are_interpolated(found: Simulation) -> None:
    reference, _ = find_references(found)
    table = tabulate_caps(found.step.run, lambda run: simulated_slowness(reference, run))
    middle = float(table.caps_w[:2].mean())
    assert slowness_at(table, [middle] * 8) == pytest.approx(table.slowness[:2].mean(axis=0))
    assert np.all(np.diff(table.slowness, axis=0) < 0)


def test_the_command_prints_what_the_keywords_return(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [word for name, value in FLAGS.items() for word in (f"--{name}", str(value))]
    assert main(["place", *flags, "--decide", "layers", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads(charllm.place(**FLAGS, decide="layers").to_json())
    assert shown["best"] == "layers"


@pytest.mark.parametrize(("kinds", "decided"), [(("ranks",), (True, 1)), (("layers",), (False, 3))])
def test_only_what_is_asked_for_may_move(found: Simulation, kinds: tuple[str, ...], decided: tuple[bool, int]) -> None:
    reference, _ = find_references(found)
    model = _model(found, reference.role, own_slowness(found, reference), None, kinds)
    assert (model.movable, min(3, max(len(table.layers) for table in model.layers))) == decided
