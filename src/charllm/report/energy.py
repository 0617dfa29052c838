"""The energy of a measured job as text: joules, kilowatt-hours, money and carbon at prices that the reader states."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from charllm.report.tables import format_percent, render_table
from charllm.result.columns import rows_of
from charllm.result.result import RunResult
from charllm.units import KWH_J, format_seconds

TABLE = "energy"


class Prices(NamedTuple):
    """What a kilowatt-hour costs, in the reader's currency, and the carbon dioxide that it stands for."""

    per_kwh: float | None = None
    co2_kg_per_kwh: float | None = None


NO_PRICES = Prices()


def price_energy(result: RunResult, prices: Prices) -> list[dict[str, Any]]:
    """Return the parts of a job with what their energy costs; nothing where power was not read."""
    table = result.table(TABLE)
    rows = rows_of(table) if table is not None else []
    return [{**row, **_priced(row.get("energy_j"), prices)} for row in rows]


def _priced(energy_j: float | None, prices: Prices) -> dict[str, float | None]:
    kwh = None if energy_j is None else energy_j / KWH_J
    each = {"kwh": 1.0, "cost": prices.per_kwh, "co2_kg": prices.co2_kg_per_kwh}
    return {name: None if kwh is None else kwh * price for name, price in each.items() if price is not None}


def render_energy(result: RunResult, prices: Prices = NO_PRICES) -> str | None:
    """Return a row for each part of a job; None where power was not read."""
    rows = price_energy(result, prices)
    if not rows:
        return None
    heads = ["", "time", "J", "W", "kWh", *(["cost"] if prices.per_kwh is not None else [])]
    heads += [*(["kg CO2"] if prices.co2_kg_per_kwh is not None else []), "not read"]
    return render_table("Energy of all GPUs", heads, [_cells(row, heads) for row in rows])


def _cells(row: dict[str, Any], heads: Sequence[str]) -> list[str]:
    energy_j, seconds = row.get("energy_j"), row["seconds"]
    known = {
        "": row["part"],
        "time": format_seconds(seconds),
        "J": _digits(energy_j),
        "W": _digits(energy_j / seconds if energy_j is not None and seconds > 0 else None),
        "kWh": _digits(row.get("kwh")),
        "cost": _digits(row.get("cost")),
        "kg CO2": _digits(row.get("co2_kg")),
        "not read": format_percent(row["unread_fraction"]),
    }
    return [known[head] for head in heads]


def _digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if value < 1e4 else f"{value:,.0f}"
