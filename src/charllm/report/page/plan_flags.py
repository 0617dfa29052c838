"""What do I type, and what do I change in my own script?"""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.figure import Column, Figure
from charllm.report.page.planned import PlanView

NOT_SET = "not set"
OWN_NAME = "charllm"


def commands_figure(plan: PlanView) -> Figure:
    """Return what runs the best strategy, to be copied: for charllm, and the settings of the user's own program."""
    question = "Which command do I run?"
    if not plan.best:
        return Figure("commands", "commands", question, "", missing="No strategy keeps every limit.")
    texts = {"Simulate the best strategy": plan.best[0].command}
    for program, changes in _by_program(plan).items():
        if program != OWN_NAME and (new := _after(changes)):
            texts[f"Settings to change for {program}"] = new
    columns = {"label": Column("for", list(texts)), "text": Column("text", list(texts.values()))}
    message = "The first line simulates the best strategy alone, with all other settings unchanged."
    return Figure("commands", "commands", question, message, columns, {"label": "label", "text": "text"})


def _by_program(plan: PlanView) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for change in plan.table["best"][0].get("diff") or () if plan.best else ():
        found.setdefault(str(change["program"]), []).append(change)
    return found


def _after(changes: Sequence[Mapping[str, Any]]) -> str:
    """Write the settings of a program as they are to be; those that go away are left to the table of changes."""
    written = [(str(change["flag"]), str(change["after"])) for change in changes if change["after"] is not None]
    if all(flag.startswith("--") for flag, _ in written):
        return " ".join(f"{flag} {value}".rstrip() for flag, value in written)
    return "\n".join(f"{flag} = {value}" for flag, value in written)


def changes_figure(plan: PlanView) -> Figure | None:
    """Return the settings in which the best strategy differs from the user's own; None where there is no own one."""
    if plan.own is None or not plan.best:
        return None
    question = "What differs from your own strategy?"
    rows = [change for changes in _by_program(plan).values() for change in changes]
    if not rows:
        return Figure("diff", "table", question, "", missing="Nothing: your own strategy is the best.")
    columns = {
        "program": Column("program", [str(row["program"]) for row in rows]),
        "flag": Column("flag", [str(row["flag"]) for row in rows]),
        "before": Column("your own", [_side(row["before"]) for row in rows]),
        "after": Column("best", [_side(row["after"]) for row in rows]),
    }
    programs = len(set(columns["program"].values))
    options = {"filters": ["program"]} if programs > 1 else {}
    message = f"{len(rows)} settings differ from {plan.own.label.removeprefix('own: ')}."
    return Figure("diff", "table", question, message, columns, options)


def _side(value: Any) -> str:
    return NOT_SET if value is None else str(value) or "set"
