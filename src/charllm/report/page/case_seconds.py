"""Where does the time of every case go?"""

from collections.abc import Sequence

from charllm.report.figure import Column, Figure
from charllm.report.page.bars import bar_options
from charllm.report.page.cases import StudiedCase, full_label, groups, ranked, select, title
from charllm.report.page.quantity import write_list, write_number
from charllm.result.metrics import LABEL_WORDS, LABELS
from charllm.units import PERCENT, format_percent

MOST_APART = 5.0
"""Ratio of the longest to the shortest step above which bars are shares: short ones could not be read otherwise."""


def parts_s(case: StudiedCase) -> dict[str, float]:
    """Return the seconds of each part of a step; empty where they are not known."""
    found = {label: case.values.get(f"breakdown_s.{label}") for label in LABELS}
    return {label: seconds for label, seconds in found.items() if seconds is not None}


def case_seconds(cases: Sequence[StudiedCase], conditions: str = "") -> Figure:
    """Return the step of every case, grouped by model; as shares where some are many times longer than others."""
    question = "Where does the time of each case go?"
    known = [case for case in cases if parts_s(case) and case.values.get("step_time_s")]
    if not known:
        missing = "No case has a breakdown of its step; a measured run has one only where a trace was taken."
        return Figure("breakdown", "stacked-bars", question, "", missing=missing)
    shown, left_out = select(known)
    alone = len(groups(shown)) == 1
    rows = [
        (case, label, seconds)
        for group in groups(shown).values()
        for case in group
        for label, seconds in parts_s(case).items()
        if seconds > 0
    ]
    as_shares = _apart(shown) > MOST_APART
    columns = {
        "group": Column("model", [case.group for case, _, _ in rows]),
        "bar": Column("case", [_bar(case, alone, as_shares) for case, _, _ in rows]),
        "part": Column("part", [label for _, label, _ in rows]),
        "share": Column("share of the step", [share(case, seconds) for case, _, seconds in rows], "%"),
        "seconds": Column("time", [seconds for _, _, seconds in rows], "s"),
    }
    value, unit = ("share", "%") if as_shares else ("seconds", "s")
    options = bar_options(LABEL_WORDS, value, unit, "part", total=not as_shares, group="group")
    shares = "Bars are shares of a step, so that fast and slow cases can be read side by side. " if as_shares else ""
    message = f"{left_out}{shares}{_message(known)}".strip()
    return Figure("breakdown", "stacked-bars", question, message, columns, options, conditions)


def share(case: StudiedCase, seconds: float) -> float:
    """Return seconds of a step in per cent of it."""
    return float(seconds / case.values["step_time_s"] / PERCENT)


def _apart(cases: Sequence[StudiedCase]) -> float:
    """Return how many times the longest step takes the time of the shortest."""
    steps_s = [case.values["step_time_s"] for case in cases]
    return float(max(steps_s) / min(steps_s))


def _bar(case: StudiedCase, alone: bool, as_shares: bool) -> str:
    name = full_label(case, alone)
    return f"{name}, {write_number(case.values['step_time_s'])} s" if as_shares else name


def largest_part(case: StudiedCase, among: Sequence[str] = LABELS) -> tuple[str, float] | None:
    """Return the largest part of a step, and its share of it."""
    parts = {label: seconds for label, seconds in parts_s(case).items() if label in among}
    step_s = case.values.get("step_time_s")
    if not parts or not step_s:
        return None
    label = max(parts, key=lambda label: parts[label])
    return label, parts[label] / step_s


def _message(cases: Sequence[StudiedCase]) -> str:
    """Say what the slowest case of each model loses its time to."""
    found = []
    for listed in groups(cases).values():
        order = ranked(listed)
        lost = largest_part(order[-1], [label for label in LABELS if label != "compute"]) if order else None
        if lost is not None and len(order) > 1:
            found.append(f"{title(order[-1])} ({LABEL_WORDS[lost[0]]}, {format_percent(lost[1], 0)} of its step)")
    return f"Largest losses of the slowest cases: {write_list(found, 6)}." if found else ""
