"""Every entry of the catalog builds, says where its figures come from, and matches what its makers state."""

import pytest

from charllm.catalog.resolve import resolve_cluster, resolve_framework, resolve_model
from charllm.catalog.tables import KINDS, SOURCE_KINDS, entries
from charllm.spec.board import Governor, Heat, Kernels, Power
from charllm.spec.cooling import Cooling
from charllm.spec.fields import rules
from charllm.spec.framework import Framework
from charllm.spec.generation import ENGINES
from charllm.spec.hardware import Cluster, Fabric, Gpu, Node
from charllm.spec.model import Model
from charllm.spec.parallelism import Parallelism
from charllm.spec.run import Conditions
from charllm.spec.training import Training
from charllm.workload.parameters import count_active_parameters, count_parameters

CHOICES_THAT_ARE_NUMBERS = {"default_zero", "vocab_multiple"}
MODELS, CLUSTERS, FRAMEWORKS = (sorted(entries(kind)) for kind in ("models", "clusters", "frameworks"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_has_a_source_of_a_known_kind(kind: str) -> None:
    for entry in entries(kind).values():
        for key, value in entry.values.items():
            if kind == "studies" or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if kind == "frameworks" and key in CHOICES_THAT_ARE_NUMBERS:
                continue
            assert key in entry.sources, f"{kind} {entry.name}: {key} has no source"
            assert entry.sources[key].split(":")[0] in SOURCE_KINDS, f"{entry.name}: {entry.sources[key]}"


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_size_its_makers_state(name: str) -> None:
    model = resolve_model(name)
    if model.stated_params is not None:
        assert count_parameters(model) == pytest.approx(model.stated_params, rel=0.005)
    if model.stated_active_params is not None:
        assert count_active_parameters(model) == pytest.approx(model.stated_active_params, rel=0.05)


def test_most_models_have_a_stated_size() -> None:
    stated = [name for name in MODELS if resolve_model(name).stated_params is not None]
    assert len(stated) > 0.7 * len(MODELS)


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_builds(name: str) -> None:
    cluster = resolve_cluster(name)
    assert cluster.gpus >= 1
    assert cluster.gpu.slowdown_temperature_c >= cluster.gpu.max_operating_temperature_c
    assert cluster.gpu.power_cap_min_w < cluster.gpu.power_cap_w
    assert cluster.gpu.clock_idle_hz < cluster.gpu.clock_max_hz


@pytest.mark.parametrize("name", sorted(entries("gpus")))
def test_a_gpu_is_in_some_node(name: str) -> None:
    assert name in {entry.values["gpu"] for entry in entries("nodes").values()}


@pytest.mark.parametrize("name", sorted(entries("nodes")))
def test_a_node_makes_a_cluster(name: str) -> None:
    cluster = resolve_cluster({"node": name, "fabric": "ib-8x400g", "nodes": 2})
    assert cluster.gpus == 2 * entries("nodes")[name].values["gpus"]
    assert cluster.gpu.name == entries("nodes")[name].values["gpu"]


@pytest.mark.parametrize("name", sorted(set(entries("fabrics")) - {"none"}))
def test_a_fabric_joins_nodes(name: str) -> None:
    cluster = resolve_cluster({"base": "h100x8", "fabric": name, "nodes": 2})
    assert cluster.nodes == 2
    assert cluster.fabric.nics_per_node * cluster.fabric.nic_bandwidth_bytes_per_s > 0


def test_there_are_at_most_thirteen_profiles_of_published_software_beside_that_of_the_reference_trainer() -> None:
    assert 4 <= len(set(FRAMEWORKS) - {"reference", *ENGINES}) <= 13


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_profile_gives_at_most_eight_constants_each_within_its_bounds(name: str) -> None:
    framework, bases = resolve_framework(name), [entries("frameworks")[name]]
    while bases[-1].values.get("base"):
        bases.append(entries("frameworks")[bases[-1].values["base"]])
    given = {
        key for entry in bases for key, value in entry.values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }  # fmt: skip
    assert given - CHOICES_THAT_ARE_NUMBERS
    assert len(given - CHOICES_THAT_ARE_NUMBERS) <= 8
    for field, rule in rules(Framework).items():
        if rule.kind == "float":
            assert rule.low <= getattr(framework, field) <= rule.high


@pytest.mark.parametrize(
    "name",
    [
        "charllm-ppt-h200", "charllm-ppt-h100", "charllm-ppt-mi250", "h200x1", "h200x8", "h100x8", "a100x8",
        "b200x8", "mi300x8",
    ],
)  # fmt: skip
def test_the_promised_clusters_exist(name: str) -> None:
    assert name in CLUSTERS


@pytest.mark.parametrize(
    "name",
    [
        "gpt3-175b", "gpt3-30b", "llama3-8b", "llama3-30b", "llama3-70b", "llama3-405b", "mixtral-8x7b",
        "mixtral-8x22b", "qwen3-32b", "qwen3-235b-a22b", "deepseek-v3", "nemotron4-340b", "grok-1", "gpt-oss-120b",
        "mpt-7b", "gpt2-xl", "bloom-176b",
    ],
)  # fmt: skip
def test_the_promised_models_exist(name: str) -> None:
    assert name in MODELS


@pytest.mark.parametrize(
    "name",
    [
        "v100-32gb", "a100-40gb", "a100-80gb", "h100", "h100-hbm2e-500w", "h100-nvl", "h200-nvl", "h200", "gh200",
        "b200", "b300", "gb200", "gb300", "mi250", "mi300x", "mi325x",
    ],
)  # fmt: skip
def test_the_promised_gpus_exist(name: str) -> None:
    assert name in entries("gpus")


@pytest.mark.parametrize("name", ["megatron", "nemo", "fsdp", "pytorch-eager"])
def test_the_promised_frameworks_exist(name: str) -> None:
    assert name in FRAMEWORKS


def test_the_papers_clusters_are_as_described() -> None:
    for name, nodes, watts in (
        ("charllm-ppt-h200", 4, 700),
        ("charllm-ppt-h100", 8, 700),
        ("charllm-ppt-mi250", 4, 500),
    ):
        cluster = resolve_cluster(name)
        fabric = cluster.fabric
        assert (cluster.nodes, cluster.node.gpus, cluster.gpu.power_cap_w) == (nodes, 8, watts)
        assert fabric.nics_per_node * fabric.nic_bandwidth_bytes_per_s == pytest.approx(12.5e9)
        assert cluster.cooling.kind == "air"
        assert any(slot >= 0 for slot in cluster.node.upstream)


SETTINGS = (Power, Kernels, Governor, Heat, Gpu, Node, Fabric, Cooling, Cluster, Model, Training, Parallelism,
            Framework, Conditions)  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_number_of_a_run_has_both_ends_of_its_range(settings: type) -> None:
    for name, rule in rules(settings).items():
        if rule.kind in ("int", "float", "ints"):
            assert -1e18 < rule.low < rule.high < 1e19, name
