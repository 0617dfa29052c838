"""Expert exchanges: bytes against sums done by hand, laws, and the spelling of dispatchers."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.network.collectives import choose_algorithm, collective_seconds
from charllm.network.constants import ALLTOALL, DEEPEP, HYBRIDEP, NETWORK
from charllm.network.experts import ExchangePath, exchange_seconds, exchanged_bytes
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.workload.op import Op, collective
from charllm.workload.routing import visited

SPARSE: dict[str, Any] = {
    "model": "mixtral-8x22b",
    "cluster": {"base": "h100-superpod", "nodes": 2, "node": {"link_bandwidth_gb_per_s": 400}},
    "framework": {"base": "megatron"},
    "parallelism": {"etp": 1},
    "training": {"routing_skew": 1.0},
}
FOUR_IN_A_NODE = {"cluster": {"node": {"gpus": 4, "upstream": []}, "fabric": {"nics_per_node": 4}}}


def run(changes: dict[str, Any] | None = None, **parallelism: Any) -> RunSpec:
    return resolve_run(merge(merge(SPARSE, changes or {}), {"parallelism": parallelism}))


def exchange(size_bytes: float, ranks: int) -> Op:
    (op,) = collective("all_to_all", "ep", size_bytes, ranks)
    return op


def some_experts_on(on: RunSpec, parts: int) -> float:
    return visited(on.model, on.training, on.framework, parts)


ONE_NODE, TWO_NODES = ExchangePath(8, 1, 400e9, inf), ExchangePath(4, 2, 400e9, 50e9)


def test_one_copy_for_each_expert_goes_to_every_other_rank_alike() -> None:
    sent = exchanged_bytes(exchange(8e9, 8), run(ep=8), TWO_NODES, ALLTOALL)
    # Of eight equal parts one stays, three go to ranks of the node, four to the other node.
    assert (sent.inside, sent.across) == (3e9, 4e9)


def test_one_copy_for_each_rank_and_node() -> None:
    # Top 2 of 8 experts on 8 ranks of 2 nodes: 8 GB are two copies of every token, 4 GB each.
    on = run(ep=8)
    sent = exchanged_bytes(exchange(8e9, 8), on, TWO_NODES, DEEPEP)
    ranks, nodes = some_experts_on(on, 8), some_experts_on(on, 2)
    assert 1.8 < ranks <= 2.0
    assert 1.4 < nodes < 1.6
    assert sent.inside == pytest.approx(4e9 * ranks * 7 / 8)
    assert sent.across == pytest.approx(4e9 * nodes / 2)
    # Multiprocessors read tokens once, write their copies, fill and empty the buffers of NICs.
    assert sent.handled == pytest.approx(4e9 * (1 + ranks + 2 * nodes))
    assert exchanged_bytes(exchange(8e9, 8), on, ONE_NODE, DEEPEP).handled == pytest.approx(4e9 * (1 + ranks))


def test_the_slowest_of_links_multiprocessors_and_nics_decides() -> None:
    on, op = run({"framework": {"dispatcher": "deepep"}}, ep=8), exchange(8e9, 8)
    ranks, nodes = some_experts_on(on, 8), some_experts_on(on, 2)
    wide = replace(NETWORK, deepep=replace(DEEPEP, blocks=10_000))
    link_s = 4e9 * ranks * 7 / 8 / (0.69 * 400e9)
    assert exchange_seconds(op, on, ONE_NODE, wide) == pytest.approx(50e-6 + link_s)
    narrow = replace(NETWORK, deepep=replace(DEEPEP, blocks=1))
    assert exchange_seconds(op, on, ONE_NODE, narrow) == pytest.approx(50e-6 + 4e9 * (1 + ranks) / 19.5e9)
    across_s = 4e9 * nodes / 2 / (NETWORK.nic_fraction * 5e9)
    assert exchange_seconds(op, on, TWO_NODES._replace(nic_bytes_per_s=5e9), wide) == pytest.approx(50e-6 + across_s)


def test_all_ranks_wait_for_the_busiest() -> None:
    even, skewed = (run({"training": {"routing_skew": skew}}, ep=8) for skew in (1.0, 1.5))
    op, still = exchange(1e12, 8), replace(NETWORK, latency_s=0.0, hop_s=0.0, nic_hop_s=0.0)
    assert collective_seconds(op, skewed, still) == pytest.approx(1.5 * collective_seconds(op, even, still))


def test_each_gpu_has_its_share_of_the_nics() -> None:
    op, still = exchange(1e12, 16), replace(NETWORK, latency_s=0.0, hop_s=0.0, nic_hop_s=0.0)
    apart = {"model": {"base": "mixtral-8x22b", "experts": 16}}
    eight, two = (run(merge(apart, {"cluster": {"fabric": {"nics_per_node": nics}}}), ep=16) for nics in (8, 2))
    assert collective_seconds(op, two, still) == pytest.approx(4 * collective_seconds(op, eight, still))


def test_parts_of_one_expert_are_gathered_over_the_links_of_their_node() -> None:
    split = run({"parallelism": {"tp": 2, "etp": 2}}, ep=4)
    (op,) = collective("all_gather", "etp", 1e9, 2)
    name, seconds = choose_algorithm(op, split)
    assert name == "ring"
    assert 5e8 / 400e9 < seconds < 2 * 5e8 / 400e9


def test_every_dispatcher_has_its_constants() -> None:
    assert [NETWORK.dispatcher(name) for name in ("alltoall", "deepep", "hybridep")] == [ALLTOALL, DEEPEP, HYBRIDEP]
    names = [choose_algorithm(exchange(1e9, 8), run({"framework": {"dispatcher": name}}, ep=8))[0]
             for name in ("alltoall", "deepep")]  # fmt: skip
    assert names == ["alltoall", "deepep"]


def test_tokens_limited_to_half_of_the_nodes_visit_fewer() -> None:
    # DeepSeek-V3: top 8 of 256 experts in 8 groups, of which a token chooses 4; a group for each of 8 nodes.
    limited = resolve_run({"model": "deepseek-v3", "cluster": {"base": "h100-superpod", "nodes": 8},
                           "framework": "megatron", "parallelism": {"ep": 64, "etp": 1}})  # fmt: skip
    sent = exchanged_bytes(exchange(8e9, 64), limited, ExchangePath(8, 8, 450e9, 50e9), DEEPEP)
    assert sent.across <= 1e9 * 4 * 7 / 8
    assert sent.across == pytest.approx(1e9 * 4 * (1 - 0.75**8) * 7 / 8, rel=0.02)


@given(st.sampled_from([2, 4, 8]), st.floats(1e6, 1e10), st.booleans())
def test_one_copy_for_each_rank_and_node_never_sends_more(ep: int, size_bytes: float, several: bool) -> None:
    on = run(ep=ep)
    path = ExchangePath(ep // 2, 2, 400e9, 50e9) if several else ExchangePath(ep, 1, 400e9, inf)
    expert, rank = (exchanged_bytes(exchange(size_bytes, ep), on, path, by) for by in (ALLTOALL, DEEPEP))
    assert rank.inside + rank.across <= 2 * (expert.inside + expert.across) * (1 + 1e-12)
    assert rank.across <= expert.across * (1 + 1e-12)
    if not several:
        assert rank.inside <= expert.inside * (1 + 1e-12)


@given(st.sampled_from(["alltoall", "deepep"]), st.sampled_from([2, 4, 8]), st.floats(1e3, 1e11))
def test_more_bytes_are_never_faster_nor_more_bandwidth_slower(name: str, ep: int, size_bytes: float) -> None:
    on, path = run({"framework": {"dispatcher": name}}, ep=ep), ExchangePath(ep // 2, 2, 400e9, 50e9)
    base_s = exchange_seconds(exchange(size_bytes, ep), on, path, NETWORK)
    assert exchange_seconds(exchange(2 * size_bytes, ep), on, path, NETWORK) > base_s
    assert exchange_seconds(exchange(size_bytes, ep), on, path._replace(link_bytes_per_s=800e9), NETWORK) <= base_s
    assert exchange_seconds(exchange(size_bytes, ep), on, path._replace(nic_bytes_per_s=100e9), NETWORK) <= base_s


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "tp-cp-dp-ep-pp"])
def test_an_exchange_across_nodes_is_never_faster_than_inside_one(order: str) -> None:
    near, far = run(ep=4), run(FOUR_IN_A_NODE, ep=8, order=order)
    (small,) = collective("all_to_all", "ep", 4e8, 4)
    (large,) = collective("all_to_all", "ep", 4e8, 8)
    assert collective_seconds(large, far) > collective_seconds(small, near)
