"""Power from a GPU to the hall, by hand: four nodes of 5 kW, GPUs that peak 200 W above their mean."""

from typing import Any

import pytest

from charllm.plan.facility import facility_metrics
from tests.plan.round import METRICS, round_run

BY_HAND: dict[str, float] = {
    "cluster_power_mean_w": 4 * 5000.0,
    "node_power_peak_w": 5000.0 + 8 * 200.0,
    "rack_power_mean_w": 2 * 5000.0,
    "rack_power_peak_w": 2 * 6600.0,  # less than the 25 kW of the cluster
    "facility_power_mean_w": 1.5 * 20_000.0 / 0.8,  # PUE 1.5, supplies of 0.8
    "energy_delay_product_j_s": 32_000.0 * 2.0,
}


def found(changes: dict[str, Any] | None = None, read_at: str = "dc", nodes_per_rack: int = 2) -> dict[str, Any]:
    return facility_metrics(round_run(read_at), {**METRICS, **(changes or {})}, 1.5, nodes_per_rack)


def test_every_level_is_what_a_hand_makes_it() -> None:
    assert found() == pytest.approx(BY_HAND)


def test_power_that_is_read_at_the_wall_holds_the_supplies_already() -> None:
    wall = found(read_at="wall")
    assert wall["facility_power_mean_w"] == pytest.approx(1.5 * 20_000.0)
    # The GPUs' 1600 W lie behind the supplies.
    assert wall["node_power_peak_w"] == pytest.approx(5000.0 + 1600.0 / 0.8)


def test_a_rack_is_at_most_the_cluster_in_nodes_and_in_its_peak() -> None:
    large = found(nodes_per_rack=9)
    assert large["rack_power_mean_w"] == pytest.approx(20_000.0)
    assert large["rack_power_peak_w"] == pytest.approx(25_000.0)  # below 4 x 6600


def test_the_power_of_a_node_follows_from_its_gpus_where_it_was_not_simulated() -> None:
    # Eight GPUs of 500 W, boards of 1 kW and no fans in a bath, in each of four nodes.
    assert found({"node_power_mean_w": None})["cluster_power_mean_w"] == pytest.approx(4 * 5000.0)


@pytest.mark.parametrize("name", ["power_mean_w", "step_time_s", "energy_per_step_j"])
def test_what_is_not_known_leaves_no_power(name: str) -> None:
    assert not any(value is not None for value in found({name: None}).values())


@pytest.mark.parametrize("name", ["power_peak_sensor_w", "cluster_power_peak_w"])
def test_a_peak_that_is_not_known_leaves_the_means(name: str) -> None:
    partly = found({name: None})
    assert partly["rack_power_peak_w"] is None
    assert partly["rack_power_mean_w"] == pytest.approx(10_000.0)
