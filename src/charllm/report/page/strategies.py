"""Which strategy? Small multiples by model, a row for each case, rejected ones with their reason."""

from collections.abc import Sequence
from typing import Any

from charllm.report.figure import Column, Figure
from charllm.report.page.cases import (
    DIGITS,
    RANKS,
    StudiedCase,
    case_columns,
    groups,
    rank_metric,
    ranked,
    select,
)
from charllm.report.page.quantity import metric_column, write_slower
from charllm.result.metrics import quantity, selected
from charllm.units import GIB

PANELS = selected("tokens_per_s_per_gpu", "tokens_per_j", "temperature_peak_c", "clock_loss")
"""Those of the paper's figure 4."""
RANKED = selected(*RANKS, "tokens_per_j", "joules_per_token")
"""Metrics whose best case stands out; the coolest case of a study is often one that waits most."""
WHISKERS = {True: "90 % interval of a prediction", False: "95 % interval of a measured mean"}
"""What whiskers show of a case that is simulated, and of one that is not."""
LONGEST_NOTE = 90
MOST_GROUPS = 8


def strategies(cases: Sequence[StudiedCase], conditions: str = "") -> Figure:
    """Return every case of every model beside the others of its model: speed, efficiency, heat and throttling."""
    first = rank_metric([case for case in cases if not case.is_prediction])
    panels = (first, *PANELS[1:]) if first not in PANELS else PANELS
    return multiples(
        cases, panels, "strategies", "Which strategy is fastest, and what does it cost?", _message(cases), conditions
    )


def multiples(
    cases: Sequence[StudiedCase], names: Sequence[str], name: str, question: str, message: str, conditions: str
) -> Figure:
    """Return small multiples of any metrics: a facet for each group, a row for each case."""
    shown, left_out = select(cases)
    panels = [panel for panel in names if any(case.values.get(panel) is not None for case in shown)]
    if not panels:
        return Figure(name, "multiples", question, message, missing="No case has a value for any of these metrics.")
    columns = {
        **case_columns(shown),
        **{panel: metric_column(panel, (case.values for case in shown), DIGITS) for panel in panels},
        **interval_columns(shown, panels),
        "note": Column("why it has no result", [_note(case) for case in shown]),
    }
    options: dict[str, Any] = {
        "facet": "group",
        "row": "case",
        "panels": [_panel(panel, columns) for panel in panels],
        "note": "note",
    }
    if "origin" in columns:
        options["shape"] = "origin"
    told = [case for case in shown if any(case.values.get(f"{one}.interval") for one in panels)]
    kinds = {case.origin == "simulated" for case in told}
    ends = " and ".join(text for is_simulated, text in WHISKERS.items() if is_simulated in kinds)
    whiskers = f"whiskers: {ends}" if ends else ""
    return Figure(name, "multiples", question, left_out + message, columns, options, _join(conditions, whiskers))


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _panel(name: str, columns: dict[str, Column]) -> dict[str, Any]:
    shown = quantity(name)
    panel: dict[str, Any] = {"column": name, "label": shown.brief, "unit": shown.unit}
    if name in RANKED:
        panel["lower_is_better"] = shown.better == "lower"
    if f"{name}.low" in columns:
        panel |= {"low": f"{name}.low", "high": f"{name}.high"}
    return panel


def interval_columns(cases: Sequence[StudiedCase], names: Sequence[str]) -> dict[str, Column]:
    """Return the 95 % intervals of the metrics that have any."""
    columns = {}
    for name in names:
        shown = quantity(name)
        bounds = [case.values.get(f"{name}.interval") or (None, None) for case in cases]
        if any(low is not None for low, _ in bounds):
            columns[f"{name}.low"] = Column(f"{shown.label}, low", [shown.shown(low) for low, _ in bounds], shown.unit)
            columns[f"{name}.high"] = Column(
                f"{shown.label}, high", [shown.shown(high) for _, high in bounds], shown.unit
            )
    return columns


def _note(case: StudiedCase) -> str:
    if case.ran:
        return ""
    if not case.verdict:
        return "no step was found"
    needs_bytes, has_bytes = case.values.get("memory_need_bytes"), case.machine.get("memory_bytes")
    if case.values.get("fits") is False and needs_bytes and has_bytes:
        return f"{case.verdict}: {needs_bytes / GIB:.0f} of {has_bytes / GIB:.0f} GiB"
    return f"{case.verdict}: {shorten(case.message.removeprefix('memory: '))}" if case.message else case.verdict


def shorten(text: str, longest: int = LONGEST_NOTE) -> str:
    """Return a text that fits beside a row; the whole of it stands in the table of rejected cases."""
    return text if len(text) <= longest else f"{text[: longest - 3].rstrip()}..."


def _message(cases: Sequence[StudiedCase]) -> str:
    """Say which case of each model is fastest, and how far it is ahead of the last."""
    found = []
    ours = [case for case in cases if not case.is_prediction]
    metric = rank_metric(ours)
    for group, listed in groups(ours).items():
        order = ranked(listed)
        if not order:
            found.append(f"{group}: no case has a result")
        elif len(order) == 1:
            found.append(f"{group}: {order[0].label} alone has a result")
        else:
            best, worst = order[0].values[metric], order[-1].values[metric]
            ratio = max(best, worst) / min(best, worst) if best and worst else 1.0
            found.append(f"{group}: {order[0].label} is fastest, {order[-1].label} is {write_slower(ratio)}")
    more = f"; {len(found) - MOST_GROUPS} more" if len(found) > MOST_GROUPS else ""
    return f"{'; '.join(found[:MOST_GROUPS])}{more}."
