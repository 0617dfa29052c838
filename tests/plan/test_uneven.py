"""Prices of chunks with more and fewer layers, and which of them fit."""

from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.plan.uneven import LayerTable, _note, _patterns, _table, tabulate_layers, tail_seconds
from charllm.result.memory_verdict import judge_memory
from charllm.simulate.predict import predict
from charllm.spec.run import RunSpec
from charllm.timeline.costs import Costs
from charllm.timeline.step_time import StepTime
from charllm.workload.step import build_step


def run_of(model: str = "llama3-8b", **degrees: Any) -> RunSpec:
    request = {"model": model, "cluster": "h200x8", "parallelism": {"tp": 2, "pp": 4, **degrees}}
    return resolve_run({**request, "training": {"global_batch_size": 16}})


def timed_of(run: RunSpec) -> StepTime:
    found = predict(run, ignore_memory=True).timed
    assert found is not None
    return found


def costs_of(run: RunSpec) -> Costs:
    return timed_of(run).costs


def test_every_chunk_gains_once_and_loses_once_while_all_layers_stay() -> None:
    assert _patterns(1) == []
    assert [one.tolist() for one in _patterns(2)] == [[1, -1], [-1, 1]]
    assert [one.tolist() for one in _patterns(4)] == [[1, -1, 1, -1], [-1, 1, -1, 1]]
    odd = [one.tolist() for one in _patterns(3)]
    assert odd == [[1, -1, 0], [-1, 1, 0], [1, 0, -1], [-1, 0, 1]]
    for chunks in range(2, 9):
        signs = np.array(_patterns(chunks))
        assert (signs.sum(axis=1) == 0).all()
        assert (signs.max(axis=0) == 1).all()
        assert (signs.min(axis=0) == -1).all()


def test_a_table_ends_where_a_number_of_layers_is_not_known() -> None:
    row = {layers: (0.01 * layers, 0.5) for layers in (5, 7, 8, 9, 11)}
    assert _table(row, 8) == LayerTable((7, 8, 9), (0.07, 0.08, 0.09), (0.5, 0.5, 0.5))
    assert _table(row, 5).layers == (5,)


def test_a_quarter_of_the_layers_of_a_chunk_may_move_and_one_at_least() -> None:
    run = run_of()
    tables = tabulate_layers(run, costs_of(run), movable=True)
    assert [one.layers for one in tables] == [tuple(range(6, 11))] * 4
    # One more layer takes one more share of the pass.
    for one in tables:
        assert np.diff(one.pass_s) == pytest.approx([one.pass_s[1] - one.pass_s[0]] * 4, rel=0.02)
        assert one.pass_s[-1] > 1.3 * one.pass_s[0]
    small = run_of(layers_per_stage=[14, 14, 3, 1])
    # Where one has a single layer to give, it only gains.
    layers = [one.layers for one in tabulate_layers(small, costs_of(small), movable=True)]
    assert layers == [(13, 14), (14, 15), (2, 3), (1, 2)]
    assert [one.layers for one in tabulate_layers(run, costs_of(run), movable=False)] == [(8,)] * 4


def test_a_split_is_written_down_for_stages_that_keep_a_margin_and_its_least_margin_returned() -> None:
    run = run_of(layers_per_stage=[14, 8, 6, 4])
    margins = [one.margin_fraction for one in judge_memory(build_step(run)).stages]
    assert margins == sorted(margins)
    rows: list[dict[int, tuple[float, float]]] = [{} for _ in range(4)]
    costs = costs_of(run)
    assert _note(run, (14, 8, 6, 4), costs, rows) == margins[0]
    assert [list(row) for row in rows] == [[14], [8], [6], [4]]
    some: list[dict[int, tuple[float, float]]] = [{} for _ in range(4)]
    assert _note(run, (14, 8, 6, 4), costs, some, margins[2]) == margins[0]
    assert [list(row) for row in some] == [[], [], [6], [4]]
    assert some[2] == rows[2]
    none: list[dict[int, tuple[float, float]]] = [{} for _ in range(4)]
    _note(run, (14, 8, 6, 4), costs, none, inf)
    assert none == [{}] * 4


def test_where_a_run_may_not_fit_no_stage_gets_less_room_than_its_worst() -> None:
    # The first stage is the fullest: it gains no layer, and others gain as long as they have more room than it.
    run = resolve_run({
        "model": "llama3-70b", "cluster": "h200x8", "parallelism": {"tp": 2, "pp": 4},
        "training": {"global_batch_size": 16},
    })  # fmt: skip
    worst = judge_memory(build_step(run)).worst
    assert (worst.stage, worst.margin_fraction < 0) == (0, True)
    tables = tabulate_layers(run, costs_of(run), movable=True)
    assert tables[0].layers[-1] == 20
    assert tables[3].layers[-1] > 20


def test_the_end_of_a_stage_is_its_update_and_what_its_passes_do_not_expose_of_gradients() -> None:
    part: Any = SimpleNamespace(labels={"dp_exposed": 0.01})
    timed: Any = SimpleNamespace(
        passes=[(part, part), (part,)],
        stages=[{"optimizer": 0.5, "dp_exposed": 1.0}, {"optimizer": 0.1, "dp_exposed": 0.0}],
    )
    run: Any = SimpleNamespace(parallelism=SimpleNamespace(pp=2), microbatches=8)
    # Two passes of 10 ms with each of eight microbatches are exposed inside them.
    assert tail_seconds(run, timed, 0) == pytest.approx(0.5 + 1.0 - 0.16)
    assert tail_seconds(run, timed, 1) == 0.1
