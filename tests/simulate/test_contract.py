"""Every metric of watts, degrees and hertz is there and makes sense, on every machine of the catalog."""

import math
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_cluster
from charllm.catalog.tables import entries
from charllm.gpu import physics
from charllm.result.metrics import CAUSES, METRICS
from tests.simulate.runs import Done, ran

CLUSTERS = sorted(entries("clusters"))
MODELS = ("llama3-8b", "mixtral-8x7b")
MOST_NODES = 18


def small(model: str, cluster: str) -> Done:
    """Predict a model on a cluster of the catalog, of a few nodes where it has many."""
    nodes = min(MOST_NODES, resolve_cluster(cluster).nodes)
    gpus = nodes * resolve_cluster(cluster).node.gpus
    precision = "bf16" if resolve_cluster(cluster).gpu.peak_bf16_flop_per_s else "fp16"
    base: dict[str, Any] = {
        "model": model,
        "cluster": {"base": cluster, "nodes": nodes},
        "training": {"global_batch_size": 2 * gpus, "precision": precision},
    }
    return ran(base=base)


def test_the_governor_numbers_causes_as_metrics_list_them() -> None:
    assert [getattr(physics, cause.upper()) for cause in CAUSES] == [1, 2, 3]


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("model", MODELS)
def test_every_metric_is_known_and_finite_on_every_machine(model: str, cluster: str) -> None:
    found = small(model, cluster)
    metrics, gpu = found.metrics, found.machine.run.cluster.gpu
    assert set(metrics) == set(METRICS)
    for name, value in metrics.items():
        if name == "critical_path":
            assert all(math.isfinite(part["seconds"]) and part["seconds"] > 0 for part in value)
            continue
        for number in value.values() if isinstance(value, dict) else [value]:
            known = number is not None and math.isfinite(number)
            # A link that a machine does not have is not used, and an axis that sends nothing has no median.
            assert known or name in ("link_utilization_fraction", "message_bytes_median"), name
    cap_w = gpu.power_cap_w / gpu.package_gpus
    assert gpu.power.idle_w < metrics["power_mean_w"] <= cap_w
    assert metrics["power_peak_sensor_w"] < 2 * cap_w
    inlet_c = found.machine.run.cluster.cooling.inlet_c
    assert inlet_c < metrics["temperature_mean_c"] < metrics["temperature_peak_c"] < gpu.slowdown_temperature_c
    assert gpu.clock_idle_hz <= metrics["clock_mean_hz"] <= gpu.clock_max_hz * (1 + 1e-12)
    assert metrics["cluster_power_peak_w"] > metrics["power_mean_w"] * found.machine.run.cluster.gpus


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_gpu_and_node_has_its_figures(cluster: str) -> None:
    found = small("llama3-8b", cluster)
    names = ["power_mean_w", "power_peak_w", "power_peak_sensor_w", "temperature_mean_c", "temperature_peak_c"]
    names += ["clock_mean_hz", *(f"throttled_{cause}_fraction" for cause in CAUSES)]
    assert len(found.gpus) == found.machine.run.cluster.gpus
    assert all(math.isfinite(row[name]) for row in found.gpus for name in names)
    assert [node["node"] for node in found.whole.result.nodes] == list(range(found.machine.run.cluster.nodes))


def test_both_dies_of_a_package_share_its_cap_and_its_sink() -> None:
    found = small("llama3-8b", "charllm-ppt-mi250")
    gpu = found.machine.run.cluster.gpu
    assert gpu.package_gpus == 2
    by_place = {(row["node"], row["slot"]): row for row in found.gpus}
    for (node, slot), row in by_place.items():
        mate = by_place[node, slot ^ 1]
        assert row["power_mean_w"] + mate["power_mean_w"] <= gpu.power_cap_w
        assert abs(row["temperature_mean_c"] - mate["temperature_mean_c"]) < 12


def test_one_gpu_is_as_its_surroundings_were_when_it_was_measured() -> None:
    found = small("llama3-8b", "h200x1")
    assert found.metrics["temperature_spread_node_k"] == 0
    assert found.metrics["breakdown_s"]["straggler_wait"] == pytest.approx(0, abs=1e-9)
    assert all(row["wait_for_group_s"] == 0 for row in found.gpus)
