"""Machines by GPU and number, and networks in words."""

from dataclasses import asdict
from typing import Any

import pytest

from charllm.api.keywords import build_request
from charllm.catalog.resolve import resolve_cluster
from charllm.catalog.sizes import near_clusters, node_gpus, resized
from charllm.catalog.tables import entries
from charllm.errors import SpecError
from charllm.result.description import describe_machine


def fabric(cluster: Any) -> tuple[int, float]:
    found = resolve_cluster(cluster).fabric
    return found.nics_per_node, found.nic_bandwidth_bytes_per_s * 8e-9


@pytest.mark.parametrize("gpu", sorted(entries("gpus")))
def test_every_gpu_comes_in_any_number_of_nodes(gpu: str) -> None:
    per_node = node_gpus(entries("machines")[gpu])
    few, many = (resolve_cluster(f"{nodes * per_node}x{gpu.upper()}") for nodes in (1, 50))
    assert (few.gpu.name, few.nodes, few.gpus) == (gpu, 1, per_node)
    assert (many.nodes, many.gpus, many.name) == (
        50,
        50 * per_node,
        f"{gpu}{'-' if '-' in gpu else ''}x{50 * per_node}",
    )
    assert many.fabric.node_bandwidth_bytes_per_s > 0


@pytest.mark.parametrize("gpu", sorted(entries("machines")))
def test_a_usual_machine_names_networks_of_the_catalog_and_its_source(gpu: str) -> None:
    machine = entries("machines")[gpu]
    assert set(machine.values["networks"]) <= set(entries("fabrics"))
    assert ": " in machine.sources["networks"]
    assert entries("nodes")[machine.values["node"]].values["gpu"] == gpu


def test_any_spelling_of_a_size_is_the_same_machine() -> None:
    spellings = ("h100x512", "512xH100", "512 x H100", "H100 x512", "H100-SXM5-x512")
    shapes = {(found.gpus, found.node.name, found.fabric.name) for found in map(resolve_cluster, spellings)}
    assert shapes == {(512, "hgx-h100", "ib-8x400g")}
    assert resolve_cluster("8xH100") == resolve_cluster("h100x8")


def test_the_usual_machine_has_an_adapter_for_each_gpu_and_the_papers_has_one_for_eight() -> None:
    assert fabric("h200x32") == (8, 400)
    assert fabric("b300x64") == (8, 800)
    assert fabric("charllm-ppt-h200") == (1, 100)
    assert resolve_cluster("gb300x144").domain_nodes == 18


def test_a_part_of_a_node_keeps_the_slots_that_it_has() -> None:
    cluster = resolve_cluster("h200x4")
    assert (cluster.nodes, cluster.gpus, cluster.node.upstream) == (1, 4, (1, -1, -1, 2))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("2x200g", (2, 200)), ("8x400Gbps", (8, 400)), ("roce", (8, 400)), ("efa", (32, 100)), ("infiniband", (8, 400)),
        ("100g-per-node", (1, 100)), ("200g-per-gpu", (8, 200)), ("roce-4x200g", (4, 200)), ("1x10g", (1, 10)),
    ],
)  # fmt: skip
def test_a_network_is_said_in_words(words: str, expected: tuple[int, float]) -> None:
    assert fabric({"base": "h100x64", "fabric": words}) == expected
    assert fabric({"base": "h100x64", "fabric": {"base": words, "oversubscription": 2.0}}) == expected


def test_more_nodes_of_one_machine_are_joined_by_its_usual_network_and_named_by_their_size() -> None:
    grown = resolve_cluster({"base": "mi300x8", "nodes": 4})
    assert (grown.name, grown.gpus, grown.fabric.name) == ("mi300x32", 32, "roce-8x400g")
    assert resized("charllm-ppt-h200", 64) == "charllm-ppt-h200"


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("h100x12", "whole nodes of 8 GPUs: h100x8 or h100x16"), ("h100", "did you mean h100x8?"),
        ("512 h200", "did you mean h200x512?"), ("dgx-b200-100", "did you mean b200x104?"),
        ("mi250x3", "mi250x2 or mi250x4"), ("h210x32", "did you mean h20x32 or h200x32 or h100x32?"),
        ("32xh2000", "did you mean h200x32?"), ("a10x12", "did you mean a100x16 or "),
        ("h100x0", "did you mean h100x1?"), ("string-and-cans", "GPU and number such as h100x512"),
    ],
)  # fmt: skip
def test_a_wrong_name_proposes_the_right_form(asked: str, hint: str) -> None:
    with pytest.raises(SpecError, match="cluster: got") as error:
        resolve_cluster(asked)
    assert hint in str(error.value)


