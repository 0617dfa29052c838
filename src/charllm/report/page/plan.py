"""The page of a plan: the best strategy under limits, why it wins, what to change, and how it was found."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.figure import Fact, Figure, Page, Section
from charllm.report.page.cases import conditions_of
from charllm.report.page.plan_flags import changes_figure, commands_figure
from charllm.report.page.plan_front import front_figure, shortlist_figure
from charllm.report.page.plan_search import counts_figure, rejected_figure, tell_counts
from charllm.report.page.plan_why import reasons_figure, seconds_figure, sensitivity_figure, tell_sensitivity
from charllm.report.page.planned import PlanView, read_plan, write_metric
from charllm.report.page.quantity import write_list, write_percent, write_value
from charllm.result.metrics import quantity

FACTS = {
    "tokens_per_s_per_gpu": "shortlist",
    "probability_best": "shortlist",
    "tokens_per_j": "front",
    "power_mean_w": "front",
    "temperature_peak_c": "front",
    "memory_peak_bytes": "front",
}
"""Metric of the best strategy: the figure that explains it."""
MOST_FACTS = 6


def plan_page(table: Mapping[str, Any]) -> Page:
    """Return the page of a plan, given as the table that `charllm plan --json` prints."""
    plan = read_plan(table)
    conditions = conditions_of(plan.strategies)
    sections: dict[str, list[Figure | None]] = {
        "Which strategy?": [front_figure(plan, conditions), shortlist_figure(plan, conditions)],
        "Why?": [reasons_figure(plan), seconds_figure(plan, conditions), sensitivity_figure(plan)],
        "What to change": [commands_figure(plan), changes_figure(plan)],
        "How it was found": [counts_figure(plan), rejected_figure(plan)],
    }
    return Page(
        title=_title(plan),
        answer=answer(plan),
        further=[f"{table['run']}."] if table.get("run") else [],
        facts=facts(plan),
        sections=[
            Section(title, [figure for figure in figures if figure is not None]) for title, figures in sections.items()
        ],
        origin="simulated",
        warnings=list(table.get("warnings") or ()),
        provenance=dict(table.get("provenance") or {}),
    )


def _title(plan: PlanView) -> str:
    entries: list[Mapping[str, Any]] = [*plan.table["best"], plan.table.get("own") or {}]
    spec: Mapping[str, Any] = next((entry["spec"] for entry in entries if entry.get("spec")), {})
    names = [str((spec.get(part) or {}).get("name") or "") for part in ("model", "cluster")]
    return f"Plan of {' on '.join(names)}" if all(names) else "Plan"


def answer(plan: PlanView) -> list[str]:
    """Say which strategy is best, how sure that is, how the user's own compares, and what limits cost."""
    if not plan.best:
        return ["No strategy keeps every limit.", *_limits(plan), *plan.table.get("warnings", ()), tell_counts(plan)]
    best = plan.best[0]
    meaning = plan.goal.get("meaning") or plan.metric
    numbers = [write_metric(best, metric) for metric in ("step_time_s", "tokens_per_s_per_gpu")]
    values = [f"{numbers[0]} a step", numbers[1]] + (
        []
        if plan.metric.startswith("tokens_per_s")
        else [f"{quantity(plan.metric).label} {write_metric(best, plan.metric)}"]
    )
    found = [
        f"Best strategy ({meaning}): {best.name}: {', '.join(values)}.",
        _certainty(plan),
        _own(plan),
        *_limits(plan),
    ]
    return [sentence for sentence in (*found, tell_sensitivity(plan), tell_counts(plan)) if sentence]


def _certainty(plan: PlanView) -> str:
    """Say how probable it is that the first is the best, and which others may be."""
    best = plan.best[0]
    sure = best.values.get("probability_best")
    if sure is None:
        return ""
    likely = [case for case in plan.best[1:] if (case.values.get("probability_best") or 0.0) >= 0.05]
    told = [f"{case.label} ({write_metric(case, 'probability_best')})" for case in likely[:3]]
    rivals = f". It may also be {'; '.join(told)}" if told else ""
    return f"It is the best with a probability of {write_metric(best, 'probability_best')}{rivals}."


def _own(plan: PlanView) -> str:
    own = plan.table.get("own")
    if not own:
        return ""
    rank = own.get("rank")
    if plan.own is None:
        place = next((at for at, entry in enumerate(plan.table["best"], 1) if entry["flags"] == own["flags"]), None)
        return (
            "Your own strategy is the best." if place == 1 else f"Your own strategy is number {place}." if place else ""
        )
    gain = plan.gain_fraction(plan.best[0], plan.own)
    number = f" (number {rank})" if rank else ""
    better = f": the best is {write_percent(gain)} better in {quantity(plan.metric).label}" if gain else ""
    return f"Your own strategy{number} is {plan.own.label.removeprefix('own: ')}{better}."


def _limits(plan: PlanView) -> Sequence[str]:
    texts = [str(limit["text"]) for limit in plan.limits]
    if not texts:
        return []
    broken = {text: count for text, count in (plan.table.get("rejected") or {}).items() if count}
    told = [f"{text} ({count})" for text, count in broken.items()]
    out = f" Simulated strategies that break one: {write_list(told)}." if told else ""
    return [f"Limits: {write_list(texts, 8)}.{out}"]


def facts(plan: PlanView) -> list[Fact]:
    """Return the best strategy in numbers, with those of the user's own beside them."""
    if not plan.best:
        return []
    names = list(FACTS) if plan.metric in (*FACTS, "tokens_per_s") else [plan.metric, *FACTS]
    found = []
    for metric in names:
        if plan.best[0].values.get(metric) is None:
            continue
        own = plan.own.values.get(metric) if plan.own else None
        note = "" if own is None else f"your own: {write_value(metric, own)}"
        link = FACTS.get(metric, "shortlist")
        found.append(Fact(quantity(metric).title, write_metric(plan.best[0], metric), note=note, link=link))
    return found[:MOST_FACTS]
