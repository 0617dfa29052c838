"""Why does the best strategy win, and would it still win on another machine?"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from charllm.report.figure import Column, Figure
from charllm.report.page.case_seconds import case_seconds
from charllm.report.page.planned import PlanView

MOST_BARS = 5
NOT_TRIED = "No change of the machine was simulated: `charllm plan --sensitivity` does, and a box in the explorer."


def reasons_figure(plan: PlanView) -> Figure:
    """Return the sentences that explain the winner."""
    question = "Why does it win?"
    best: Sequence[Any] = plan.table["best"]
    why = list(best[0].get("why") or plan.table.get("why") or ()) if best else []
    if not why:
        return Figure("reasons", "table", question, "", missing="The plan says no reasons.")
    message = "Against the runner-up" + (", then against your own strategy." if plan.own else ".")
    return Figure("reasons", "table", question, message, {"reason": Column("reason", why)})


def seconds_figure(plan: PlanView, conditions: str) -> Figure:
    """Return where the time of the best strategies goes, and that of the user's own."""
    own = [plan.own] if plan.own else []
    made = case_seconds([*plan.best[:MOST_BARS], *own], conditions)
    message = "The step time of the best strategies by label; what differs is what decides."
    return replace(made, question="Where does the step time differ?", message=message if not made.missing else "")


def sensitivity_figure(plan: PlanView) -> Figure:
    """Return by how much the winner leads when the machine is another."""
    question = "Would it still win on another machine?"
    rows: Sequence[dict[str, Any]] = plan.table.get("sensitivity") or ()
    if not rows:
        return Figure("sensitivity", "tornado", question, "", missing=NOT_TRIED)
    names = [case.label for case in plan.best]
    columns = {
        "change": Column("change", [str(row["change"]) for row in rows]),
        "lead": Column("lead of the winner over the best of the others", [row["lead_fraction"] for row in rows], "", 3),
        "winner": Column("best then", [_winner(row, names) for row in rows]),
        "note": Column("note", [str(row.get("reason") or "") for row in rows]),
    }
    options = {"change": "change", "effect": "lead", "note": "note", "unit": "%"}
    return Figure("sensitivity", "tornado", question, tell_sensitivity(plan), columns, options)


def _winner(row: dict[str, Any], names: Sequence[str]) -> str | None:
    place = row["winner"]
    return None if place is None or place >= len(names) else names[place]


def tell_sensitivity(plan: PlanView) -> str:
    """Say under which changes of the machine the winner stays the best; nothing where none was simulated."""
    told = [row for row in plan.table.get("sensitivity") or () if row["winner"] is not None]
    lost = [row for row in told if row["winner"] != 0]
    if not told:
        return ""
    if not lost:
        return f"It stays the best under all {len(told)} changes of the machine that were simulated."
    names = ", ".join(f"{row['change']} ({-100 * (row['lead_fraction'] or 0):.1f} % behind)" for row in lost)
    return f"It stays the best under {len(told) - len(lost)} of {len(told)} changes of the machine; not with {names}."
