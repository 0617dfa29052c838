"""Collectives on two nodes of eight GPUs with eight NICs, against sums done by hand."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.cost.calibration import CALIBRATION
from charllm.layout.links import group_links
from charllm.network.collectives import (
    DISPATCH_NIC,
    SWITCH_GAIN,
    choose_algorithm,
    members_per_node,
    price_collective,
    price_send,
)
from charllm.network.protocols import PROTOCOLS
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.workload.op import COLLECTIVES, Op, collective

# Round constants, so that sums can be done by hand.
LINK, NIC, SETUP = 400e9, 40e9, 20e-6
SIMPLE = PROTOCOLS["Simple"]._replace(latency_s=SETUP, hop_s=1e-6, nic_hops=1.0)
ROUND = replace(CALIBRATION, link_fraction=0.8, nic_fraction=0.5, nic_hop_s=10e-6, protocols=(SIMPLE,))
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
SPARSE = {"model": "mixtral-8x22b", "parallelism": {"etp": 1}, "training": {"routing_skew": 1.0}}


def run(changes: dict[str, Any] | None = None, **parallelism: Any) -> RunSpec:
    return resolve_run(merge(merge(TWO_NODES, changes or {}), {"parallelism": parallelism}))


def one(kind: str, group: str, size_bytes: float, degree: int) -> Op:
    (op,) = collective(kind, group, size_bytes, degree)
    return op


def price(op: Op, on: RunSpec) -> float:
    return price_collective(op, on, ROUND)


def test_tensor_ranks_of_a_node_use_its_links() -> None:
    # 8 ranks send 7/8 of 8 GB each over 0.8 x 400 GB/s x (1 - 0.55 / 8), in 7 steps.
    seconds = price(one("all_gather", "tp", 8e9, 8), run(tp=8))
    assert seconds == pytest.approx(SETUP + 7 * 1e-6 + 7e9 / (320e9 * (1 - 0.55 / 8)))
    # An all-reduce goes round twice.
    seconds = price(one("all_reduce", "tp", 8e9, 8), run(tp=8))
    assert seconds == pytest.approx(SETUP + 14 * 1e-6 + 14e9 / (320e9 * (1 - 0.25 / 8)))


def test_a_ring_of_whole_nodes_has_all_their_nics() -> None:
    # 16 replicas, 8 in a node: 8 NICs of 40 GB/s at 0.5; of 15 steps 15 x 2/16 cross.
    seconds = price(one("reduce_scatter", "data", 16e9, 16), run())
    crossing = 15 * 2 / 16
    steps_s = crossing * 10e-6 + (15 - crossing) * 1e-6
    assert seconds == pytest.approx(SETUP + steps_s + 15e9 / (8 * NIC * 0.5))


def test_a_ring_with_one_member_in_a_node_has_its_share_of_the_nics() -> None:
    # tp 8 x dp 2: 8 rings at once, one NIC for each; its single step crosses.
    two = run(tp=8)
    assert members_per_node(group_links(two, "data")) == 1
    seconds = price(one("all_gather", "data", 2e9, 2), two)
    assert seconds == pytest.approx(SETUP + 10e-6 + 1e9 / (NIC * 0.5))


def test_one_nic_for_a_node_is_shared_by_all_its_rings() -> None:
    op, shared = one("all_gather", "data", 2e9, 2), {"cluster": {"fabric": {"nics_per_node": 1}}}
    assert price(op, run(shared, tp=8)) == pytest.approx(SETUP + 10e-6 + 1e9 / (NIC * 0.5 / 8))


def test_an_exchange_inside_a_node_uses_its_links() -> None:
    # 8 experts' ranks in a node: 7/8 leaves a rank, over 0.8 x 400 GB/s x 0.9 x (1 - 0.33 / 8), in one step.
    seconds = price(one("all_to_all", "ep", 8e9, 8), run(SPARSE, ep=8))
    assert seconds == pytest.approx(SETUP + 1e-6 + 7e9 / (320e9 * 0.9 * (1 - 0.33 / 8)))


def test_an_exchange_across_nodes_waits_for_the_nics() -> None:
    # ep 2 across nodes: all of the half that leaves a rank crosses, over its own NIC.
    apart = run(SPARSE, ep=2, order="tp-cp-dp-ep-pp")
    seconds = price(one("all_to_all", "ep", 2e9, 2), apart)
    assert seconds == pytest.approx(SETUP + 10e-6 + 1e9 / (NIC * 0.5))
    # ep 8 over two nodes: of 7 others 3 are inside and 4 across.
    wide = run(merge(SPARSE, {"cluster": {"node": {"gpus": 4, "upstream": []}, "fabric": {"nics_per_node": 4}}}), ep=8)
    seconds = price(one("all_to_all", "ep", 8e9, 8), wide)
    assert seconds == pytest.approx(SETUP + 10e-6 + 7e9 * 4 / 7 / (NIC * 0.5))


def test_one_copy_for_each_rank_and_node_sends_less() -> None:
    # Top 2 of 8 experts on 8 ranks, 2 nodes of 4: 8 GB are two copies of every token, 4 GB each.
    nodes = {"cluster": {"node": {"gpus": 4, "upstream": []}, "fabric": {"nics_per_node": 4}}}
    each_rank = run(merge(merge(SPARSE, nodes), {"framework": {"dispatcher": "deepep"}}), ep=8)
    # A token has some of its two experts on 2 (1 - 1/4) = 1.5 nodes, half of which are other ones.
    seconds = price(one("all_to_all", "ep", 8e9, 8), each_rank)
    share = DISPATCH_NIC[0] * (1 - DISPATCH_NIC[1] / 2)
    assert seconds == pytest.approx(SETUP + 10e-6 + 4e9 * 1.5 / 2 / (NIC * share))
    # Inside one node: on 8 (1 - (7/8)^2) = 1.875 ranks, 7/8 of them others.
    inside = run(merge(SPARSE, {"framework": {"dispatcher": "deepep"}}), ep=8)
    seconds = price(one("all_to_all", "ep", 8e9, 8), inside)
    assert seconds == pytest.approx(SETUP + 1e-6 + 4e9 * 1.875 * 7 / 8 / (320e9 * 0.9 * (1 - 0.33 / 8)))


@given(st.sampled_from([2, 4, 8]), st.floats(1e6, 1e10))
def test_one_copy_for_each_rank_is_never_slower_than_one_for_each_expert(ep: int, size_bytes: float) -> None:
    op = one("all_to_all", "ep", size_bytes, ep)
    for order in ("tp-cp-ep-dp-pp", "tp-cp-dp-ep-pp"):
        expert, rank = (
            price(op, run(merge(SPARSE, {"framework": {"dispatcher": name}}), ep=ep, order=order))
            for name in ("alltoall", "deepep")
        )
        assert rank <= expert * (1 + 1e-12)


def test_the_switch_reduces_where_it_can() -> None:
    op = one("all_reduce", "tp", 8e9, 8)
    ring, switch = (price(op, run({"framework": {"in_switch_reduction": able}}, tp=8)) for able in (False, True))
    latency_s = SETUP + 14 * 1e-6
    assert ring - latency_s == pytest.approx(SWITCH_GAIN * (switch - latency_s))


def test_sends_that_share_a_nic_take_as_many_times_as_long() -> None:
    one_nic = run({"cluster": {"fabric": {"nics_per_node": 1}}}, tp=8, pp=2)
    latency_s = SETUP + ROUND.nic_hop_s
    alone, two, eight = (price_send(1e9, leaving, one_nic, ROUND) - latency_s for leaving in (1, 2, 8))
    assert alone == pytest.approx(1e9 / (NIC * 0.5))
    assert two == pytest.approx(2 * alone)
    assert eight == pytest.approx(8 * alone)


def test_a_sender_alone_has_no_more_than_its_own_nic() -> None:
    eight_nics = run(tp=8, pp=2)
    assert price_send(1e9, 1, eight_nics, ROUND) == price_send(1e9, 8, eight_nics, ROUND)


def test_a_send_inside_a_node_takes_its_link() -> None:
    assert price_send(1e9, 0, run(tp=4, pp=2), ROUND) == pytest.approx(SETUP + 1e-6 + 1e9 / 320e9)


def test_without_links_collectives_take_pcie() -> None:
    bare = run({"cluster": {"node": {"link_bandwidth_gb_per_s": 0, "pcie_bandwidth_gb_per_s": 50}}}, tp=8)
    seconds = price(one("all_gather", "tp", 8e9, 8), bare)
    assert seconds == pytest.approx(SETUP + 7 * 1e-6 + 7e9 / (0.8 * 50e9 * (1 - 0.55 / 8)))


@given(st.sampled_from(sorted(set(COLLECTIVES) - {"send"})), st.sampled_from([1, 2, 8]), st.floats(1, 1e11))
def test_more_bytes_are_never_faster(kind: str, tp: int, size_bytes: float) -> None:
    on = run(tp=tp)
    small, large = (price(one(kind, "data", size, 16 // tp), on) for size in (size_bytes, 2 * size_bytes))
    assert SETUP < small < large


def test_small_messages_take_protocols_with_less_latency() -> None:
    tp8 = run(tp=8)
    taken = [choose_algorithm(one("all_gather", "tp", size, 8), tp8, CALIBRATION)[0] for size in (1e4, 4e6, 4e9)]
    assert taken == ["ring LL", "ring LL128", "ring Simple"]
    # 7/8 of 10 kB at 15 GB/s, in seven steps.
    low = PROTOCOLS["LL"]
    seconds = price_collective(one("all_gather", "tp", 1e4, 8), tp8, CALIBRATION)
    assert seconds == pytest.approx(low.latency_s + 7 * low.hop_s + 8750 / low.most_bytes_per_s)


@given(st.floats(1, 1e11))
def test_no_protocol_alone_is_quicker_than_the_choice(size_bytes: float) -> None:
    op, tp8 = one("all_reduce", "tp", size_bytes, 8), run(tp=8)
    alone = [price_collective(op, tp8, replace(CALIBRATION, protocols=(by,))) for by in CALIBRATION.protocols]
    assert price_collective(op, tp8, CALIBRATION) == min(alone)
