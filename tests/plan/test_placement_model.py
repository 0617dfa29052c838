"""The linear model of placements, by hand, and its solver against every decision there is."""

from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.layout.placement import place_ranks
from charllm.plan.cap_shift import CapTable, present_caps_w
from charllm.plan.placement_model import Decision, Model, decided_run, model_seconds, present_decision
from charllm.plan.placement_slots import SlotGroup, find_units
from charllm.plan.placement_solver import _Problem, least_load, solve
from charllm.plan.uneven import LayerTable
from charllm.spec.run import RunSpec

TABLES = [
    LayerTable((15, 16, 17), (0.16, 0.165, 0.18), (0.5, 0.5, 0.6)),
    LayerTable((15, 16, 17), (0.14, 0.16, 0.19), (0.3, 0.4, 0.55)),
]
"""Two chunks: seconds of a microbatch, and of the end of the step, with 15 to 17 layers."""
FAST, SLOW = 1.0, 1.25


def run_of(pp: int = 2, vpp: int = 1, cluster: str = "h200x8", **degrees: Any) -> RunSpec:
    """Eight microbatches on stages of two GPUs each, or of eight on four nodes."""
    tp = 8 if cluster == "h200x32" else 8 // pp
    parallelism = {"tp": tp, "pp": pp, "vpp": vpp, **degrees}
    request = {"model": "llama3-8b", "cluster": cluster, "parallelism": parallelism}
    return resolve_run({**request, "training": {"global_batch_size": 8, "micro_batch_size": 1}})


