"""What is said about a simulated run beyond its figures, as tables of its result: explanations, changes, what if."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from charllm.analysis.advice import Effect, Preheating, best_changes, list_changes, simulate_changes, vary_preheating
from charllm.analysis.explain import explain_run
from charllm.result.columns import Columns, columns_of, rows_of
from charllm.result.result import RunResult
from charllm.simulate.cold import tabulate_warm_up
from charllm.simulate.predict import Simulation
from charllm.simulate.work import estimate_rounds_s
from charllm.tracking import Track, untracked

WARM_UP_S = 300.0
"""Length of a warm-up: ten times what a heat sink takes."""
LONGEST_WARM_UP_S, MOST_MOMENTS = 5.0, 60
"""A warm-up that is estimated to take longer is left out; it is simulated at so many moments, as a rule."""
NOT_FITTING = "a run that does not fit in memory has no step time (see --ignore-memory)"


def comment(found: Simulation) -> RunResult:
    """Return the result with explanations and the best changes, which are simulated when their table is read."""
    if found.timed is None:
        return found.result
    return _with(
        found.result,
        explanations=partial(_tabulate_explanations, found),
        best_changes=partial(_tabulate_best, found),
    )


def with_explanations(found: Simulation) -> RunResult:
    """Return the result with explanations alone, which need no further simulation."""
    return _with(found.result, explanations=partial(_tabulate_explanations, found))


def with_changes(found: Simulation, track: Track = untracked) -> RunResult:
    """Return the result with every single change, simulated now, or the reason why there are none."""
    if found.timed is None:
        changes, reason = _tabulate(()), NOT_FITTING
    else:
        tried = list_changes(found.step.run)
        effects = simulate_changes(found.step.run, found.result.metrics, track(iter(tried), len(tried), "changes"))
        changes, reason = _tabulate(effects), "every change is invalid or takes too long to simulate"
    reasons = columns_of(("table", "reason"), [("changes", reason)])
    return _with(found.result, changes=partial(dict, changes), reasons=partial(dict, reasons))


def ask_what_if(found: Simulation, track: Track = untracked) -> RunResult:
    """Return the result with all that its page tells: comments, and what needs further simulations, made now.

    These are changes, a warm-up, other preheating; its table `reasons` has why one of them is empty. `track` shows
    how many changes were simulated.
    """
    result = with_changes(found._replace(result=comment(found)), track)
    warm_up: Columns = {}
    preheating: Columns = {}
    reasons = [*rows_of(result.table("reasons") or {}), {"table": "warm_up", "reason": _why_no_warm_up(found)}]
    if found.simulated is not None:
        preheating = columns_of(Preheating._fields, vary_preheating(found.step.run))
        if not reasons[-1]["reason"]:
            warm_up = tabulate_warm_up(found.simulated.machine, WARM_UP_S)
    told = columns_of(("table", "reason"), [(row["table"], row["reason"]) for row in reasons])
    return _with(
        result, warm_up=partial(dict, warm_up), preheating=partial(dict, preheating), reasons=partial(dict, told)
    )


def _with(result: RunResult, **tables: Callable[[], Columns]) -> RunResult:
    return replace(result, tables={**result.tables, **tables})


def _tabulate(effects: Iterable[Effect]) -> Columns:
    return columns_of(Effect._fields, list(effects))


def _tabulate_explanations(found: Simulation) -> Columns:
    return {"text": explain_run(found)}


def _tabulate_best(found: Simulation) -> Columns:
    return _tabulate(best_changes(found.step.run, found.result.metrics["step_time_s"]))


def _why_no_warm_up(found: Simulation) -> str:
    """Say why the warm-up of a run is not simulated; nothing where it is."""
    if found.simulated is None:
        return NOT_FITTING
    conditions = found.step.run.conditions
    if conditions.steps is not None or conditions.seconds_s is not None:
        return "the run itself begins with a cold start; its metrics are means over it"
    estimate_s = estimate_rounds_s(found.simulated.machine, MOST_MOMENTS)
    if estimate_s > LONGEST_WARM_UP_S:
        return f"it would take about {estimate_s:.0f} s to simulate (charllm simulate --seconds 300)"
    return ""
