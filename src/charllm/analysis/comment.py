"""What is said about a simulated run beyond its figures: explanations, and the single changes that gain most."""

from dataclasses import replace
from functools import partial

from charllm.analysis.advice import Effect, best_changes
from charllm.analysis.explain import explain_run
from charllm.result.columns import Columns, columns_of
from charllm.result.result import RunResult
from charllm.simulate.predict import Simulation


def comment(found: Simulation) -> RunResult:
    """Return the result of a simulation with its comments as tables; changes are simulated when theirs is read."""
    if found.timed is None:
        return found.result
    tables = {
        "explanations": partial(_tabulate_explanations, found),
        "best_changes": partial(_tabulate_best_changes, found),
    }
    return replace(found.result, tables={**found.result.tables, **tables})


def _tabulate_explanations(found: Simulation) -> Columns:
    return {"text": explain_run(found)}


def _tabulate_best_changes(found: Simulation) -> Columns:
    return columns_of(Effect._fields, best_changes(found.step.run, found.result.metrics["step_time_s"]))