@pytest.mark.parametrize(
    "asked", ["h210x32", "gb20x70", "mi250q-x3", "mi30x12", "h200-superp", "h100x99999999", "h20q"]
)
def test_what_is_proposed_for_a_wrong_name_is_a_machine(asked: str) -> None:
    near = near_clusters(asked)
    assert near
    for name in near:
        assert resolve_cluster(name).gpus


@pytest.mark.parametrize("words", ["fast", "8x", "0x400g", "8x400g-per-node", "8x0g", "per-node"])
def test_a_network_that_is_none_is_refused_with_what_is_possible(words: str) -> None:
    with pytest.raises(SpecError, match=r"cluster.fabric.*(8x400g, 400g-per-gpu|at least|NICs)"):
        resolve_cluster({"base": "h100x64", "fabric": words})


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"gpus": 64}, "--gpus"), ({"gpu": "h100"}, "--gpus"), ({"gpu": "h100", "gpus": 64, "nodes": 2}, "--gpus"),
        ({"gpu": "h100", "gpus": 8, "cluster": "h100x8"}, "--cluster"), ({"gpu": "z9", "gpus": 8}, "--gpu"),
        ({"gpu": "h100", "gpus": "many"}, "--gpus"), ({"gpu": 3, "gpus": 8}, "--gpu"),
    ],
)  # fmt: skip
def test_gpu_and_number_must_agree(words: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as error:
        build_request(None, words)
    assert error.value.field == field


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"nodes": 2}, "got nodes alone; expected a machine: --gpu h100 --nodes 2, --cluster h100x16"),
        ({"nodes": "two", "network": "roce"}, "got fabric and nodes alone; expected a machine: --gpu h100"),
        ({"inlet": 30}, "got cooling alone; expected a machine: --gpu h100"),
    ],
)
def test_nodes_and_network_alone_are_no_machine(words: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=rf"^cluster: {told}"):
        resolve_cluster(build_request(None, words)["cluster"])


def test_gpu_number_nodes_and_network_describe_a_machine() -> None:
    by_gpus = build_request(None, {"gpu": "H100", "gpus": 512, "inlet": 30})["cluster"]
    by_nodes = build_request(None, {"gpu": "H100", "nodes": 64, "inlet": 30})["cluster"]
    assert resolve_cluster(by_gpus) == resolve_cluster(by_nodes)
    assert resolve_cluster(by_gpus).cooling.inlet_c == 30
    slow = build_request({"cluster": "eos"}, {"cluster": "h200x8", "nodes": 4, "network": "roce"})["cluster"]
    assert describe_machine(asdict(resolve_cluster(slow))) == "4 nodes x 8 h200; roce-8x400g: 8 x 400 Gb/s per node"


def test_single_figures_of_a_network_are_set_over_the_usual_one() -> None:
    slow = resolve_cluster({"base": "h200x32", "fabric": {"nic_bandwidth_bytes_per_s": 25e9}})
    assert (slow.fabric.nics_per_node, slow.fabric.nic_bandwidth_bytes_per_s) == (8, 25e9)


def test_a_name_replaces_all_of_a_files_cluster() -> None:
    spec = {"model": "llama3-8b", "cluster": {"base": "eos", "nodes": 4, "cooling": {"inlet_c": 40.0}}}
    assert build_request(spec, {"cluster": "h200x8", "inlet": 20})["cluster"] == {
        "base": "h200x8",
        "cooling": {"inlet_c": 20},
    }
