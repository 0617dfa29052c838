from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_cluster, resolve_run
from charllm.layout.links import DOMAINS, group_links, hop_domains, link_of, nic_of, nic_sharers
from charllm.layout.placement import place_ranks


def domain(cluster: Any, sender: int, receiver: int) -> str:
    return DOMAINS[int(hop_domains(cluster, np.array([sender]), np.array([receiver]))[0])]


@pytest.mark.parametrize(
    ("cluster", "sender", "receiver", "name"),
    [
        ("charllm-ppt-h200", 0, 0, "self"),
        ("charllm-ppt-h200", 0, 7, "node"),
        ("charllm-ppt-h200", 0, 8, "pod"),
        ("charllm-ppt-mi250", 0, 1, "package"),
        ("charllm-ppt-mi250", 1, 2, "node"),
        ("gb200-nvl72", 0, 4, "scale-up"),
        ({"base": "gb200-nvl72", "nodes": 36}, 0, 72, "rail"),
        ({"base": "gb200-nvl72", "nodes": 36}, 0, 73, "pod"),
        ({"base": "charllm-ppt-h200", "fabric": {"nodes_per_pod": 2}}, 0, 16, "core"),
        ({"base": "charllm-ppt-h200", "fabric": "ib-8x400g"}, 3, 11, "rail"),
    ],
)
def test_a_hop_crosses_the_nearest_domain_that_holds_both(cluster: Any, sender: int, receiver: int, name: str) -> None:
    assert domain(resolve_cluster(cluster), sender, receiver) == name


def test_inside_a_node_without_links_traffic_takes_pcie() -> None:
    cluster = resolve_cluster({"base": "charllm-ppt-h200", "node": {"link_bandwidth_gb_per_s": 0}})
    assert link_of(cluster, "node") == "pcie"
    assert link_of(resolve_cluster("charllm-ppt-h200"), "node") == "nvlink"
    assert link_of(resolve_cluster("charllm-ppt-h200"), "core") == "nic"


def test_slots_share_nics_evenly() -> None:
    slots = np.arange(8)
    assert nic_of(resolve_cluster("charllm-ppt-h200"), slots).tolist() == [0] * 8
    two = resolve_cluster({"base": "charllm-ppt-h200", "fabric": {"nics_per_node": 2}})
    assert nic_of(two, slots).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def run(**parallelism: Any) -> Any:
    return resolve_run({"model": "gpt3-175b", "cluster": "charllm-ppt-h200", "parallelism": parallelism})


def test_only_hops_between_nodes_leave_them() -> None:
    # 16 stages of 2: hop 7 -> 8, 15 -> 16 and 23 -> 24 of the 15 hops cross, for each of 2 tensor ranks.
    links = group_links(run(tp=2, pp=16), "pp")
    assert links.ring_hops == {"node": 24, "pod": 6}
    assert links.ring_links["nic"] == pytest.approx(6 / 30)


def test_a_ring_passes_each_node_once() -> None:
    links = group_links(run(), "data")
    assert (links.degree, links.ring_hops) == (32, {"node": 28, "pod": 4})


def test_an_all_to_all_meets_every_other_member() -> None:
    request = {
        "model": "mixtral-8x7b",
        "cluster": "charllm-ppt-h200",
        "parallelism": {"ep": 8, "order": "dp-ep-tp-cp-pp"},
    }
    links = group_links(resolve_run(request), "ep")
    assert sum(links.pair_hops.values()) == 4 * 8 * 7
    assert links.pair_links["nic"] == pytest.approx(6 / 7)


def test_groups_that_leave_a_node_together_share_its_nic() -> None:
    assert group_links(run(tp=8, pp=4), "pp").ring_flows_per_nic == 8
    assert group_links(run(tp=8, pp=4), "tp").ring_flows_per_nic == 0
    assert group_links(run(tp=4, pp=2), "data").ring_flows_per_nic == 4


def test_kinds_of_groups_that_use_one_nic_are_named() -> None:
    spread = run(tp=2, pp=4)
    assert nic_sharers(spread, "data", ("data", "pp", "tp")) == ()
    far = run(tp=2, pp=2)
    assert nic_sharers(far, "data", ("data", "pp", "tp")) == ("pp",)


def test_a_placement_moves_the_hops() -> None:
    swapped = [*range(8, 16), *range(8), *range(16, 32)]
    request = {"model": "gpt3-175b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 8, "pp": 4}}
    moved = resolve_run({**request, "conditions": {"placement": "here.json", "gpu_of_rank": swapped}})
    assert place_ranks(moved)[0] == 8
    interleaved = [gpu // 4 + gpu % 4 * 8 for gpu in range(32)]
    scattered = resolve_run({**request, "conditions": {"placement": "here.json", "gpu_of_rank": interleaved}})
    assert group_links(scattered, "tp").ring_links["nic"] > 0
    assert group_links(moved, "tp").ring_links["nic"] == 0
