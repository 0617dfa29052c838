"""Racks whose air differs, and fans that follow the GPUs of their node."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_cluster, resolve_run
from charllm.errors import SpecError
from charllm.gpu.chassis import fan_power_w
from charllm.report.run import render_run
from charllm.simulate.sinks import node_flows
from tests.simulate.runs import REPLICAS, cooled, ran


def air(**cooling: Any) -> dict[str, Any]:
    return ran(cooled(**cooling), REPLICAS).metrics


def nodes(**cooling: Any) -> list[dict[str, Any]]:
    return ran(cooled(**cooling), REPLICAS).whole.result.nodes


def test_each_rack_has_the_air_that_enters_it() -> None:
    count = resolve_run(REPLICAS).cluster.nodes
    half = count // 2
    racks = nodes(rack_nodes=half, inlet_c=[20.0, 35.0], flow_fraction=[1.0, 0.8])
    assert [row["rack"] for row in racks] == [0] * half + [1] * half
    assert [row["inlet_mean_c"] for row in racks] == [20.0] * half + [35.0] * half
    assert [row["flow_fraction"] for row in racks] == [1.0] * half + [0.8] * half
    # As in a cluster that has this air throughout, but for what the other rack does to the step.
    for rows, alone in (
        (racks[:half], nodes(inlet_c=20.0)),
        (racks[half:], nodes(inlet_c=35.0, flow_fraction=0.8)),
    ):
        warm = [row["temperature_mean_c"] for row in rows]
        assert sum(warm) / half == pytest.approx(sum(row["temperature_mean_c"] for row in alone[:half]) / half, abs=1.0)
    assert racks[half]["fan_power_w"] == pytest.approx(0.8**3 * racks[0]["fan_power_w"])


def test_equal_air_by_rack_is_the_air_of_all() -> None:
    listed = air(rack_nodes=2, inlet_c=[25.0] * 4, flow_fraction=[1.0] * 4)
    assert {name: value for name, value in listed.items() if value != ran({}, REPLICAS).metrics[name]} == {}


def test_fans_that_follow_cool_the_gpus_and_draw_power() -> None:
    still, follows = (
        ran(cooled(inlet_c=35.0), REPLICAS),
        ran(cooled(inlet_c=35.0, fans="following", fan_start_c=60.0, fan_most_fraction=1.5), REPLICAS),
    )
    assert follows.metrics["temperature_peak_c"] < still.metrics["temperature_peak_c"] - 1
    row = follows.whole.result.nodes[0]
    assert 1 < row["flow_fraction"] < 1.5
    cluster = follows.machine.run.cluster
    assert row["fan_power_w"] == pytest.approx(float(fan_power_w(cluster.node, cluster.cooling, row["flow_fraction"])))
    more_w = follows.metrics["node_power_mean_w"] - still.metrics["node_power_mean_w"]
    assert more_w == pytest.approx(row["fan_power_w"] - cluster.node.fan_w, rel=0.3)


def test_fans_that_no_gpu_asks_to_speed_up_turn_as_fixed_ones() -> None:
    follows = ran(cooled(fans="following", fan_start_c=85.0), REPLICAS)
    assert follows.metrics == ran({}, REPLICAS).metrics
    assert node_flows(follows.machine).tolist() == [1.0] * follows.machine.run.cluster.nodes


@pytest.mark.parametrize(
    ("cooling", "field", "possible"),
    [
        ({"inlet_c": [20.0, 25.0, 30.0]}, "cooling.inlet_c", "one for each of 8 nodes"),
        ({"rack_nodes": 4, "flow_fraction": [1.0]}, "cooling.flow_fraction", "2 racks of 4 nodes"),
        ({"fans": "following", "kind": "liquid"}, "fans", "fixed"),
        ({"fans": "following", "fan_most_fraction": 0.5}, "fan_most_fraction", "at least flow_fraction (1)"),
        ({"fans": "following", "fan_start_c": 88.0}, "fan_start_c", "less than 87 C"),
        ({"inlet_c": 200.0}, "inlet_c", "80"),
        ({"flow_fraction": 0.0}, "flow_fraction", "0.1"),
    ],
)
def test_air_that_cannot_be_is_refused_by_its_field(cooling: dict[str, Any], field: str, possible: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_run({"model": "llama3-8b", "cluster": {"base": "h100x64", "cooling": cooling},
                     "parallelism": {"tp": 8}, "training": {"global_batch_size": 64}})  # fmt: skip
    assert caught.value.field.endswith(field)
    assert possible in str(caught.value)


def test_machines_of_the_catalog_have_fixed_fans() -> None:
    assert resolve_cluster("h100x64").cooling.fans == "fixed"


def test_nodes_are_listed_where_their_air_differs() -> None:
    racks = cooled(rack_nodes=4, inlet_c=[20.0, 35.0])
    assert "\nNodes" in render_run(ran(racks, REPLICAS).whole.result, full=True)
    assert "\nNodes" not in render_run(ran({}, REPLICAS).whole.result, full=True)
