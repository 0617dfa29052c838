"""How many blocks of each kind the stages of a pipeline hold, counted by hand."""

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.plan.composition import compose, compose_ways
from charllm.plan.share import POLICIES
from charllm.workload.step import model_kinds

KINDS = model_kinds(resolve_run({"model": "llama3-8b", "cluster": "h200x8"}))
WIDTH = len(POLICIES)


def column(policy: str) -> int:
    return POLICIES.index(policy)


def test_the_first_the_last_and_the_latest_of_the_fullest_stages_stand_for_all() -> None:
    assert compose(KINDS, (8, 9, 9, 6), 4, "none").stages == (0, 3, 2)
    assert compose(KINDS, (10, 8, 8, 6), 4, "none").stages == (0, 3, 0)
    assert compose(KINDS, (8, 8, 8, 8), 4, "none").stages == (0, 3, 3)


def test_stages_hold_their_layers_and_the_ends_of_the_model() -> None:
    found = compose(KINDS, (8, 9, 9, 6), 4, "full")
    full, opening, closing = column("full"), WIDTH, WIDTH + 1 + column("full")
    assert found.held[:, full].tolist() == [8.0, 6.0, 9.0]
    assert found.held[:, opening].tolist() == [1.0, 0.0, 0.0]
    assert found.held[:, closing].tolist() == [0.0, 1.0, 0.0]
    # A microbatch passes 0, 26 and 17 layers before it reaches the stage.
    assert found.before[:, full].tolist() == [0.0, 26.0, 17.0]
    assert found.before[:, opening].tolist() == [0.0, 1.0, 1.0]
    assert found.chunks.sum() == 32 + 2


@pytest.mark.parametrize(("depth", "again"), [("full:3", 3), ("full:6", 6)])
def test_some_layers_of_each_chunk_are_recomputed(depth: str, again: int) -> None:
    found = compose(KINDS, (8, 9, 9, 6), 4, depth)
    assert found.held[:, column("full")].tolist() == [again] * 3
    assert found.held[:, column("none")].tolist() == [8 - again, 6 - again, 9 - again]


def test_a_stage_of_several_chunks_holds_them_all_and_is_reached_after_the_first_ones() -> None:
    found = compose(KINDS, (4,) * 8, 4, "none")
    assert found.held[:, 0].tolist() == [8.0] * 3
    assert found.own[:, :, 0].tolist() == [[4.0, 4.0]] * 3
    assert found.before[:, 0].tolist() == [0.0, 12.0, 12.0]
    ways = compose_ways(KINDS, (4,) * 8, 4, ("none", "full"))
    assert ways.held.shape[0] == 2
    assert ways.held[1, :, column("full")].tolist() == [8.0] * 3
