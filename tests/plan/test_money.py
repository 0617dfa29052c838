from dataclasses import replace
from typing import Any

import pytest

from charllm.api.economics import build_economics
from charllm.errors import SpecError
from charllm.plan.metrics import Economics, derive_metrics
from charllm.plan.money import Tariff, energy_money, money_metrics
from tests.plan.candidates import mine
from tests.plan.round import METRICS, round_run


def money(**prices: Any) -> float:
    tariff = replace(Tariff(electricity_per_kwh=0.0, gpu_per_hour=0.0), **prices)
    return float(derive_metrics(mine().run, mine().metrics, Economics(tariff=tariff))["money_per_trillion_tokens"])


def test_prices_that_are_given_are_those_that_are_used() -> None:
    tariff = build_economics({"electricity_per_kwh": "0.1", "co2_kg_per_kwh": 0.4}).tariff
    assert (tariff.electricity_per_kwh, tariff.co2_kg_per_kwh) == (0.1, 0.4)


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


@pytest.mark.parametrize(
    ("prices", "an_hour"),
    [
        ({"electricity_per_kwh": 0.1}, 30 * 0.1),  # 30 kW for an hour are 30 kWh
        ({"gpu_per_hour": 2.0}, 32 * 2.0),
        ({"demand_per_kw_month": 10.0}, 30 * 10.0 / 730.5),  # a month has 365.25 / 12 x 24 = 730.5 hours
    ],
)
def test_an_hour_of_thirty_kilowatts_costs_what_a_hand_makes_it(prices: dict[str, Any], an_hour: float) -> None:
    tariff = replace(Tariff(electricity_per_kwh=0.0, gpu_per_hour=0.0), **prices)
    found = money_metrics(round_run(), {**METRICS, "facility_power_mean_w": 30_000.0}, tariff)
    assert found["money_per_hour"] == pytest.approx(an_hour)
    # A trillion tokens at a million a second are a million seconds.
    assert found["money_per_trillion_tokens"] == pytest.approx(an_hour * 1e6 / 3600)
    assert found["energy_per_trillion_tokens_j"] == pytest.approx(30_000.0 * 1e6)


def test_a_kilowatt_for_a_month_costs_its_demand_charge_and_its_energy() -> None:
    month_j = 1000.0 * 730.5 * 3600
    assert energy_money(month_j, Tariff(electricity_per_kwh=0.0, demand_per_kw_month=12.0)) == pytest.approx(12.0)
    assert energy_money(month_j, Tariff(electricity_per_kwh=0.2)) == pytest.approx(730.5 * 0.2)


def test_prices_that_are_not_given_are_those_of_their_sources() -> None:
    # EIA, industry in the United States, 2024; arXiv:2412.19437; the others are assumed, as they say.
    tariff = Tariff()
    assert (tariff.electricity_per_kwh, tariff.gpu_per_hour, tariff.pue) == (0.0815, 2.0, 1.2)
    assert (tariff.demand_per_kw_month, tariff.nodes_per_rack) == (0.0, 4)


@pytest.mark.parametrize("name", ["facility_power_mean_w", "tokens_per_s"])
def test_without_power_or_speed_there_is_no_money(name: str) -> None:
    metrics = {**METRICS, "facility_power_mean_w": 30_000.0, name: None}
    assert not any(value is not None for value in money_metrics(round_run(), metrics, Tariff()).values())
