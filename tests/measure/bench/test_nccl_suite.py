"""Which collectives are measured: sizes, groups of a layout, what is refused."""

import numpy as np
import pytest

from charllm.errors import SpecError
from charllm.measure.bench.nccl_suite import (
    ALONE,
    COLLECTIVES,
    TOGETHER,
    build_suite,
    check_layout,
    fill_layout,
    groups_of,
    parse_collectives,
    parse_sizes,
)
from charllm.spec.parallelism import Parallelism


def test_sizes_double_from_the_first_to_the_last() -> None:
    assert parse_sizes("1KiB:8KiB") == [1024, 2048, 4096, 8192]
    assert parse_sizes("4MiB") == [4 << 20]
    assert parse_sizes("1 KiB:1GiB")[-1] == 1 << 30
    assert parse_sizes("3B:20B") == [3, 6, 12]


@pytest.mark.parametrize("text", ["", "1KB", "8KiB:1KiB", "0", "1:", "1KiB:1TiB", "1GiB:65GiB", "-1", "1.5MiB", "a:b"])
def test_other_sizes_are_refused(text: str) -> None:
    if text == "1:":
        # One byte is less than an element.
        text = "1"
    with pytest.raises(SpecError, match="--sizes"):
        parse_sizes(text)


def test_collectives_keep_the_order_of_the_suite() -> None:
    assert parse_collectives("send, all_reduce") == ("all_reduce", "send")
    assert parse_collectives("") == COLLECTIVES
    with pytest.raises(SpecError, match="allreduce"):
        parse_collectives("allreduce")


def test_tp_fills_a_node_and_dp_joins_nodes_unless_degrees_are_given() -> None:
    assert fill_layout({}, 16, 8) == {"tp": 8, "dp": 2}
    assert fill_layout({"tp": 2, "pp": 2}, 16, 8) == {"tp": 2, "pp": 2, "dp": 4}
    assert fill_layout({"dp": 16}, 16, 8) == {"dp": 16}


def test_a_layout_of_other_ranks_is_refused() -> None:
    check_layout(Parallelism(tp=2, dp=2), 4)
    with pytest.raises(SpecError, match=r"4 ranks.*expected a layout of 6 ranks"):
        check_layout(Parallelism(tp=2, dp=2), 6)
    with pytest.raises(SpecError, match=r"parallelism.ep"):
        check_layout(Parallelism(tp=2, dp=2, ep=3), 4)


def test_groups_are_those_of_the_grid_each_set_of_members_once() -> None:
    groups = groups_of(Parallelism(tp=2, dp=2, pp=2))
    assert list(groups) == ["tp", "dp", "pp"]
    assert groups["tp"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert sorted(groups["dp"].tolist()) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    sparse = groups_of(Parallelism(tp=1, dp=4, ep=2))
    assert list(sparse) == ["dp", "ep", "edp"]
    assert np.array_equal(sparse["ep"], [[0, 1], [2, 3]])


def test_groups_can_be_chosen() -> None:
    layout = Parallelism(tp=2, dp=2)
    assert list(groups_of(layout, "dp,tp")) == ["dp", "tp"]
    with pytest.raises(SpecError, match="--groups: got 'pp'; expected a group of two ranks"):
        groups_of(layout, "pp")
    with pytest.raises(SpecError, match="nodes"):
        groups_of(layout, "nodes")
    with pytest.raises(SpecError, match="at least one group of two ranks"):
        groups_of(Parallelism())


def test_every_kind_runs_together_and_one_alone_and_stages_only_send() -> None:
    groups = groups_of(Parallelism(tp=2, pp=2))
    cases = build_suite(groups, COLLECTIVES, [1024, 2048])
    assert {case.mode for case in cases} == {TOGETHER, ALONE}
    assert {case.collective for case in cases if case.group == "pp"} == {"send"}
    assert len(cases) == 2 * 2 * (6 + 1)
    single = build_suite(groups_of(Parallelism(tp=4)), ["all_reduce"], [1024])
    assert [case.mode for case in single] == [TOGETHER]
    with pytest.raises(SpecError, match="--collectives"):
        build_suite(groups_of(Parallelism(pp=2)), ["all_reduce"], [1024])
