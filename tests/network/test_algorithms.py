"""Algorithms of collectives against sums done by hand, and laws that hold for all of them."""

from dataclasses import replace
from math import inf, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.network.algorithms import (
    GroupPath,
    Stage,
    fastest_algorithm,
    pipelined_seconds,
    ring_seconds,
    switch_seconds,
    tree_seconds,
)
from charllm.network.constants import NETWORK
from charllm.workload.op import Op, collective

US = 1e-6
# Round constants, so that sums can be done by hand; without handshakes for pieces unless a test sets them.
ROUND = replace(
    NETWORK, latency_s=0.0, hop_s=0.0, link_fraction=1.0, own_block_fraction=0.0, nic_fraction=1.0, nic_hop_s=10 * US
)
KINDS = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "ring_exchange")


def path(local: int, nodes: int, *, link: float = 200e9, nic: float = 20e9, switch: bool = False) -> GroupPath:
    return GroupPath(local, nodes, link, nic if nodes > 1 else inf, switch)


def one(kind: str, size_bytes: float, degree: int) -> Op:
    (op,) = collective(kind, "data", size_bytes, degree)
    return op


def fastest_s(op: Op, over: GroupPath) -> float:
    return fastest_algorithm(op, over, NETWORK)[1]


def test_the_best_piece_size_balances_handshakes_and_delay() -> None:
    hops, hop_s, moved_s = 7, 1 * US, 1000 * US
    constants = replace(NETWORK, latency_s=5 * US, hop_s=hop_s)

    def in_pieces(count: int) -> float:
        # Every piece costs one handshake; every hop waits for one whole piece.
        return 5 * US + hops * (hop_s + moved_s / count) + moved_s + count * hop_s

    best_s = pipelined_seconds((Stage(hops, hop_s, moved_s),), constants)
    assert best_s == pytest.approx(min(in_pieces(count) for count in range(1, 1000)), rel=1e-3)
    assert best_s == pytest.approx(5 * US + (sqrt(hops * hop_s) + sqrt(moved_s)) ** 2)


def test_a_ring_passes_every_rank_and_a_tree_every_level() -> None:
    op, over = one("all_reduce", 1e9, 512), path(8, 64)
    # 2 x 511 hops, 64 of 512 of them between nodes; 2 log2(64) levels.
    assert ring_seconds(op, over, ROUND) == pytest.approx(2 * 511 / 8 * 10 * US + op.sent_bytes / 20e9)
    assert tree_seconds(op, over, ROUND) == pytest.approx(12 * 10 * US + op.sent_bytes / (20e9 * 0.92))


def test_two_nodes_send_every_byte_of_a_tree_once() -> None:
    op = one("all_reduce", 1e9, 16)
    assert tree_seconds(op, path(8, 2), ROUND) == pytest.approx(20 * US + op.sent_bytes / (40e9 * 0.92))
    assert tree_seconds(op, path(8, 2, link=30e9), ROUND) == pytest.approx(20 * US + op.sent_bytes / (30e9 * 0.92))
    assert fastest_algorithm(op, path(8, 2), NETWORK)[0] == "tree"


@pytest.mark.parametrize("nodes", [4, 16, 64])
def test_flat_rings_use_nics_as_an_exchange_in_two_levels_does(nodes: int) -> None:
    # Eight ranks in a node, each with a NIC of 20 GB/s: a flat ring has all eight, in two levels eight rings one each.
    size_bytes, still = 1e12, replace(ROUND, nic_hop_s=0.0)
    flat = path(8, nodes, link=800e9, nic=160e9)
    flat_s = ring_seconds(one("reduce_scatter", size_bytes, 8 * nodes), flat, still)
    across_s = ring_seconds(one("reduce_scatter", size_bytes / 8, nodes), path(1, nodes), still)
    # Flat, bytes also travel to the other ranks of their own node through NICs: (n - 1) / n instead of (N - 1) / N.
    assert flat_s / across_s == pytest.approx((1 - 1 / (8 * nodes)) / (1 - 1 / nodes))


def test_small_messages_between_many_nodes_take_trees_and_large_ones_between_few_take_rings() -> None:
    def taken(size_bytes: float, nodes: int) -> str:
        return fastest_algorithm(one("all_reduce", size_bytes, 8 * nodes), path(8, nodes), NETWORK)[0]

    assert [taken(1e6, nodes) for nodes in (64, 256)] == ["tree", "tree"]
    assert [taken(4e9, nodes) for nodes in (4, 8)] == ["ring", "ring"]


def test_a_switch_moves_a_message_once_and_its_reduced_part_again() -> None:
    op = one("all_reduce", 8e9, 8)
    assert switch_seconds(op, path(8, 1), ROUND) == pytest.approx(9e9 / (0.72 * 200e9))
    assert fastest_algorithm(op, path(8, 1, switch=True), NETWORK)[0] == "switch"
    assert fastest_algorithm(op, path(8, 1), NETWORK)[0] == "ring"
    # With two or three ranks a ring sends no more.
    assert fastest_algorithm(one("all_reduce", 8e9, 2), path(2, 1, switch=True), NETWORK)[0] == "ring"


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_gathers_and_scatters_are_rings_with_any_switch(kind: str) -> None:
    assert fastest_algorithm(one(kind, 8e9, 8), path(8, 1, switch=True), NETWORK)[0] == "ring"


@given(st.sampled_from(KINDS), st.sampled_from([1, 2, 8]), st.sampled_from([1, 2, 4, 64, 512]), st.floats(1e3, 1e11))
def test_more_bytes_are_never_faster_nor_more_bandwidth_slower(
    kind: str, local: int, nodes: int, size_bytes: float
) -> None:
    if local * nodes == 1:
        return
    op, over = one(kind, size_bytes, local * nodes), path(local, nodes, switch=True)
    base_s = fastest_s(op, over)
    assert fastest_s(one(kind, 2 * size_bytes, local * nodes), over) > base_s
    assert fastest_s(op, over._replace(nic_bytes_per_s=2 * over.nic_bytes_per_s)) <= base_s
    assert fastest_s(op, over._replace(link_bytes_per_s=2 * over.link_bytes_per_s)) <= base_s
    assert fastest_s(op, over._replace(in_switch_reduction=False)) >= base_s


@given(st.sampled_from(KINDS), st.sampled_from([1, 8]), st.sampled_from([4, 64, 512]), st.floats(1e3, 1e11))
def test_more_ranks_with_as_many_bytes_each_are_never_faster(
    kind: str, local: int, nodes: int, size_bytes: float
) -> None:
    op = one(kind, size_bytes, local * nodes)
    more = op._replace(message_bytes=2 * op.message_bytes)  # As large an own block.
    assert fastest_s(more, path(local, 2 * nodes)) >= fastest_s(op, path(local, nodes))
