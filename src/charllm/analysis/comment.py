"""Comments on a simulated run, as tables of its result: explanations, best changes, what-if figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from charllm.result.columns import Columns, columns_of, rows_of
from charllm.result.result import RunResult
from charllm.simulate.predict import Simulation
from charllm.simulate.work import estimate_rounds_s
from charllm.tracking import Track, untracked

if TYPE_CHECKING:
    from charllm.analysis.advice import Effect

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
    from charllm.analysis.advice import list_changes, simulate_changes

    changes, reason = _tabulate(()), NOT_FITTING
    if found.timed is not None:
        tried = list_changes(found.step.run)
        effects = simulate_changes(found.step.run, found.result.metrics, track(iter(tried), len(tried), "changes"))
        changes, reason = _tabulate(effects), "every change is invalid or takes too long to simulate"
    return _with(found.result, changes=partial(dict, changes), reasons=partial(_tabulate_reasons, changes=reason))


def ask_what_if(found: Simulation, track: Track = untracked) -> RunResult:
    """Return the result with all tables of its page: comments, and those that need further simulations, made now.

    These are changes, a warm-up, other preheating; its table `reasons` has why one of them is empty. `track` shows
    how many changes were simulated.
    """
    from charllm.analysis.advice import Preheating, vary_preheating
    from charllm.simulate.cold import tabulate_warm_up

    result = comment(found._replace(result=with_changes(found, track)))
    (changes,) = rows_of(result.table("reasons") or {})
    warm_up: Columns = {}
    preheating: Columns = {}
    why_cold = _why_no_warm_up(found)
    if found.simulated is not None:
        preheating = columns_of(Preheating._fields, vary_preheating(found.step.run))
        warm_up = {} if why_cold else tabulate_warm_up(found.simulated.machine, WARM_UP_S)
    return _with(
        result,
        warm_up=partial(dict, warm_up),
        preheating=partial(dict, preheating),
        reasons=partial(_tabulate_reasons, changes=changes["reason"], warm_up=why_cold),
    )


def _with(result: RunResult, **tables: Callable[[], Columns]) -> RunResult:
    return replace(result, tables={**result.tables, **tables})


def _tabulate(effects: Iterable[Effect]) -> Columns:
    from charllm.analysis.advice import Effect

    return columns_of(Effect._fields, list(effects))


def _tabulate_explanations(found: Simulation) -> Columns:
    from charllm.analysis.explain import explain_run

    return {"text": explain_run(found)}


def _tabulate_best(found: Simulation) -> Columns:
    """Return the best changes; where every change was simulated already, from among these."""
    from charllm.analysis.advice import Effect, best_changes, best_effects, screen_changes

    run, tried = found.step.run, found.result.table("changes")
    if tried is None:
        return _tabulate(best_changes(run, found.result.metrics))
    shortlist = {one.change.asked for one in screen_changes(run)}
    return _tabulate(best_effects(Effect(**row) for row in rows_of(tried) if row["change"] in shortlist))


def _tabulate_reasons(**reasons: str) -> Columns:
    return columns_of(("table", "reason"), list(reasons.items()))


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
