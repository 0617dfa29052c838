"""What a plan finds: candidates, each a run with its metrics; how many strategies were considered; its JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from charllm.catalog.command import write_command
from charllm.plan.alternatives import Alternative, twin_fraction
from charllm.plan.candidate import Candidate
from charllm.plan.flag_diff import diff_flags, flag_words
from charllm.plan.limits import Limit
from charllm.plan.objectives import Objective
from charllm.plan.sensitivity import Sensitivity
from charllm.plan.strategy import name_strategy
from charllm.result.description import describe_batch, describe_job


class Counts(NamedTuple):
    """How many strategies were considered: those ruled out by memory or bound and those evaluated are all visited."""

    visited: int
    """Valid strategies of the space."""
    pruned_invalid: int
    """Invalid combinations of degrees; their variants are not counted."""
    pruned_memory: int
    """Strategies that may not fit in memory, or need more of it than a limit allows."""
    pruned_bound: int
    """Strategies whose bound shows that they are not among the best."""
    priced: int
    """Strategies that were evaluated: step time and power computed on the fast path."""
    simulated: int
    """Evaluated strategies that were simulated in full."""
    refused: int = 0
    """Evaluated strategies, good enough to be simulated, that the program of the software profile would not run."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan:
    """The outcome of a search."""

    objective: Objective
    limits: tuple[Limit, ...] = ()
    counts: Counts
    elapsed_s: float
    best: Sequence[Candidate]
    """Simulated candidates that keep every limit, best first, as many as were asked for."""
    alternatives: Sequence[Alternative] = ()
    """The best strategy with its like, and others that really differ from it."""
    pareto: Sequence[Candidate] = ()
    """Pareto front in throughput, energy, temperature and peak power, of all candidates that keep the limits."""
    others: Sequence[Candidate] = ()
    """Simulated candidates that break a limit."""
    own: Candidate | None = None
    """The user's own strategy, where the request describes one."""
    own_rank: int | None = None
    """Rank of the user's own strategy among the best; None if it may not fit or breaks a limit."""
    why: Sequence[str] = ()
    """Reasons why the winner is the best, one sentence each."""
    probability_best: Sequence[float] | None = None
    """For each of `best`, the probability that it is the best under parameter uncertainty; None: not known."""
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Number of simulated candidates that break each limit."""
    sensitivity: Sequence[Sensitivity] = ()
    defaulted: Sequence[str] = ()
    """Fields of the batch that the request left to their defaults."""
    prices: str = ""
    """What figures of money rest on, in words."""
    warnings: Sequence[str] = ()

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Metrics of the winner."""
        return self.best[0].metrics if self.best else {}

    def __repr__(self) -> str:
        first = name_strategy(self.best[0].run) if self.best else "none"
        return f"Plan({self.objective.name}: {first}; {self.counts.visited:,} strategies considered)"

    def _repr_html_(self) -> str:
        from charllm.report.notebook import write_html
        from charllm.report.plan import render_plan

        best = self.best[0].run
        return write_html(lambda: render_plan(self.as_table(), write_command(best) or name_strategy(best)))

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(self.as_table(), indent=2, allow_nan=False)

    def to_frame(self) -> Any:
        """Return a pandas table with a row for each of the best strategies: its name, its flags and its metrics."""
        import pandas

        rows = [
            {"strategy": name_strategy(one.run), "flags": flag_words(one.run)}
            | {name: value for name, value in one.metrics.items() if isinstance(value, int | float)}
            for one in self.best
        ]
        return pandas.DataFrame(rows)

    def as_table(self) -> dict[str, Any]:
        """Return the plan as plain tables."""
        counts = self.counts
        probabilities: Sequence[float | None] = self.probability_best or [None] * len(self.best)
        best = [self._described(one, odds) for one, odds in zip(self.best, probabilities, strict=True)]
        for place, one in enumerate(best):
            one["why"] = list(self.why) if place == 0 else []
        run = self.best[0].run if self.best else None
        return {
            "run": describe_job(run) + f"; {describe_batch(run, self.defaulted)}" if run else "",
            "objective": self.objective.name,
            "prices": self.prices,
            "twin_fraction": twin_fraction(),
            "goal": self.objective._asdict(),
            "limits": [limit.text for limit in self.limits],
            "bounds": [limit._asdict() for limit in self.limits],
            "evaluated": counts.visited,
            "feasible": counts.visited - counts.pruned_memory,
            "elapsed_s": self.elapsed_s,
            "counts": counts._asdict(),
            "best": best,
            "alternatives": [self._alternative(row) for row in self.alternatives],
            "pareto": [self._described(one, None) for one in self.pareto],
            "others": [self._described(one, None) for one in self.others],
            "own": {**self._described(self.own, None), "rank": self.own_rank} if self.own else None,
            "rejected": dict(self.rejected),
            "sensitivity": [{**one._asdict(), "stays": one.stays} for one in self.sensitivity],
            "warnings": list(self.warnings),
        }

    def _alternative(self, row: Alternative) -> dict[str, Any]:
        kept = {name: value for name, value in row._asdict().items() if name != "one"}
        command = write_command(row.one.run)
        return {**self._described(row.one, row.probability), **kept, "command": command, "traits": dict(row.traits)}

    def _described(self, one: Candidate, odds: float | None) -> dict[str, Any]:
        changes = diff_flags(self.own.run, one.run) if self.own and one is not self.own else []
        return {
            "strategy": name_strategy(one.run),
            "spec": one.run.as_table(),
            "metrics": dict(one.metrics),
            "flags": flag_words(one.run),
            "probability_best": odds,
            "diff": [change._asdict() for change in changes],
        }
