"""What a job takes on several machines, as text."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from charllm.report.tables import render_table, wrap_all
from charllm.units import MEGA

HEADINGS = (
    "cluster",
    "GPUs",
    "tokens/s",
    "days",
    "tokens",
    "money",
    "MW of the grid",
    "peak MW of nodes",
    "MWh",
    "t CO2",
    "",
)
DROPPED = ("tokens", "peak MW of nodes", "tokens/s")


def render_budget(table: Mapping[str, Any]) -> str:
    """Return a row for each machine, the best of those that meet every limit, and the prices behind money."""
    rows = table["rows"]
    names = [name if name != "money" else table["currency"] for name in HEADINGS]
    job = f"{table['job']}: what" if table["job"] else "What"
    title = f"{job} the job takes on each machine, with its best strategy there"
    text = render_table(title, names, [_cells(row) for row in rows], drop=DROPPED, where="--csv")
    told = tell_budget(table)
    return "\n\n".join([text, "\n".join(wrap_all([*told.machines, *told.answer, told.prices, *told.commands]))])


def _cells(row: Mapping[str, Any]) -> list[str]:
    if row["gpus"] is None:
        return [str(row["cluster"]), *[""] * (len(HEADINGS) - 2), "does not fit"]
    figures = (
        f"{row['gpus']:,}", f"{row['tokens_per_s']:,.0f}", f"{row['days']:,.3g}", f"{row['tokens']:.3g}",
        f"{row['money']:,.0f}", f"{row['power_mw']:.3g}", f"{row['power_peak_mw']:.3g}", f"{row['energy_mwh']:,.4g}",
        f"{row['co2_t']:,.4g}",
    )  # fmt: skip
    return [str(row["cluster"]), *figures, f"breaks {row['why_not']}" if row["why_not"] else ""]


class Told(NamedTuple):
    """A budget in sentences."""

    answer: list[str]
    """What is cheapest, fastest and largest, and how many GPUs a limit carries."""
    machines: list[str]
    """Each machine with its strategy, or why it has none."""
    prices: str
    commands: list[str]


def tell_budget(table: Mapping[str, Any]) -> Told:
    """Say what is best, what each machine is, and what prices are behind money."""
    rows: Sequence[Mapping[str, Any]] = table["rows"]
    meeting = [row for row in rows if row["meets"]]
    machines = [f"Machine {row['cluster']}: {row['machine']}; {row['strategy']}." for row in rows if row["gpus"]]
    machines += [f"{row['cluster']}: {row['why_not']}." for row in rows if row["gpus"] is None]
    found, commands = [], []
    if not meeting:
        nearest = f"the nearest limits that one meets with its strategy: {table['nearest']}"
        found = [f"No machine meets every limit; {nearest}." if table["nearest"] else "The job fits on none of them."]
    else:
        cheapest, fastest = (min(meeting, key=lambda row: row[name] / row["tokens"]) for name in ("money", "days"))
        largest = max(meeting, key=lambda row: row["gpus"])
        found.append(
            f"Cheapest for its tokens{' within the limits' if table['limits'] else ''}: {cheapest['cluster']}; "
            f"fastest: {fastest['cluster']}; largest: {largest['cluster']}."
        )
        found += _in_proportion(table["bounds"], largest)
        commands = [f"Run the cheapest with: {cheapest['command']}"] if cheapest["command"] else []
    return Told(found, machines, f"Prices: {table['prices']}.", commands)


BOUND_BY = {"facility_power_mean_w": "power_mw", "cluster_power_peak_w": "power_peak_mw", "run_money": "money"}
"""Metric that grows with the number of GPUs: its column, which is in MW or in money."""


def _in_proportion(bounds: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> list[str]:
    """Say how many GPUs a limit carries, in proportion to those of a row."""
    found = []
    for bound in bounds:
        column = BOUND_BY.get(bound["metric"])
        if column and bound["sense"].startswith("<"):
            value = bound["value"] / (MEGA if column.endswith("_mw") else 1.0)
            gpus = int(value / row[column] * row["gpus"])
            found.append(f"{bound['text']} carries about {gpus:,} such GPUs, in proportion to {row['cluster']}.")
    return found
