from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.layout.hops import StageHop, stage_hops
from charllm.spec.run import Conditions, RunSpec


def run(cluster: Any = "charllm-ppt-h200", **parallelism: Any) -> RunSpec:
    return resolve_run({"model": "gpt3-175b", "cluster": cluster, "parallelism": parallelism})


def leaving(of: RunSpec) -> tuple[int, ...]:
    return tuple(hop.leaving for hop in stage_hops(of))


def test_stages_of_a_whole_node_hand_everything_over_the_nics() -> None:
    assert leaving(run(tp=8, pp=4)) == (8, 8, 8, 8)


def test_stages_inside_a_node_leave_it_only_at_its_end() -> None:
    # Stages of 2 ranks, 4 in a node: the hops from stage 3, 7, 11 and 15 (back to stage 0) cross.
    assert leaving(run(tp=2, pp=16)) == (0, 0, 0, 2) * 4


def test_replicas_between_stages_send_together() -> None:
    # tp 4 x dp 2 fill a node: all eight cross.
    assert leaving(run(tp=4, pp=4)) == (8, 8, 8, 8)
    # Stages before replicas: pp 2 inside a node, nothing leaves.
    assert leaving(run(tp=4, pp=2, order="tp-cp-ep-pp-dp")) == (0, 0)


def test_one_stage_hands_nothing_on() -> None:
    assert leaving(run(tp=8)) == (0,)


def test_chassis_of_one_scale_up_domain_are_inside() -> None:
    assert leaving(run("gb200-nvl72", tp=4, pp=2)) == (0, 0)
    assert leaving(run({"base": "gb200-nvl72", "nodes": 36}, tp=4, pp=2)) == (4, 4)


def test_a_placement_moves_the_hops() -> None:
    default = run(tp=2, pp=16)
    # Rank i on GPU i, but the second and the last stage change places.
    gpus = list(range(32))
    gpus[2:4], gpus[30:32] = gpus[30:32], gpus[2:4]
    moved = replace(default, conditions=Conditions(gpu_of_rank=tuple(gpus)))
    assert leaving(moved) == (2, 2, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 2, 0)


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.permutations(["tp", "cp", "ep", "dp", "pp"]))
def test_no_more_sends_leave_a_node_than_it_has_gpus(tp: int, pp: int, order: list[str]) -> None:
    hops = stage_hops(run(tp=tp, pp=pp, order="-".join(order)))
    assert len(hops) == pp
    assert all(0 <= hop.leaving <= 8 for hop in hops)


@pytest.mark.parametrize("nodes", [2, 4])
def test_naming_ranks_as_by_default_changes_nothing(nodes: int) -> None:
    default = run({"base": "charllm-ppt-h200", "nodes": nodes}, tp=4, pp=2)
    named = replace(default, conditions=Conditions(gpu_of_rank=tuple(range(8 * nodes))))
    assert stage_hops(named) == stage_hops(default)


def test_hops_between_pods_pass_the_core() -> None:
    pods = {"base": "charllm-ppt-h200", "fabric": {"nodes_per_pod": 2}}
    assert stage_hops(run(pods, tp=8, pp=4)) == (StageHop(8), StageHop(8, core=True)) * 2
