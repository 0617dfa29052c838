"""Which strategy is best under my limits? Every strategy as a point, limits as sliders; and the best in numbers."""

from dataclasses import replace
from typing import Any

from charllm.report.figure import Column, Figure
from charllm.report.page.pareto import pareto
from charllm.report.page.planned import STANDING, PlanView, varied_flags, write_metric
from charllm.report.page.quantity import metric_column
from charllm.report.page.strategies import multiples
from charllm.result.metrics import quantity, selected

SLIDERS = selected(
    "memory_peak_bytes", "power_peak_sensor_w", "temperature_peak_c", "cluster_power_peak_w", "clock_loss"
)
"""What a reader may limit beside what was limited already, as far as strategies differ in it."""
MOST_SLIDERS, MOST_ROWS = 6, 12
PANELS = selected(
    "tokens_per_s_per_gpu",
    "probability_best",
    "tokens_per_j",
    "temperature_peak_c",
    "power_peak_sensor_w",
    "memory_peak_bytes",
)
FRONT = ("front", "Which strategy is best under your limits?")


def front_figure(plan: PlanView, conditions: str) -> Figure:
    """Return every simulated strategy as a point of two metrics, with a slider for each limit."""
    name, question = FRONT
    cases = plan.strategies
    drawn = pareto(cases, varied_flags(cases))
    if drawn.missing:
        return replace(drawn, name=name, question=question)
    columns = {**drawn.columns, STANDING: Column("limits", [case.values[STANDING] for case in _drawn(plan, drawn)])}
    options: dict[str, Any] = {
        **drawn.options,
        "colour": STANDING,
        "shape": "",
        "one_front": True,
        "filters": [column for column in drawn.options["filters"] if column in varied_flags(cases)],
        "limits": _sliders(plan, drawn),
        "shown": [*drawn.options["shown"], *(["probability_best"] if _has_probability(plan) else [])],
    }
    if plan.metric in columns:
        options["best"] = plan.metric
        options["better"] = {**options["better"], plan.metric: plan.goal["better"]}
        if plan.metric not in ("tokens_per_s", options["x"], options["y"]):
            options |= {"y": plan.metric, "y_scale": "linear"}
    if _has_probability(plan):
        rows = [case.values for case in _drawn(plan, drawn)]
        columns["probability_best"] = metric_column("probability_best", rows, 2)
    return Figure(name, "scatter", question, _front_message(plan), columns, options, conditions)


def _drawn(plan: PlanView, figure: Figure) -> list[Any]:
    """Return the strategies that a figure has a row for."""
    by_label = {case.label: case for case in plan.strategies}
    return [by_label[label] for label in figure.columns["case"].values]


def _has_probability(plan: PlanView) -> bool:
    return any(case.values.get("probability_best") is not None for case in plan.best)


def _sliders(plan: PlanView, figure: Figure) -> list[dict[str, Any]]:
    """Return the limits that were asked for at their values, then others that a reader may set."""
    found = {}
    for limit in plan.limits:
        if limit["metric"] in figure.columns:
            upper = str(limit["sense"]).startswith("<")
            found[limit["metric"]] = {
                "column": limit["metric"],
                "sense": "most" if upper else "least",
                "value": quantity(limit["metric"]).shown(limit["value"]),
            }
    for metric in SLIDERS:
        values = figure.columns[metric].values if metric in figure.columns else ()
        if metric not in found and len({value for value in values if value is not None}) > 1:
            found[metric] = {"column": metric, "sense": "most"}
    return list(found.values())[:MOST_SLIDERS]


def _front_message(plan: PlanView) -> str:
    best = plan.best[0] if plan.best else None
    text = (
        f"{len(plan.strategies)} simulated strategies. Sliders leave out those beyond a limit; the front and the best "
        "one are found again among the rest. Under much tighter limits others may be better: `charllm plan --limit` "
        "searches for them."
    )
    return f"{text} The ring marks the best: {best.label} ({write_metric(best, plan.metric)})." if best else text


def shortlist_figure(plan: PlanView, conditions: str) -> Figure:
    """Return the best strategies in numbers, with the probability that each is the best."""
    question = "How do the best strategies compare?"
    shown = plan.best[:MOST_ROWS]
    cases = [*shown, *([plan.own] if plan.own else [])]
    if not cases:
        return Figure("shortlist", "multiples", question, "", missing="No strategy keeps every limit.")
    panels = PANELS if plan.metric in (*PANELS, "tokens_per_s") else (plan.metric, *PANELS)
    made = multiples(cases, panels, "shortlist", question, _shortlist_message(plan), conditions)
    return replace(made, options={**made.options, "facet": None})


def _shortlist_message(plan: PlanView) -> str:
    known = [case for case in plan.best if case.values.get("probability_best")]
    likely = sorted(known, key=lambda case: -case.values["probability_best"])
    if not likely:
        return "The best first. How probable it is that each is the best is not known for this objective."
    told = [f"{case.label} ({write_metric(case, 'probability_best')})" for case in likely[:3]]
    return (
        f"The best first. Probability that a strategy is the best, given how wrong predictions are: {'; '.join(told)}."
    )