def model_of(run: RunSpec, tables: list[LayerTable], slowness: list[float], **changed: Any) -> Model:
    """A model whose slot groups are those of the units as they are placed."""
    units, per_node = find_units(run), run.cluster.node.gpus
    assert units is not None
    gpus = place_ranks(run)[units.ranks.reshape(-1, units.size)].tolist()
    groups = tuple(SlotGroup(one[0] // per_node, tuple(one)) for one in gpus)
    known = Model(run, units, groups, True, np.ones(run.parallelism.pp), np.array(slowness), tables, None, 0.01, 0.1)
    return known._replace(**changed)


def test_a_line_takes_its_fill_and_then_its_slowest_unit_for_each_further_microbatch() -> None:
    # One send within the node: 10 ms there and 10 ms back while the pipeline fills, and each stage waits for its own.
    run = run_of()
    model = model_of(run, TABLES, [FAST] * 4 + [SLOW] * 4)
    units_s = 0.165 + 0.01, 0.16 * SLOW + 0.01
    assert model.blocking
    assert model_seconds(model, present_decision(model)) == pytest.approx(sum(units_s) + 7 * max(units_s) + 0.5)
    # Another split: what ends the step is the longest end.
    uneven = Decision(model.slot_groups, (17, 15))
    units_s = 0.18 + 0.01, 0.14 * SLOW + 0.01
    assert model_seconds(model, uneven) == pytest.approx(sum(units_s) + 7 * max(units_s) + 0.6)
    # A stage whose work is slow on any GPU, and groups that change places.
    swapped = Decision(model.slot_groups[::-1], (16, 16))
    units_s = 0.165 * 0.9 * SLOW + 0.01, 0.16 * 1.1 + 0.01
    roles = model._replace(role=np.array([0.9, 1.1]))
    assert model_seconds(roles, swapped) == pytest.approx(sum(units_s) + 7 * max(units_s) + 0.5)


def test_sends_that_hide_only_fill_the_pipeline_and_chunks_share_it() -> None:
    tables = [LayerTable((8,), (seconds,), (0.5,)) for seconds in (0.08, 0.07, 0.09, 0.06)]
    model = model_of(run_of(vpp=2, overlap=["pp"]), tables, [FAST] * 4 + [SLOW] * 4)
    assert not model.blocking
    units_s = 0.08 + 0.09, (0.07 + 0.06) * SLOW
    found = model_seconds(model, present_decision(model))
    assert found == pytest.approx(2 * 0.01 + sum(units_s) / 2 + 7 * max(units_s) + 0.5)


def test_a_send_between_nodes_takes_longer_and_the_slowest_line_decides() -> None:
    tables = [LayerTable((8,), (0.1,), (0.2,))] * 4
    model = model_of(run_of(4, cluster="h200x32", tp=8), tables, [FAST] * 32)
    # Every hop leaves its node: stages in the middle wait for two of them.
    assert model_seconds(model, present_decision(model)) == pytest.approx(4 * 0.1 + 6 * 0.1 + 7 * 0.3 + 0.2)
    lines = model_of(run_of(2, cluster="h200x32", tp=8), TABLES, [FAST] * 31 + [SLOW])
    assert lines.lines == 2
    units_s = 0.165 + 0.1, 0.16 * SLOW + 0.1
    few = lines.run.microbatches
    assert few == 4
    found = model_seconds(lines, present_decision(lines))
    assert found == pytest.approx(sum(units_s) + (few - 1) * max(units_s) + 0.5)


def test_a_send_leaves_its_node_where_the_next_stage_is_on_another() -> None:
    two_nodes = {"base": "h200x32", "nodes": 2}
    request = {"model": "llama3-8b", "cluster": two_nodes, "parallelism": {"tp": 4, "pp": 4}}
    run = resolve_run({**request, "training": {"global_batch_size": 8, "micro_batch_size": 1}})
    model = model_of(run, [LayerTable((8,), (0.1,), (0.2,))] * 4, [FAST] * 16)
    # Stages 0 and 1 are on one node, 2 and 3 on the other: the middle hop takes 100 ms, the others 10.
    assert model_seconds(model, present_decision(model)) == pytest.approx(0.4 + 2 * 0.12 + 7 * 0.21 + 0.2)


def test_limits_decide_how_slow_a_group_is_and_units_have_the_slowest_gpu() -> None:
    caps = CapTable(np.array([400.0, 600.0]), np.array([[1.5] * 8, [1.0] * 8]), 4000.0)
    model = model_of(run_of(), TABLES, [FAST] * 8, caps=caps)
    limits_w = (600.0,) * 3 + (500.0,) + (600.0,) * 4
    units_s = 0.165 * 1.25 + 0.01, 0.16 + 0.01
    found = model_seconds(model, Decision(model.slot_groups, (16, 16), limits_w))
    assert found == pytest.approx(sum(units_s) + 7 * max(units_s) + 0.5)
    # Without limits of their own GPUs are as slow as they are at the present ones.
    units_s = 0.165 + 0.01, 0.16 + 0.01
    assert model_seconds(model, present_decision(model)) == pytest.approx(sum(units_s) + 7 * max(units_s) + 0.5)


def test_a_decision_changes_in_a_run_what_it_decides_and_nothing_else() -> None:
    run = run_of()
    model = model_of(run, TABLES, [FAST] * 8)
    assert decided_run(model, present_decision(model)) == run
    swapped = decided_run(model, Decision(model.slot_groups[::-1], (15, 17), (500.0,) * 4 + (700.0,) * 4))
    assert swapped.conditions.gpu_of_rank == (4, 5, 6, 7, 0, 1, 2, 3)
    assert swapped.parallelism.layers_per_stage == (15, 17)
    assert present_caps_w(swapped).tolist() == [500.0] * 4 + [700.0] * 4
    kept = replace(swapped.parallelism, layers_per_stage=(16, 16))
    assert replace(swapped, parallelism=kept, conditions=run.conditions) == run


def decisions(model: Model) -> list[Decision]:
    """List every order of slot groups with every split."""
    splits = [split for split in product(*(one.layers for one in model.layers)) if sum(split) == model.run.model.layers]
    return [Decision(order, split) for order in permutations(model.slot_groups) for split in splits]


STAGES = [
    LayerTable((7, 8, 9), (0.07 + more, 0.08 + more, 0.09 + more), (0.1, 0.1 + more, 0.11 + more))
    for more in (0.02, 0.0, 0.004, 0.03)
]
SLOWNESS = [1.0, 1.02, 1.2, 1.1, 1.06, 1.05, 1.3, 1.31]


@pytest.mark.parametrize("degrees", [{}, {"overlap": ["pp"]}], ids=["blocking", "hidden"])
def test_the_solver_finds_the_best_of_all_decisions_and_proves_it(degrees: dict[str, Any]) -> None:
    model = model_of(run_of(4, **degrees), STAGES, SLOWNESS)
    every = [model_seconds(model, one) for one in decisions(model)]
    assert len(every) == 24 * 19
    found = solve(model, 20.0)
    assert found.seconds == pytest.approx(min(every), rel=1e-4)
    assert found.seconds < found.present_s == model_seconds(model, present_decision(model))
    assert found.bound_s <= min(every)
    assert found.gap_fraction < 2e-3


def test_where_nothing_moves_the_solver_returns_the_run_as_it_is() -> None:
    tables = [LayerTable((16,), (0.1,), (0.5,))] * 2
    model = model_of(run_of(), tables, [FAST] * 8, movable=False)
    found = solve(model, 0.1)
    assert found.decision == present_decision(model)
    assert found.seconds == found.present_s
    assert found.bound_s == pytest.approx(found.seconds, rel=1e-3)
    assert _Problem(model, found.present_s).taken == []


def test_the_least_load_of_all_chunks_is_that_of_the_cheapest_split() -> None:
    ticks = [[100, 130, 170], [90, 95, 140]]
    # 32 layers: 15 + 17, 16 + 16 or 17 + 15.
    assert least_load(TABLES, ticks, 32) == min(100 + 140, 130 + 95, 170 + 90)
    assert least_load(TABLES, ticks, 31) == min(100 + 95, 130 + 90)


def test_a_decision_that_gains_nothing_is_not_made() -> None:
    tables = [LayerTable((7, 8, 9), (0.07, 0.08, 0.09), (0.1, 0.1, 0.1))] * 4
    model = model_of(run_of(4), tables, [FAST] * 8)
    # All slot groups are as fast as each other: many orders are as good as the present one.
    swapped = model._replace(slot_groups=model.slot_groups[::-1])
    for each in (model, swapped):
        found = solve(each, 2.0)
        assert found.decision == present_decision(each)
        assert found.seconds == found.present_s
