import numpy as np
import pytest

from charllm.layout.grid import GROUPS, Grid
from charllm.spec.parallelism import Parallelism

DEGREES = Parallelism(tp=2, cp=2, dp=4, pp=3, ep=4, etp=2, zero=3, shard_size=4)


def test_megatrons_order_puts_tensor_ranks_together_and_stages_apart() -> None:
    grid = Grid(Parallelism(tp=8, pp=4))
    assert grid.groups("tp")[0].tolist() == list(range(8))
    assert grid.groups("pp")[0].tolist() == [0, 8, 16, 24]


def test_data_ranks_lie_between() -> None:
    grid = Grid(Parallelism(tp=2, dp=4, pp=2))
    assert grid.groups("dp")[0].tolist() == [0, 2, 4, 6]
    assert grid.groups("dp")[1].tolist() == [1, 3, 5, 7]


def test_experts_read_the_same_ranks_differently() -> None:
    grid = Grid(Parallelism(tp=2, dp=8, ep=4, etp=1))
    assert grid.groups("ep")[0].tolist() == [0, 1, 2, 3]
    assert grid.groups("edp")[0].tolist() == [0, 4, 8, 12]


def test_hybrid_shards_are_neighbours_and_copies_are_not() -> None:
    grid = Grid(Parallelism(dp=8, zero=3, shard_size=4))
    assert grid.groups("shard").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert grid.groups("replicate").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_ranks_that_share_a_second_copy_are_neighbours_within_a_shard() -> None:
    grid = Grid(Parallelism(tp=2, dp=8, zero=3, regather_size=4))
    assert grid.groups("regather").tolist() == [[0, 2, 4, 6], [8, 10, 12, 14], [1, 3, 5, 7], [9, 11, 13, 15]]


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "pp-dp-ep-cp-tp", "dp-pp-tp-ep-cp"])
@pytest.mark.parametrize("group", GROUPS)
def test_groups_of_a_kind_cover_every_rank_once(order: str, group: str) -> None:
    grid = Grid(Parallelism(tp=2, cp=2, dp=4, pp=3, ep=4, etp=2, zero=3, shard_size=4, order=order))
    rows = grid.groups(group)
    assert sorted(rows.ravel().tolist()) == list(range(48))
    assert rows.shape[1] == grid.degree(group)


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "tp-pp-cp-ep-dp", "pp-tp-cp-ep-dp"])
def test_stage_and_position_give_the_rank_back(order: str) -> None:
    grid = Grid(Parallelism(tp=2, cp=2, dp=4, pp=3, order=order))
    ranks = np.arange(48)
    assert np.array_equal(grid.rank(grid.position(ranks), grid.stage(ranks)), ranks)


def test_every_member_of_a_group_but_pp_has_one_stage() -> None:
    grid = Grid(DEGREES)
    for group in GROUPS:
        stages = grid.stage(grid.groups(group))
        assert group == "pp" or (stages == stages[:, :1]).all()


def test_the_innermost_axis_follows_the_order() -> None:
    grid = Grid(Parallelism(tp=2, dp=4, pp=2, order="pp-tp-cp-ep-dp"))
    assert grid.groups("pp")[0].tolist() == [0, 1]
    assert grid.groups("tp")[0].tolist() == [0, 2]
