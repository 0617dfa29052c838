"""Money that training takes: electricity with the hall's share, GPU-hours, and a charge for demand.

Equation: money a second = price of energy x P + gpus x price of a GPU-hour / 3600 + demand charge x P / month, where P
is the mean power that the hall draws for the run (plan/facility.py); per trillion tokens: x 1e12 / tokens a second.
Source: of each default, beside it.
Ignores: tariffs that change with the hour, ratchets of demand charges, taxes, storage, people. A demand charge bills
the highest 15-minute mean of a month, which for a run that goes on for weeks is its mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from charllm.spec.fields import check_fields, count, number, text
from charllm.spec.run import RunSpec
from charllm.units import DAY_S, HOUR_S, KILO, KWH_J, TERA

MONTH_S = 365.25 / 12 * DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """Prices, and how a hall turns power of nodes into power from the grid."""

    # EIA, Electric Power Monthly: United States, industrial, mean of 2024: 8.15 cents.
    electricity_per_kwh: float = number("Price of a kWh (0.0815: industry in the United States, 2024).", 0, 1e3, 0.0815)
    # arXiv:2412.19437, section 1, for a rented H800; the same for every GPU unless given.
    gpu_per_hour: float = number("Price of a GPU-hour (2: assumed in arXiv:2412.19437).", 0, 1e4, 2.0)
    # Assumed: between Google's fleet in 2024 (1.09) and the mean of Uptime Institute's survey of 2024 (1.56).
    pue: float = number("Power of the facility divided by that of its nodes (1.2: assumed).", 1, 10, 1.2)
    demand_per_kw_month: float = number("Charge for each kW of demand in a month.", 0, 1e4, 0.0)
    # EIA, how much CO2 is produced per kWh of U.S. electricity generation: 0.81 pounds in 2023.
    co2_kg_per_kwh: float = number("CO2 of a kWh (0.37: United States, 2023).", 0, 10, 0.37)
    nodes_per_rack: int = count("Nodes per rack (4: assumed).", 1, 1000, 4)
    currency: str = text("Currency of the prices.", "USD")

    def __post_init__(self) -> None:
        check_fields(self)


def tell_tariff(tariff: Tariff) -> str:
    """Write the prices behind figures of money."""
    money, demand = tariff.currency, tariff.demand_per_kw_month
    charge = f", {demand:g} {money} for each kW and month" if demand else ""
    prices = f"{tariff.gpu_per_hour:g} {money} for a GPU-hour, {tariff.electricity_per_kwh:g} {money}/kWh{charge}"
    return f"{prices}, PUE {tariff.pue:g}, {tariff.co2_kg_per_kwh:g} kg CO2/kWh (--tariff NAME=VALUE changes them)"


def money_metrics(run: RunSpec, metrics: Mapping[str, Any], tariff: Tariff) -> dict[str, Any]:
    """Return money and energy of training; None where power or time are not known."""
    power_w, tokens_per_s = metrics.get("facility_power_mean_w"), metrics.get("tokens_per_s")
    if power_w is None or tokens_per_s is None:
        return {}
    per_s = money_per_s(run, power_w, tariff)
    return {
        "money_per_trillion_tokens": TERA * per_s / tokens_per_s,
        "money_per_hour": HOUR_S * per_s,
        "energy_per_trillion_tokens_j": TERA * power_w / tokens_per_s,
    }


def money_per_s(run: RunSpec, facility_w: float, tariff: Tariff) -> float:
    """Return what a second costs in which the hall draws some power for a run."""
    return energy_money(facility_w, tariff) + run.cluster.gpus * tariff.gpu_per_hour / HOUR_S


def energy_money(facility_j: float, tariff: Tariff) -> float:
    """Return what energy from the grid costs, with the charge for the demand that it stands for."""
    return facility_j * (tariff.electricity_per_kwh / KWH_J + tariff.demand_per_kw_month / KILO / MONTH_S)
