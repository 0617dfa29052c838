"""What a job takes on several machines: for each its best strategy, with GPUs, days, money, power, energy and CO2.

Equations: a run of T tokens takes what `plan/whole_run.py` says; one of D days trains tokens/s x D x its useful share.
CO2 = energy from the grid x intensity. Without a run, figures are of a trillion tokens without interruptions.
Ignores: CO2 of making and shipping machines; that intensity changes with the hour.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from charllm.catalog.command import write_command
from charllm.errors import SpecError
from charllm.plan.limits import Limit, broken
from charllm.plan.metrics import Economics, derive_metrics
from charllm.plan.plan import Plan
from charllm.plan.strategy import name_strategy
from charllm.plan.whole_run import WholeRun
from charllm.report.budget import render_budget
from charllm.report.notebook import write_html
from charllm.result.description import describe_machine
from charllm.units import DAY_S, KILO, KWH_J, MEGA, TERA

RANGE = re.compile(r"(\d{1,7})\.\.(\d{1,7})")
FIRST_TOKENS = TERA
COLUMNS = ("cluster", "machine", "gpus", "strategy", "tokens", "tokens_per_s", "days", "money", "power_mw",
           "power_peak_mw", "energy_mwh", "co2_t", "meets", "why_not", "command")  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class Budget:
    """One row for each machine."""

    rows: Sequence[Mapping[str, Any]]
    limits: tuple[Limit, ...] = ()
    prices: str = ""
    currency: str = ""
    objective: str = "throughput"
    plans: Sequence[Plan] = field(default=(), repr=False)
    job: str = ""
    """What is trained, in words: model, precision and batch."""
    nearest: str = ""
    """Where no machine meets every limit, the nearest limits that one meets, in words."""

    def __repr__(self) -> str:
        machines = ", ".join(f"{row['cluster']} {'meets' if row['meets'] else 'breaks'}" for row in self.rows)
        return f"Budget({self.objective}: {machines})"

    def _repr_html_(self) -> str:
        return write_html(lambda: render_budget(self.as_table()))

    def to_frame(self) -> Any:
        """Return a pandas table with a row for each machine."""
        import pandas

        return pandas.DataFrame(list(self.rows), columns=list(COLUMNS))

    def as_table(self) -> dict[str, Any]:
        """Return the budget as plain tables."""
        return {
            "objective": self.objective,
            "job": self.job,
            "limits": [limit.text for limit in self.limits],
            "bounds": [limit._asdict() for limit in self.limits],
            "nearest": self.nearest,
            "prices": self.prices,
            "currency": self.currency,
            "rows": [dict(row) for row in self.rows],
        }


def list_sizes(nodes: object) -> list[int]:
    """Read a number of nodes or a range: ``4..256`` is 4, 8, 16 and so on, to 256."""
    found = RANGE.fullmatch(nodes.strip()) if isinstance(nodes, str) else None
    if found is None:
        if isinstance(nodes, bool) or not isinstance(nodes, int):
            raise SpecError("--nodes", nodes, "a number of nodes, or a range such as 4..256")
        return [nodes]
    low, high = int(found[1]), int(found[2])
    if not 0 < low <= high:
        raise SpecError("--nodes", nodes, "a range from few to many nodes, such as 4..256")
    sizes = [low * 2**power for power in range(high.bit_length()) if low * 2**power <= high]
    return sizes if sizes[-1] == high else [*sizes, high]


class Spent(NamedTuple):
    """What the best strategy of a plan takes."""

    whole: WholeRun | None
    """None: figures are of a trillion tokens."""
    metrics: Mapping[str, Any]


def budget_spent(found: Plan, economics: Economics, days: float | None) -> Spent:
    """Return what the best strategy of a plan takes, for a run of so many days where they are given."""
    best, whole = found.best[0], economics.whole_run
    if days is not None:
        # Useful shares hardly depend on the length of a run.
        trial = _derive(best, replace(economics, whole_run=WholeRun(tokens=FIRST_TOKENS)))
        tokens = best.metrics["tokens_per_s"] * days * DAY_S * trial["run_useful_fraction"]
        whole = WholeRun(tokens=max(1.0, tokens))
    return Spent(whole, _derive(best, replace(economics, whole_run=whole)))


def budget_row(found: Plan, spent: Spent, economics: Economics, limits: tuple[Limit, ...]) -> dict[str, Any]:
    """Return the row of a machine: what the best strategy of its plan takes, and which limits it breaks."""
    run, (whole, metrics) = found.best[0].run, spent
    energy_j = metrics["run_energy_j"] if whole else metrics["energy_per_trillion_tokens_j"]
    lost = broken(limits, metrics)
    return {
        "cluster": run.cluster.name,
        "machine": describe_machine(run.as_table()["cluster"]),
        "gpus": run.cluster.gpus,
        "strategy": name_strategy(run),
        "tokens": whole.tokens if whole else TERA,
        "tokens_per_s": metrics["tokens_per_s"],
        "days": metrics["run_time_s"] / DAY_S if whole else TERA / metrics["tokens_per_s"] / DAY_S,
        "money": metrics["run_money"] if whole else metrics["money_per_trillion_tokens"],
        "power_mw": metrics["facility_power_mean_w"] / MEGA,
        "power_peak_mw": metrics["cluster_power_peak_w"] / MEGA,
        "energy_mwh": energy_j / KWH_J / KILO,
        "co2_t": energy_j / KWH_J * economics.tariff.co2_kg_per_kwh / KILO,
        "meets": not lost,
        "why_not": ", ".join(limit.text for limit in lost) if lost else "",
        "command": write_command(run),
    }


def _derive(best: Any, economics: Economics) -> Mapping[str, Any]:
    return derive_metrics(best.run, best.metrics, economics)


def misfit_row(cluster: str, why: str) -> dict[str, Any]:
    """Return the row of a machine on which no strategy was found."""
    return {**dict.fromkeys(COLUMNS), "cluster": cluster, "meets": False, "why_not": why}
