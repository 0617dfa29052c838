"""Which case is best for what matters to me? Every case as a point of any two metrics, with its settings."""

from collections.abc import Sequence
from typing import Any

from charllm.report.figure import Column, Figure
from charllm.report.page.cases import StudiedCase, full_label, groups, rank_metric
from charllm.report.page.quantity import is_number, metric_column, write_list
from charllm.report.page.strategies import interval_columns
from charllm.result.metrics import DECLARED, flat_names, quantity, selected

HOVERED = selected("step_time_s", "mfu", "power_mean_w", "temperature_peak_c", "clock_loss", "memory_peak_bytes")
"""What a point shows beside its two metrics before it is selected."""
LOG_FROM = 20.0
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""
MOST_FILTERS = 12
MOST_CHOICES = 40
"""Values of a setting up to which a filter lists them."""


def pareto(cases: Sequence[StudiedCase], swept: Sequence[str], conditions: str = "") -> Figure:
    """Return all cases that ran as points, with filters by everything that the study varies."""
    question = "Which case is best for what matters to you?"
    ran = [case for case in cases if case.ran]
    x, y = rank_metric(ran), "tokens_per_j"
    if not any(case.values.get(y) is not None for case in ran):
        y = "power_mean_w"
    points = [case for case in ran if case.values.get(x) is not None and case.values.get(y) is not None]
    if not points:
        return Figure("pareto", "scatter", question, "", missing="No case has both a step time and a power.")
    front, alone = pareto_front(points, (x, y)), len(groups(points)) == 1
    settings = _filters(points, swept)
    metrics = [name for name in flat_names(DECLARED) if any(_counts(name, case.values.get(name)) for case in points)]
    columns = {
        "case": Column("case", [full_label(case, alone) for case in points]),
        "group": Column("model", families(points)),
        "origin": Column("origin", [case.origin for case in points]),
        **{name: _setting(points, name, label) for name, label in settings.items()},
        **{name: metric_column(name, (case.values for case in points)) for name in metrics},
        **interval_columns(points, (x, y)),
        "front": Column("on the Pareto front", front),
        "details": Column("settings", details(points)),
    }
    options: dict[str, Any] = {
        "x": x,
        "y": y,
        "x_scale": _scale(columns[x].values),
        "y_scale": _scale(columns[y].values),
        "choices": metrics,
        "better": {name: quantity(name).better for name in metrics if quantity(name).better},
        "colour": "group",
        "shape": "origin",
        "name": "case",
        "filters": ["group", "origin", *settings] if len({*columns["origin"].values}) > 1 else ["group", *settings],
        "front": "front",
        "shown": list(HOVERED),
        "details": "details",
    }
    for name, low, high in ((x, "x_low", "x_high"), (y, "low", "high")):
        if f"{name}.low" in columns:
            options |= {low: f"{name}.low", high: f"{name}.high"}
    return Figure("pareto", "scatter", question, _message(points, front, (x, y)), columns, options, conditions)


def pareto_front(cases: Sequence[StudiedCase], metrics: tuple[str, str]) -> list[bool]:
    """Tell for each case whether no other of its group is at least as good in both metrics and better in one."""
    found = [False] * len(cases)
    by_group: dict[str, list[int]] = {}
    for at, name in enumerate(families(cases)):
        by_group.setdefault(name, []).append(at)
    signs = [1.0 if quantity(name).better == "higher" else -1.0 for name in metrics]
    for places in by_group.values():
        scores = {
            at: [sign * cases[at].values[name] for sign, name in zip(signs, metrics, strict=True)] for at in places
        }
        best = float("-inf")
        # From the best in one metric down, a case is on the front when it beats all before it in the other.
        for at in sorted(places, key=lambda at: scores[at], reverse=True):
            if scores[at][1] > best:
                best = scores[at][1]
                found[at] = True
    return found


def families(cases: Sequence[StudiedCase]) -> list[str]:
    """Return for each case those that it competes with: of its model and, where origins are mixed, of its origin."""
    mixed = len({case.origin for case in cases}) > 1
    return [f"{case.group}, {case.origin}" if mixed else case.group for case in cases]


def details(cases: Sequence[StudiedCase]) -> list[dict[str, str]]:
    """Return for each case the settings that are not the same in all, and the command that runs it alone."""
    names = dict.fromkeys(name for case in cases for name in case.settings)
    varied = [name for name in names if len({str(case.settings.get(name)) for case in cases}) > 1] or list(names)
    return [
        {name: str(case.settings[name]) for name in varied if name in case.settings}
        | ({"command": case.command} if case.command else {})
        for case in cases
    ]


def _counts(name: str, value: Any) -> bool:
    """Tell whether a metric may stand on an axis; an entry of a table that is 0 says nothing."""
    return is_number(value) and DECLARED[name.partition(".")[0]].is_number and ("." not in name or value != 0)


def _filters(cases: Sequence[StudiedCase], swept: Sequence[str]) -> dict[str, str]:
    """Return the settings that tell cases apart, with their headings; labels of single cases are names, not filters."""
    found: dict[str, str] = {}
    for name in swept:
        values = {str(case.values.get(name)) for case in cases}
        numbers = all(is_number(case.values.get(name)) for case in cases)
        few = numbers or len(values) <= MOST_CHOICES
        if name not in ("model", "group") and len(values) > 1 and few and (numbers or len(values) < len(cases)):
            found[name] = _heading(name, swept)
    return dict(list(found.items())[:MOST_FILTERS])


def _setting(points: Sequence[StudiedCase], name: str, label: str) -> Column:
    """Return a setting of the cases; one with a unit in its name says it as metrics do."""
    shown = quantity(label.replace(" ", "_"))
    values = [case.values.get(name) for case in points]
    return (
        Column(shown.label, [shown.shown(value) for value in values], shown.unit)
        if shown.unit
        else Column(label, values)
    )


def _heading(name: str, names: Sequence[str]) -> str:
    """Return the last part of a field's name where no other field ends in it."""
    last = name.rpartition(".")[2]
    return last.replace("_", " ") if [other.rpartition(".")[2] for other in names].count(last) == 1 else name


def _scale(values: Sequence[Any]) -> str:
    known = [value for value in values if value is not None]
    return "log" if known and min(known) > 0 and max(known) / min(known) > LOG_FROM else "linear"


def _message(cases: Sequence[StudiedCase], front: Sequence[bool], metrics: tuple[str, str]) -> str:
    """Say which cases of each model cannot be beaten in both metrics."""
    best: dict[str, list[str]] = {}
    for case, name, on_front in zip(cases, families(cases), front, strict=True):
        if on_front:
            best.setdefault(name, []).append(case.label)
    listed = [f"{group}: {write_list(names, 4)}" for group, names in best.items()]
    x, y = (quantity(name).label for name in metrics)
    more = f"; and so on for {len(listed) - 6} more models" if len(listed) > 6 else ""
    return (
        f"No other case of the same model is better in both {x} and {y} than those on its Pareto front. "
        f"{'; '.join(listed[:6])}{more}."
    )
