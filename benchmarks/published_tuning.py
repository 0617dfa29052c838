"""How often the strategy that charllm ranks first is the one that others measured as best: ``python -m
benchmarks.published_tuning``.

A job is one model (its sizes, not its name), batch, sequence and format on one machine with one release of one
program, in one document; its strategies differ in degrees, sharding, overlap, microbatch or recomputation. Jobs with
one strategy say nothing. Step times are those predicted through the closed loop with constants fitted without the
model's family (charllm.evaluate.predictions), and again without the source. Rows of one job and strategy are averaged.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib import resources
from statistics import fmean, median
from typing import Any, NamedTuple

from charllm.evaluate.held_out import load_rows
from charllm.evaluate.predictions import Prediction, load_predictions
from charllm.report.tables import render_table
from charllm.spec.run import RunSpec

GOOD_FRACTION, ASKED_FRACTION = 0.05, 0.8
"""A choice is good where it takes at most this much longer than the best; share of jobs that should be so."""
CHOSEN = ("micro_batch_size", "recompute", "recompute_layers", "recompute_modules")
"""Fields of a training that belong to a strategy."""
DEGREES = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp", "zero", "shard_size", "overlap")
PLACE_IN_DOCUMENT = re.compile(r" (\[|Table|Fig|line)")
REPAIRED = "after node PCIe/NUMA fix"
"""Words of rows that were measured on a repaired machine."""
WORST = 10


class Measured(NamedTuple):
    """One strategy of a job, averaged over its rows."""

    name: str
    measured_s: float
    predicted_s: float
    source_left_out_s: float


class Job(NamedTuple):
    """Strategies that others measured for one job."""

    source: str
    name: str
    strategies: tuple[Measured, ...]

    @property
    def best(self) -> Measured:
        """The strategy that was measured as the fastest."""
        return min(self.strategies, key=lambda one: one.measured_s)

    def choice(self, field: str = "predicted_s") -> Measured:
        """Return the strategy that is predicted to be the fastest."""
        return min(self.strategies, key=lambda one: float(getattr(one, field)))

    def regret_fraction(self, field: str = "predicted_s") -> float:
        """Return how much longer the chosen strategy takes than the best."""
        return self.choice(field).measured_s / self.best.measured_s - 1

    @property
    def random_fraction(self) -> float:
        """Share of strategies that would have been a good choice."""
        return fmean(one.measured_s <= (1 + GOOD_FRACTION) * self.best.measured_s for one in self.strategies)


def is_good(regret_fraction: float) -> bool:
    """Tell whether a choice is within 5 % of the best."""
    return regret_fraction <= GOOD_FRACTION


def load_jobs() -> list[Job]:
    """Group the published rows into jobs of at least two strategies."""
    published = _published()
    predictions = {one.id: one for one in load_predictions()}
    jobs: dict[tuple[str, ...], dict[str, list[Prediction]]] = defaultdict(lambda: defaultdict(list))
    names: dict[tuple[str, ...], str] = {}
    for row in load_rows():
        key = (row.source, *_job_key(row.run, published[row.id]))
        jobs[key][describe_strategy(row.run)].append(predictions[row.id])
        names[key] = f"{published[row.id]['model']} on {row.run.cluster.gpus} x {row.run.cluster.gpu.name}"
    return [
        Job(key[0], names[key], tuple(_average(name, rows) for name, rows in found.items()))
        for key, found in jobs.items()
        if len(found) > 1
    ]


def _published() -> dict[str, dict[str, str]]:
    table = resources.files("charllm.evaluate") / "data" / "published_training_results.csv"
    with table.open(encoding="utf-8") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def _job_key(run: RunSpec, row: Mapping[str, str]) -> tuple[str, ...]:
    """Return what rows of one job have in common."""
    table = run.as_table()
    parts: dict[str, Mapping[str, Any]] = {
        "model": {name: value for name, value in table["model"].items() if not name.startswith(("name", "stated"))},
        "training": {name: value for name, value in table["training"].items() if name not in CHOSEN},
        "framework": {name: value for name, value in table["framework"].items() if not name.startswith("default_")},
    }
    machine = (run.cluster.name, str(run.cluster.gpus), str(REPAIRED in row["notes"]))
    document = PLACE_IN_DOCUMENT.split(row["source"])[0]
    # What follows a comma is what a source calls the strategy.
    program = row["framework"].split(",")[0]
    return (document, program, *machine, *(repr(sorted(part.items())) for part in parts.values()))


def describe_strategy(run: RunSpec) -> str:
    """Name what a planner would choose."""
    degrees, training = run.as_table()["parallelism"], run.training
    found = [f"{name} {_shown(degrees[name])}" for name in DEGREES if degrees[name] not in (0, 1, [])]
    again = "" if training.recompute == "none" else f", recompute {training.recompute}"
    again += f" {training.recompute_layers}" if training.recompute_layers is not None else ""
    again += f" ({' '.join(training.recompute_modules)})" if training.recompute_modules else ""
    return f"{' '.join(found)}, microbatch {training.micro_batch_size}{again}"


def _shown(value: Any) -> str:
    return "+".join(value) if isinstance(value, list) else str(value)


def _average(name: str, rows: list[Prediction]) -> Measured:
    times = [fmean(getattr(row, field) for row in rows) for field in Measured._fields[1:]]
    return Measured(name, *times)


def render_sources(jobs: Iterable[Job]) -> str:
    """Return the share of good choices of each source and of all."""
    groups: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        groups[job.source].append(job)
        groups["all"].append(job)
    everything = groups.pop("all")
    columns = ["source", "jobs", "strategies", "within 5 %", "share", "source left out", "at random"]
    cells = [_cells(name, groups[name]) for name in sorted(groups)] + [_cells("all", everything)]
    return render_table("Chosen strategy within 5 % of the best measured one", columns, cells)


def _cells(name: str, jobs: list[Job]) -> list[str]:
    good = sum(is_good(job.regret_fraction()) for job in jobs)
    other = fmean(is_good(job.regret_fraction("source_left_out_s")) for job in jobs)
    chance = fmean(job.random_fraction for job in jobs)
    strategies = sum(len(job.strategies) for job in jobs)
    shares = [f"{100 * share:.0f} %" for share in (good / len(jobs), other, chance)]
    return [name, str(len(jobs)), str(strategies), str(good), *shares]


def render_regret(jobs: Iterable[Job]) -> str:
    """Return how much longer the chosen strategies take than the best ones."""
    regrets = sorted(job.regret_fraction() for job in jobs)
    exact = sum(regret == 0 for regret in regrets) / len(regrets)
    p90 = regrets[int(0.9 * len(regrets))]
    figures = f"median {100 * median(regrets):.1f} %, p90 {100 * p90:.1f} %, largest {100 * regrets[-1]:.1f} %"
    return f"Longer than the best: {figures}; the best itself in {100 * exact:.0f} % of jobs"


def render_worst(jobs: Iterable[Job]) -> str:
    """Return the jobs whose chosen strategy takes longest beside the best, with the errors that decide it."""
    failed = sorted((job for job in jobs if not is_good(job.regret_fraction())), key=lambda job: -job.regret_fraction())
    lines = [f"Worst jobs ({len(failed)} beyond 5 %):"]
    for job in failed[:WORST]:
        lines.append(f"  {job.source}, {job.name}: chosen takes {100 * job.regret_fraction():.0f} % longer")
        for word, one in (("chosen", job.choice()), ("best", job.best)):
            error = 100 * (one.predicted_s / one.measured_s - 1)
            lines.append(f"    {word:6s} {one.measured_s:8.2f} s measured, predicted {error:+.0f} %: {one.name}")
    return "\n".join(lines)


def main() -> None:
    """Print the shares, the distribution and the worst jobs."""
    jobs = load_jobs()
    print("\n\n".join([render_sources(jobs), render_regret(jobs), render_worst(jobs)]))
    share = fmean(is_good(job.regret_fraction()) for job in jobs)
    print(f"\n{100 * share:.0f} % of {len(jobs)} jobs within 5 % (asked: {100 * ASKED_FRACTION:.0f} %)")


if __name__ == "__main__":
    main()
