from dataclasses import replace
from typing import Any

import pytest

from charllm.errors import SpecError
from charllm.plan.metrics import Economics, derive_metrics
from charllm.plan.money import Tariff
from tests.plan.candidates import mine


def money(**prices: Any) -> float:
    tariff = replace(Tariff(electricity_per_kwh=0.0, gpu_per_hour=0.0), **prices)
    return float(derive_metrics(mine().run, mine().metrics, Economics(tariff=tariff))["money_per_trillion_tokens"])


@pytest.mark.parametrize("price", ["electricity_per_kwh", "gpu_per_hour", "demand_per_kw_month"])
def test_money_is_linear_in_each_price_and_adds_up(price: str) -> None:
    one = money(**{price: 1.0})
    assert one > 0
    assert money(**{price: 3.0}) == pytest.approx(3 * one)
    assert money(**{price: 1.0}, pue=1.2) + money(gpu_per_hour=2.0) == pytest.approx(
        money(**{"gpu_per_hour": 2.0, price: 1.0 + 2.0 * (price == "gpu_per_hour")})
    )


def test_energy_at_the_wall_is_that_of_the_nodes_their_supplies_and_the_hall() -> None:
    metrics, node = mine().metrics, mine().run.cluster.node
    joules = metrics["node_power_mean_w"] * mine().run.cluster.nodes * metrics["step_time_s"]
    per_token = metrics["energy_per_trillion_tokens_j"] / 1e12
    assert per_token * mine().run.tokens_per_step == pytest.approx(1.2 * joules / node.supply_fraction)


def test_a_rack_draws_no_more_than_the_cluster_and_no_less_than_its_mean() -> None:
    for nodes in (1, 2, 4, 9):
        economics = Economics(tariff=Tariff(nodes_per_rack=nodes))
        found = derive_metrics(mine().run, mine().metrics, economics)
        assert found["rack_power_mean_w"] <= found["rack_power_peak_w"] <= found["cluster_power_peak_w"]
        assert found["node_power_peak_w"] >= found["node_power_mean_w"]


def test_without_a_step_time_there_is_no_money_and_no_zero() -> None:
    found = derive_metrics(mine().run, {"step_time_s": None})
    assert found["money_per_trillion_tokens"] is None
    assert found["cluster_power_mean_w"] is None


def test_a_negative_price_is_refused() -> None:
    with pytest.raises(SpecError, match="electricity_per_kwh"):
        Tariff(electricity_per_kwh=-1.0)
