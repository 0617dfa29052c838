"""Constants that were measured on a cluster take the place of the usual ones, in one place for all collectives."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_cluster, resolve_run
from charllm.errors import SpecError
from charllm.layout.hops import StageHop
from charllm.network.algorithms import GroupPath
from charllm.network.collectives import algorithm_on_path, collective_seconds, send_seconds
from charllm.network.constants import MEASURED_FIELDS, NETWORK, NetworkConstants, constants_of, with_measured
from charllm.spec.hardware import Fabric, Node
from charllm.spec.run import RunSpec
from charllm.workload.op import collective

MEASURED = {
    "node": {"base": "hgx-h200", "collective_latency_us": 5, "link_hop_us": 0.7, "link_fraction": 0.95,
             "own_block_fraction": 0.8, "switch_fraction": 0.75},
    "fabric": {"base": "ib-8x400g", "nic_fraction": 0.8, "nic_hop_us": 20, "tree_fraction": 0.7,
               "send_fraction": 0.6, "exchange_us": 900},
}  # fmt: skip


def run(**cluster: Any) -> RunSpec:
    request = {
        "model": "llama3-8b",
        "cluster": {"base": "charllm-ppt-h200", "fabric": "ib-8x400g", **cluster},
        "parallelism": {"tp": 4, "pp": 2},
    }
    return resolve_run(request)


def test_a_cluster_without_measurements_has_the_usual_constants() -> None:
    assert constants_of(resolve_cluster("charllm-ppt-h200")) is NETWORK
    other = replace(NETWORK, latency_s=1e-6)
    assert constants_of(resolve_cluster("charllm-ppt-h200"), other) is other


def test_every_measured_field_sets_its_constant() -> None:
    found = constants_of(run(**MEASURED).cluster)
    expected = replace(
        NETWORK, latency_s=5e-6, hop_s=0.7e-6, link_fraction=0.95, own_block_fraction=0.8, switch_fraction=0.75,
        switch_bytes_per_s=inf, nic_fraction=0.8, nic_hop_s=20e-6, tree_fraction=0.7, send_fraction=0.6,
        exchange_s=9e-4,
    )  # fmt: skip
    assert all(getattr(found, name) == pytest.approx(getattr(expected, name)) for name in MEASURED_FIELDS)
    assert found.switch_bytes_per_s == inf


def test_every_field_is_declared_and_every_constant_is_there() -> None:
    for name, (part, field) in MEASURED_FIELDS.items():
        assert name in NetworkConstants.__dataclass_fields__
        assert field in (Node if part == "node" else Fabric).__dataclass_fields__


@pytest.mark.parametrize(("kind", "group"), [("all_reduce", "tp"), ("all_gather", "dp"), ("all_to_all", "tp")])
def test_collectives_are_priced_by_what_was_measured(kind: str, group: str) -> None:
    (op,) = collective(kind, group, 64e6, 4)
    usual, measured = run(), run(**MEASURED)
    assert collective_seconds(op, measured) == collective_seconds(op, usual, constants_of(measured.cluster))
    assert collective_seconds(op, measured) != collective_seconds(op, usual)


@pytest.mark.parametrize("leaving", [0, 1, 16])
def test_sends_are_priced_by_what_was_measured(leaving: int) -> None:
    usual, measured, hop = run(), run(**MEASURED), StageHop(leaving)
    assert send_seconds(1e6, hop, measured) == send_seconds(1e6, hop, usual, constants_of(measured.cluster))
    assert send_seconds(1e6, hop, measured) != send_seconds(1e6, hop, usual)


def test_a_measured_share_of_the_switch_has_no_other_limit() -> None:
    assert with_measured(NETWORK, {"link_fraction": 0.5}).switch_bytes_per_s == NETWORK.switch_bytes_per_s
    assert with_measured(NETWORK, {"switch_fraction": 0.5}).switch_bytes_per_s == inf


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(SpecError, match=r"cluster\.node\.link_fraction: got 0"):
        run(node={"base": "hgx-h200", "link_fraction": 0.0})


def test_what_was_measured_is_listed_as_given() -> None:
    from charllm.result.provenance import describe_provenance

    assert "cluster.node.link_fraction" in describe_provenance(run(**MEASURED))["figures"]["given"]
    assert not any("link_fraction" in name for name in describe_provenance(run())["figures"].get("given", []))


@pytest.mark.parametrize(
    ("kind", "ranks", "size_bytes", "read_s"),
    [  # medians of LUMI's log of 175B, tp 8, pp 8 (spyysalo/lumi-llm-scaling)
        ("all_gather", 2, 2 * 732168192, 0.1556), ("all_gather", 32, 32 * 45759857, 0.2905),
        ("all_reduce", 8, 2931315180, 1.041), ("all_reduce", 32, 2931315180, 1.144),
        ("all_reduce", 2, 367001600, 0.0781), ("broadcast", 8, 154140672, 0.0314), ("send", 2, 14680064, 0.00231),
    ],
)  # fmt: skip
def test_messages_between_nodes_of_lumi_take_as_long_as_its_log_says(
    kind: str, ranks: int, size_bytes: float, read_s: float
) -> None:
    cluster = resolve_cluster("lumi")
    share = cluster.fabric.node_bandwidth_bytes_per_s / cluster.node.gpus
    path = GroupPath(1, ranks, cluster.node.link_bandwidth_bytes_per_s, share)
    (op,) = collective(kind, "dp", size_bytes, ranks)
    assert algorithm_on_path(op, path, constants_of(cluster))[1] == pytest.approx(read_s, rel=0.15)
