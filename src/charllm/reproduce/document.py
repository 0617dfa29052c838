"""The findings as one page of the documentation (Markdown)."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.page.claims import HOLDS
from charllm.reproduce.conditions import INLETS_C, RANGES, USUAL_C
from charllm.reproduce.verdicts import (
    Advice,
    Judged,
    advice_table,
    air_cells,
    evidence,
    holds_when,
    interval_basis,
    number,
)

HEAD = f"""# The paper's findings, computed

What charllm says of the claims of CharLLM-PPT (MICRO'25) on its own configurations, written by
`charllm reproduce charllm-ppt --full` ([guide](guides/reproduce.md)). Nothing is fitted to any of them: power, heat and
clocks are calibrated on single kernels, on an idle and soaked board and on public traces of a node. "Throttling" is any
loss of clock, as the paper reads it from clocks; its causes are told apart where that matters. Every claim has a rule
that stood before its runs. Claims are known from the paper's abstract and summaries of it. Conditions: inlet
{USUAL_C:.0f} C, usual airflow, equal dies, 100 Gb/s a node, unless a line says otherwise.
"""


def write_document(
    judged: Sequence[Judged],
    advice: Sequence[Advice],
    readings: Sequence[Mapping[str, Any]],
    joint: Mapping[str, Any] | None,
) -> str:
    """Return all findings and recommendations as Markdown."""
    rows = [
        [f"[{one.finding.name}](#{one.finding.name})", one.finding.claim, f"**{one.verdict.verdict}**", _effect(one)]
        for one in judged
    ]
    parts = [HEAD, *_table(("finding", "claim", "verdict", "effect (80 % interval)"), rows), ""]
    drawn = max((one.drawn for one in judged), default=0)
    parts += [f"Intervals: {interval_basis(drawn)}.", "", *_uncertain(), ""] if drawn else [""]
    if joint is not None:
        parts += ["## Does one setting explain all thermal findings?", "", *_joint(joint), ""]
    for one in judged:
        parts += _describe(one)
    if readings:
        parts += ["## Where the artifact is wrong: both readings", ""]
        cells = [[entry["mistake"], entry["artifact"], entry["corrected"]] for entry in readings]
        parts += [*_table(("mistake", "as the artifact reads it", "corrected"), cells), ""]
    if advice:
        parts += ["## Recommendations", "", *_recommendations(advice), ""]
    return "\n".join(parts).rstrip() + "\n"


def _effect(judged: Judged) -> str:
    ends = judged.interval
    text = f"{number(judged.verdict.effect)} {judged.finding.unit}"
    return f"{text} ({number(ends[0])} to {number(ends[1])})" if ends else text


def _uncertain() -> list[str]:
    return _table(
        ("drawn", "between", "why"),
        [[name.removesuffix("_c"), f"{low:g} and {high:g}", source] for name, (low, high, source) in RANGES.items()],
    )


def _joint(joint: Mapping[str, Any]) -> list[str]:
    count, held = len(joint["findings"]), len(joint["holds"])
    text = (
        f"Of {joint['settings']} settings, *{joint['best_setting']}* makes most of them hold at full size: {held} of "
        f"{count} ({', '.join(joint['holds']) or 'none'})."
    )
    rest = f" It leaves out {', '.join(joint['does_not_hold'])}." if joint["does_not_hold"] else " It explains all."
    never = f" No setting makes these hold: {', '.join(joint['never'])}." if joint["never"] else ""
    as_is = f" As the machines stand: {', '.join(joint['holds_as_is']) or 'none'}."
    return [text + rest + never + as_is]


def _describe(judged: Judged) -> list[str]:
    finding = judged.finding
    lines = [f"## {finding.name}", "", f"Claim: {finding.claim} **{judged.verdict.verdict.capitalize()}**.", ""]
    lines += [f"Rule: {finding.rule}.", "", f"Evidence: {evidence(judged)}.", ""]
    if finding.note:
        lines += [finding.note, ""]
    cells = []
    for name, effect in judged.effects.items():
        ends = judged.intervals.get(name)
        seen = "not possible" if effect is None else "yes" if name in judged.verdict.supporting else "no"
        cells.append([name, number(effect), f"{number(ends[0])} to {number(ends[1])}" if ends else "", seen])
    lines += [*_table(("configuration", finding.unit, "80 % interval", "shows it"), cells), ""]
    if judged.readings:
        cells = [
            [entry["reading"], number(entry["median"]), _ends(entry["range"]), entry["verdict"] or ""]
            for entry in judged.readings
        ]
        lines += [*_table(("other reading", "median", "range", "verdict"), cells), ""]
    if finding.is_thermal:
        lines += [f"Holds at full size at: {holds_when(judged)}.", ""]
    if judged.mapped:
        lines += [f"The {finding.headline} effect by air; bold: it holds.", "", *_map(judged), ""]
    return lines


def _map(judged: Judged) -> list[str]:
    """Return the headline at every inlet, a row for each airflow and preheat."""
    cells: dict[str, list[str]] = {}
    for cell in air_cells(judged):
        row = f"airflow x {cell.setting.flow:g}, preheat x {cell.setting.preheat:g}"
        text = number(cell.effect)
        cells.setdefault(row, []).append(f"**{text}**" if cell.verdict == HOLDS else text)
    head = ("air", *(f"{inlet_c:.0f} C" for inlet_c in INLETS_C))
    return _table(head, [[row, *values] for row, values in cells.items()])


def _ends(ends: Sequence[float] | None) -> str:
    return f"{number(ends[0])} to {number(ends[1])}" if ends else ""


def _recommendations(advice: Sequence[Advice]) -> list[str]:
    cells = []
    for one in advice:
        table = advice_table(one)
        ends = f" ({_ends(one.interval)})" if one.interval else ""
        gain = f"{number(one.gain)}{ends} {one.recommendation.unit}"
        cells.append([one.recommendation.claim, one.recommendation.counterfactual, gain, table["reverses_when"],
                      one.recommendation.cost])  # fmt: skip
    return _table(("advice", "judged by", "median gain (80 % interval)", "no gain", "cost not counted"), cells)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [" | ".join(cells) for cells in (head, ["---"] * len(head), *rows)]
    return [f"| {line} |" for line in lines]
