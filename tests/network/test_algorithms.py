"""Algorithms of collectives against sums done by hand, and what holds for all of them."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.cost.calibration import CALIBRATION
from charllm.network.algorithms import PIECE_BYTES, Way, chain_s, pat_s, quickest, ring_s, tree_s
from charllm.network.collectives import algorithms_taken, choose_algorithm
from charllm.network.protocols import PROTOCOLS
from charllm.workload.op import Op, collective
from charllm.workload.step import build_step

US = 1e-6
SIMPLE = PROTOCOLS["Simple"]._replace(hop_s=1 * US, nic_hops=1.0)
LL128 = PROTOCOLS["LL128"]._replace(hop_s=1 * US, share=1.0, most_bytes_per_s=inf)
KINDS = ("all_gather", "reduce_scatter", "all_reduce", "broadcast")


def way(local: int, nodes: int, *, link: float = 200e9, nic: float = 20e9, aggregated: bool = False) -> Way:
    return Way(local, nodes, link, nic if nodes > 1 else inf, 20e9, 10 * US, aggregated)


def one(kind: str, size_bytes: float, degree: int) -> Op:
    (op,) = collective(kind, "data", size_bytes, degree)
    return op


def best_s(op: Op, over: Way) -> float:
    return quickest(op, over, CALIBRATION.protocols)[2]


def test_a_ring_passes_every_rank_and_a_tree_every_level() -> None:
    op, over = one("all_reduce", 1e9, 512), way(8, 64)
    # 2 x 511 hops, 64 of 512 of them between nodes.
    across = 2 * 511 / 8
    assert ring_s(op, over, SIMPLE) == pytest.approx(across * 10 * US + (2 * 511 - across) * US + op.sent_bytes / 20e9)
    # Seven hops inside and log2(64) = 6 between nodes, up and down; by LL128 these are 2.1 times a ring's.
    assert tree_s(op, over, SIMPLE) == pytest.approx(2 * (7 * US + 6 * 10 * US) + op.sent_bytes / (20e9 * 0.92))
    assert tree_s(op, over, LL128) == pytest.approx(2 * (7 * US + 6 * 21 * US) + op.sent_bytes / (20e9 * 0.92))


def test_trees_lose_half_of_their_bandwidth_with_middle_sizes() -> None:
    op, over = one("all_reduce", 2**22, 4), way(1, 4)
    assert tree_s(op, over, SIMPLE) == pytest.approx(40 * US + op.sent_bytes / (20e9 * 0.46))
    op = one("all_reduce", 2**25, 4)
    assert tree_s(op, over, SIMPLE) == pytest.approx(40 * US + op.sent_bytes / (20e9 * 0.69))


def test_two_nodes_send_every_byte_of_a_tree_once() -> None:
    op = one("all_reduce", 1e9, 16)
    assert tree_s(op, way(8, 2), SIMPLE) == pytest.approx(2 * (7 + 10) * US + op.sent_bytes / (40e9 * 0.92))
    assert tree_s(op, way(8, 2, link=30e9), SIMPLE) == pytest.approx(2 * (7 + 10) * US + op.sent_bytes / (30e9 * 0.92))
    assert quickest(op, way(8, 2), CALIBRATION.protocols)[0] == "tree"


@pytest.mark.parametrize("nodes", [4, 16, 64])
def test_flat_rings_use_nics_as_an_exchange_in_two_levels_does(nodes: int) -> None:
    # Eight ranks in a node, each with a NIC of 20 GB/s: a flat ring has all eight, in two levels eight rings one each.
    size_bytes, still = 1e12, SIMPLE._replace(hop_s=0.0, nic_hops=0.0)
    flat_s = ring_s(one("reduce_scatter", size_bytes, 8 * nodes), way(8, nodes, link=800e9, nic=160e9), still)
    across_s = ring_s(one("reduce_scatter", size_bytes / 8, nodes), way(1, nodes), still)
    # Flat, bytes also travel to the other ranks of their own node through NICs: (n - 1) / n instead of (N - 1) / N.
    assert flat_s / across_s == pytest.approx((1 - 1 / (8 * nodes)) / (1 - 1 / nodes))
    assert flat_s == pytest.approx(across_s, rel=0.4 if nodes == 4 else 0.1)


def test_small_messages_between_many_nodes_take_trees_and_large_ones_between_few_take_rings() -> None:
    def taken(size_bytes: float, nodes: int) -> str:
        return quickest(one("all_reduce", size_bytes, 8 * nodes), way(8, nodes), CALIBRATION.protocols)[0]

    assert [taken(1e6, nodes) for nodes in (64, 256)] == ["tree", "tree"]
    assert [taken(4e9, nodes) for nodes in (4, 8)] == ["ring", "ring"]


def test_only_groups_with_one_rank_in_a_node_and_new_software_gather_by_trees() -> None:
    def taken(local: int, *, aggregated: bool) -> str:
        over = way(local, 512, aggregated=aggregated)
        return quickest(one("all_gather", 1e4, over.degree), over, (SIMPLE,))[0]

    assert taken(1, aggregated=True) == "pat"
    assert taken(1, aggregated=False) == taken(2, aggregated=True) == "ring"
    op = one("all_gather", 1e6, 64)
    assert pat_s(op, way(1, 64), SIMPLE) == pytest.approx((0.29 * 6 + 0.2 * 64) * 10 * US + op.sent_bytes / 15e9)


def test_a_broadcast_stores_a_piece_at_every_hop() -> None:
    op = one("broadcast", 1e9, 16)
    inside_s, across_s = US + PIECE_BYTES / 200e9, 10 * US + PIECE_BYTES / 20e9
    assert chain_s(op, way(8, 2), SIMPLE) == pytest.approx(14 * inside_s + across_s + op.sent_bytes / 20e9)


@given(st.sampled_from(KINDS), st.sampled_from([1, 2, 8]), st.sampled_from([2, 4, 64, 512]), st.floats(1e3, 1e11))
def test_more_ranks_bytes_or_hops_are_never_quicker(kind: str, local: int, nodes: int, size_bytes: float) -> None:
    over, degree = way(local, nodes, aggregated=True), local * nodes
    base_s = best_s(one(kind, size_bytes, degree), over)
    # As many bytes for each rank to send.
    sent = one(kind, size_bytes, degree).sent_bytes
    more = one(kind, size_bytes, 2 * degree)._replace(sent_bytes=sent)
    assert best_s(more, way(local, 2 * nodes, aggregated=True)) >= base_s
    assert best_s(one(kind, 2 * size_bytes, degree), over) > base_s
    assert best_s(one(kind, size_bytes, degree), way(local, nodes, nic=40e9, aggregated=True)) <= base_s
    assert best_s(one(kind, size_bytes, degree), way(local, nodes, link=400e9, aggregated=True)) <= base_s


def test_a_run_says_how_its_collectives_are_done() -> None:
    request = {"model": "llama3-70b", "cluster": {"base": "h100-superpod", "nodes": 16}}
    many = resolve_run({**request, "parallelism": {"tp": 8, "zero": 0}})
    (small,) = collective("all_reduce", "data", 1e5, 16)
    assert choose_algorithm(small, many, CALIBRATION)[0] == "tree LL"
    sharded = resolve_run({**request, "parallelism": {"tp": 8, "pp": 2}})
    assert algorithms_taken(build_step(sharded)) == {
        "tp": ("ring Simple", "ring LL128"),
        "dp": ("ring Simple",),
        "pp": ("direct Simple",),
    }
