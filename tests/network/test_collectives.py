"""Collectives on two nodes of eight GPUs with eight NICs, against sums done by hand."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.layout.hops import StageHop
from charllm.layout.links import group_links
from charllm.network.collectives import (
    algorithms_taken,
    choose_algorithm,
    collective_seconds,
    link_bandwidth,
    members_per_node,
    send_seconds,
)
from charllm.network.constants import NETWORK
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.workload.op import COLLECTIVES, Op, collective
from charllm.workload.step import build_step

# Round constants, so that sums can be done by hand: no handshakes for pieces, no own blocks.
LINK, NIC, LATENCY_S, NIC_HOP_S = 0.8 * 400e9, 0.5 * 40e9, 20e-6, 10e-6
ROUND = replace(
    NETWORK,
    latency_s=LATENCY_S,
    hop_s=0.0,
    link_fraction=0.8,
    own_block_fraction=0.0,
    nic_fraction=0.5,
    nic_hop_s=NIC_HOP_S,
)
TWO_NODES: dict[str, Any] = {
    "model": "llama3-70b",
    "cluster": {
        "base": "h100-superpod",
        "nodes": 2,
        "node": {"link_bandwidth_gb_per_s": 400},
        "fabric": {"nics_per_node": 8, "nic_bandwidth_gbit_per_s": 320},
    },
    "framework": {"base": "megatron", "in_switch_reduction": False},
}


def run(changes: dict[str, Any] | None = None, **parallelism: Any) -> RunSpec:
    return resolve_run(merge(merge(TWO_NODES, changes or {}), {"parallelism": parallelism}))


def one(kind: str, group: str, size_bytes: float, degree: int) -> Op:
    (op,) = collective(kind, group, size_bytes, degree)
    return op


def seconds(op: Op, on: RunSpec) -> float:
    return collective_seconds(op, on, ROUND)


def test_tensor_ranks_of_a_node_use_its_links() -> None:
    # 8 ranks send 7/8 of 8 GB each; an all-reduce goes round twice.
    assert seconds(one("all_gather", "tp", 8e9, 8), run(tp=8)) == pytest.approx(LATENCY_S + 7e9 / LINK)
    assert seconds(one("all_reduce", "tp", 8e9, 8), run(tp=8)) == pytest.approx(LATENCY_S + 14e9 / LINK)


def packaged(rate: float, tp: int) -> RunSpec:
    cluster = {"base": "charllm-ppt-mi250", "node": {"package_bandwidth_gb_per_s": rate}}
    return resolve_run({"model": "llama3-8b", "cluster": cluster, "parallelism": {"tp": tp}})


def test_ranks_of_one_package_use_the_links_inside_it() -> None:
    pair, four = one("all_gather", "tp", 2**30, 2), one("all_gather", "tp", 2**30, 4)
    # 200 GB/s inside a package, 150 between packages.
    assert seconds(pair, packaged(200, 2)) == pytest.approx(0.75 * seconds(pair, packaged(0, 2)), rel=0.02)
    assert seconds(four, packaged(200, 4)) == seconds(four, packaged(0, 4))


@pytest.mark.parametrize(("tp", "share"), [(2, 1 / 7), (4, 3 / 7), (8, 1.0)])
def test_without_a_switch_ranks_have_the_links_between_them_alone(tp: int, share: float) -> None:
    gathered = collective("all_gather", "tp", 1e9, tp)[0]
    switched, direct = (
        collective_seconds(gathered, run({"cluster": {"node": {"direct_links": direct}}}, tp=tp), ROUND) - LATENCY_S
        for direct in (False, True)
    )
    assert direct == pytest.approx(switched / share)
    assert link_bandwidth(run({"cluster": {"node": {"direct_links": True}}}).cluster, (), tp) == share * 400e9


def test_without_a_switch_a_send_takes_one_link_of_the_node() -> None:
    apart = run({"cluster": {"node": {"direct_links": True}}}, pp=2)
    assert send_seconds(1e9, StageHop(), apart, ROUND) == pytest.approx(
        7 * (send_seconds(1e9, StageHop(), run(pp=2), ROUND) - LATENCY_S) + LATENCY_S
    )


def test_a_ring_of_whole_nodes_has_all_their_nics() -> None:
    # 16 replicas, 8 in a node, have 8 NICs; of 15 steps 15 x 2/16 cross.
    crossing_s = 15 * 2 / 16 * NIC_HOP_S
    assert seconds(one("reduce_scatter", "data", 16e9, 16), run()) == pytest.approx(
        LATENCY_S + crossing_s + 15e9 / (8 * NIC)
    )


def test_a_ring_with_one_member_in_a_node_has_its_share_of_the_nics() -> None:
    # tp 8 x dp 2: 8 rings at once, one NIC for each; its single step crosses.
    two = run(tp=8)
    assert members_per_node(group_links(two, "data")) == 1
    assert seconds(one("all_gather", "data", 2e9, 2), two) == pytest.approx(LATENCY_S + NIC_HOP_S + 1e9 / NIC)


def test_one_nic_for_a_node_is_shared_by_all_its_rings() -> None:
    op, shared = one("all_gather", "data", 2e9, 2), {"cluster": {"fabric": {"nics_per_node": 1}}}
    assert seconds(op, run(shared, tp=8)) == pytest.approx(LATENCY_S + NIC_HOP_S + 1e9 / (NIC / 8))


def test_the_switch_reduces_where_node_and_framework_can() -> None:
    op = one("all_reduce", "tp", 8e9, 8)
    able = run({"framework": {"in_switch_reduction": True}}, tp=8)
    assert choose_algorithm(op, able)[0] == "switch"
    assert choose_algorithm(op, run(tp=8))[0] == "ring"
    old_node = {"framework": {"in_switch_reduction": True}, "cluster": {"node": {"in_switch_reduction": False}}}
    assert choose_algorithm(op, run(old_node, tp=8))[0] == "ring"


def test_sends_that_share_a_nic_take_as_many_times_as_long() -> None:
    one_nic = run({"cluster": {"fabric": {"nics_per_node": 1}}}, tp=8, pp=2)
    each_s = [send_seconds(1e9, StageHop(leaving), one_nic, ROUND) for leaving in (1, 2, 8)]
    alone, two, eight = (seconds - LATENCY_S - NIC_HOP_S for seconds in each_s)
    assert alone == pytest.approx(1e9 / NIC)
    assert two == pytest.approx(2 * alone)
    assert eight == pytest.approx(8 * alone)


def test_sends_above_the_pods_have_what_oversubscription_leaves() -> None:
    cut = run({"cluster": {"fabric": {"nodes_per_pod": 1, "oversubscription": 4.0}}}, tp=8, pp=2)
    inside, above = (send_seconds(1e9, StageHop(8, core), cut, ROUND) - LATENCY_S - NIC_HOP_S for core in (False, True))
    assert above == pytest.approx(4 * inside)


def test_a_sender_alone_has_no_more_than_its_own_nic() -> None:
    eight_nics = run(tp=8, pp=2)
    assert send_seconds(1e9, StageHop(1), eight_nics, ROUND) == send_seconds(1e9, StageHop(8), eight_nics, ROUND)


def test_a_send_inside_a_node_takes_its_link() -> None:
    assert send_seconds(1e9, StageHop(), run(tp=4, pp=2), ROUND) == pytest.approx(LATENCY_S + 1e9 / LINK)


def test_without_links_collectives_take_pcie() -> None:
    bare = run({"cluster": {"node": {"link_bandwidth_gb_per_s": 0, "pcie_bandwidth_gb_per_s": 50}}}, tp=8)
    assert seconds(one("all_gather", "tp", 8e9, 8), bare) == pytest.approx(LATENCY_S + 7e9 / (0.8 * 50e9))


@given(st.sampled_from(sorted(set(COLLECTIVES) - {"send"})), st.sampled_from([1, 2, 8]), st.floats(1, 1e11))
def test_more_bytes_are_never_faster(kind: str, tp: int, size_bytes: float) -> None:
    on = run(tp=tp)
    small, large = (collective_seconds(one(kind, "data", size, 16 // tp), on) for size in (size_bytes, 2 * size_bytes))
    assert NETWORK.latency_s < small < large


def test_a_run_says_how_its_collectives_are_done() -> None:
    request = {"model": "llama3-70b", "cluster": {"base": "h100-superpod", "nodes": 16}}
    many = resolve_run({**request, "parallelism": {"tp": 8, "zero": 0}})
    assert choose_algorithm(one("all_reduce", "data", 1e5, 16), many)[0] == "tree"
    sharded = resolve_run({**request, "parallelism": {"tp": 8, "pp": 2}})
    assert algorithms_taken(build_step(sharded)) == {"tp": ("ring", "switch"), "dp": ("ring",), "pp": ("direct",)}


@pytest.mark.parametrize(("nodes_per_pod", "times"), [(1, 4.0), (2, 1.0)])
def test_what_passes_the_switches_above_pods_has_their_part_of_the_bandwidth(nodes_per_pod: int, times: float) -> None:
    # Two nodes in one pod, or in two whose switches pass a quarter.
    pods = run({"cluster": {"fabric": {"nodes_per_pod": nodes_per_pod, "oversubscription": 4.0}}}, tp=8)
    ring = one("all_gather", "data", 2e9, 2)
    assert seconds(ring, pods) == pytest.approx(LATENCY_S + NIC_HOP_S + times * 1e9 / NIC)
    exchange = one("all_to_all", "data", 2e9, 2)
    assert seconds(exchange, pods) == pytest.approx(LATENCY_S + NIC_HOP_S + times * 1e9 / NIC)
    # A tied embedding is sent from the last stage to the first.
    send = one("all_reduce", "pp", 1e9, 2)._replace(kind="send", sent_bytes=1e9)
    stages = run({"cluster": {"fabric": {"nodes_per_pod": nodes_per_pod, "oversubscription": 4.0}}}, tp=8, pp=2)
    assert seconds(send, stages) == pytest.approx(LATENCY_S + NIC_HOP_S + times * 1e9 / NIC)
