"""The page of a budget: what a job takes on each machine, money against days, and the command for each."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.budget import tell_budget
from charllm.report.figure import Column, Fact, Figure, Page, Section

FIGURES = {
    "days": ("days", ""),
    "money": ("money", ""),
    "gpus": ("GPUs", ""),
    "tokens": ("tokens", ""),
    "tokens_per_s": ("throughput", "tokens/s"),
    "power_mw": ("mean power of the facility", "MW"),
    "power_peak_mw": ("peak power of nodes", "MW"),
    "energy_mwh": ("energy from the grid", "MWh"),
    "co2_t": ("CO2", "t"),
}
"""Column of a row: its label and unit."""
FEWER = {name: "lower" for name in FIGURES if name not in ("tokens", "tokens_per_s")}
DIGITS = 4


def budget_page(table: Mapping[str, Any]) -> Page:
    """Return the page of a budget, given as the table that `charllm plan --json` prints for several machines."""
    rows = [row for row in table["rows"] if row["gpus"] is not None]
    told = tell_budget(table)
    return Page(
        title=f"Budget of {len(table['rows'])} machines",
        answer=told.answer,
        further=[*([f"{table['job']}."] if table["job"] else []), *told.machines, told.prices],
        facts=_facts(rows, table["currency"]),
        sections=[
            Section("What does it cost, and how long does it take?", [_front(rows, table["currency"])]),
            Section("Every machine", [_machines(table)]),
        ],
        origin="simulated",
    )


def _columns(rows: Sequence[Mapping[str, Any]], currency: str) -> dict[str, Column]:
    found = {
        name: Column(label, [row[name] for row in rows], currency if name == "money" else unit, DIGITS)
        for name, (label, unit) in FIGURES.items()
    }
    meets = ["meets every limit" if row["meets"] else f"breaks {row['why_not']}" for row in rows]
    return {"cluster": Column("machine", [row["cluster"] for row in rows]), **found, "meets": Column("limits", meets)}


def _front(rows: Sequence[Mapping[str, Any]], currency: str) -> Figure:
    """Return every machine as a point, money against days; any two figures can be chosen."""
    question = "Which machine is best for your time and money?"
    if not rows:
        return Figure("machines-front", "scatter", question, "", missing="The job fits on none of the machines.")
    front = [
        not any(other["days"] <= row["days"] and other["money"] <= row["money"] and other is not row for other in rows)
        for row in rows
    ]
    details = [{"strategy": row["strategy"], "command": row["command"] or ""} for row in rows]
    columns = {
        **_columns(rows, currency),
        "front": Column("on the Pareto front", front),
        "details": Column("settings", details),
    }
    names = ", ".join(row["cluster"] for row, best in zip(rows, front, strict=True) if best)
    options = {
        "x": "days",
        "y": "money",
        "x_scale": "linear",
        "y_scale": "linear",
        "choices": list(FIGURES),
        "better": FEWER | {"tokens_per_s": "higher", "tokens": "higher"},
        "colour": "meets",
        "name": "cluster",
        "front": "front",
        "shown": list(FIGURES),
        "details": "details",
    }
    message = f"No other machine is both faster and cheaper than {names}."
    return Figure("machines-front", "scatter", question, message, columns, options)


def _machines(table: Mapping[str, Any]) -> Figure:
    rows = table["rows"]
    columns = {
        **_columns(rows, table["currency"]),
        "strategy": Column("best strategy", [row["strategy"] or "" for row in rows]),
        "command": Column("command", [row["command"] or "" for row in rows]),
    }
    message = "Each machine with its best strategy there."
    return Figure("machines", "table", "What does the job take on each machine?", message, columns, {"search": False})


def _facts(rows: Sequence[Mapping[str, Any]], currency: str) -> list[Fact]:
    meeting = [row for row in rows if row["meets"]]
    if not meeting:
        return []
    cheapest, fastest = (min(meeting, key=lambda row: row[name] / row["tokens"]) for name in ("money", "days"))
    return [
        Fact("Cheapest", cheapest["cluster"], link="machines-front", note=f"{cheapest['money']:,.0f} {currency}"),
        Fact("Fastest", fastest["cluster"], link="machines-front", note=f"{fastest['days']:,.3g} days"),
    ]
