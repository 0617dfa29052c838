"""The findings as one page of the documentation (Markdown)."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.claims import HOLDS
from charllm.reproduce.conditions import USUAL_C
from charllm.reproduce.draws import ranges
from charllm.reproduce.maps import map_of
from charllm.reproduce.nic import nic_words
from charllm.reproduce.page import seen
from charllm.reproduce.verdicts import Advice, Judged
from charllm.reproduce.words import (
    LEVEL_WORDS,
    NOT_DRAWN,
    NOT_MAPPED,
    accuracy,
    accuracy_words,
    ends,
    evidence,
    gain_words,
    holds_when,
    interval_basis,
    number,
    reach,
    reason,
    reverses_when,
    with_ends,
)

HEAD = """# The paper's findings, computed

Verdicts of charllm on the claims of CharLLM-PPT (MICRO'25), for the paper's own configurations. This page is written by
`charllm reproduce charllm-ppt --full` ([guide](guides/reproduce.md)).
"""
METHOD = f"""## How to read this page

- **Effect**: a number for each configuration, positive where the claim is seen. The table shows one number for all of
  them: the median, or the largest where the claim says "up to" or "can". Effects are stated at nominal conditions:
  inlet {USUAL_C:.0f} C, nominal airflow, identical GPUs, 100 Gb/s per node, thermal steady state.
- **Verdict**: *holds*, *fails* or *undecided at this accuracy*, by a rule that was set before any run and is printed
  with the finding. A configuration shows a claim, or excludes it, only where its effect exceeds the model's error of
  such a difference ([accuracy](accuracy.md#intervals-of-differences)); a claim holds if enough of them show it: all
  ("always"), more than half (in general), or one ("can", "up to"). No constant is fitted to a finding. Power,
  temperature and clocks are calibrated on single kernels, on an idle and a loaded board, and on public traces of a
  node.
- **Throttling** is any loss of mean clock over the step, as in the paper; the loss during GEMMs is another reading, and
  causes are separated where it matters.
- **Claims**: first the sentences of the paper's abstract, as written; then those of summaries of the paper."""


def write_document(
    judged: Sequence[Judged],
    advice: Sequence[Advice],
    readings: Sequence[Mapping[str, Any]],
    joint: Mapping[str, Any] | None,
    nic: Mapping[str, Any] | None = None,
) -> str:
    """Return all findings and recommendations as Markdown."""
    rows = [
        [
            f"[{one.finding.name}](#{one.finding.name})",
            one.finding.claim.text,
            f"**{one.verdict.verdict}**",
            with_ends(one.verdict.effect, one.interval, one.finding.unit, one.verdict.ends),
            accuracy(one),
            one.finding.claim.answer,
            reason(one),
        ]
        for one in judged
    ]
    parts = [
        HEAD,
        *_table(
            (
                "finding",
                "claim",
                "verdict",
                f"effect ({LEVEL_WORDS})",
                "model's error",
                "measured or published",
                "reason",
            ),
            rows,
        ),
        "",
        METHOD,
    ]
    parts += [*_uncertainty(max((one.drawn for one in judged), default=0)), ""]
    if joint is not None:
        parts += ["## Does one setting explain all thermal findings?", "", _joint(joint), ""]
    if nic is not None:
        parts += ["## Which network did the paper's clusters have?", "", *_nic(nic, judged), ""]
    for one in judged:
        parts += _describe(one)
    if readings:
        parts += [
            "## Errors of the artifact",
            "",
            "Both readings of the runs: with the artifact's error, and corrected.",
            "",
        ]
        cells = [[entry["mistake"], entry["artifact"], entry["corrected"]] for entry in readings]
        parts += [*_table(("error", "as the artifact reads it", "corrected"), cells), ""]
    if advice:
        parts += ["## Recommendations", "", *_recommendations(advice), ""]
    return "\n".join(parts).rstrip() + "\n"


def _uncertainty(drawn: int) -> list[str]:
    if not drawn:
        return [f"- **Interval**: {NOT_DRAWN}."]
    text = (
        f"- **Interval**: {interval_basis(drawn)}. An effect that equals an end of its interval therefore means that "
        "most draws lie on one side of nominal conditions, for example because nominal GPUs are identical."
    )
    cells = [[one.label, f"{one.low:.3g} to {one.high:.3g}", one.source] for one in ranges().values()]
    return [text, "", *_table(("drawn evenly", "range", "source"), cells)]


def _nic(nic: Mapping[str, Any], judged: Sequence[Judged]) -> list[str]:
    """Return the range of bandwidths, what it rests on, and the verdicts that depend on it."""
    text = (
        f'"100 Gb/s" may be of a node or of each of its eight adapters. Bounds of times in the artifact leave '
        f"{nic['low_gbit_per_s']:g} to {nic['high_gbit_per_s']:g} Gb/s a node within the error of the predictions, and "
        f"are met from {nic['likely_from_gbit_per_s']:g} on. Effects are stated at 100."
    )
    cells = [
        [one["run"], f"{one['longest_s']:g} s: {one['source']}",
         ", ".join(f"x {factor}: {step_s:.0f} s" for factor, step_s in one["step_time_s"].items())]
        for one in nic["bounds"]
    ]  # fmt: skip
    told = [[one.finding.name, words] for one in judged if (words := nic_words(one, nic))]
    tables = [*_table(("run", "bound", "predicted step at a bandwidth"), cells), ""]
    return [text, "", *tables, *(_table(("finding", "verdict at other bandwidths"), told) if told else [NOT_MAPPED])]


def _joint(joint: Mapping[str, Any]) -> str:
    if joint["explains_all"]:
        return f"Yes: all {len(joint['findings'])} thermal findings hold at *{joint['best_setting']}*."
    never = f" None of the settings makes these hold: {', '.join(joint['never'])}." if joint["never"] else ""
    return (
        f"No. Of {joint['settings']} settings, *{joint['best_setting']}* explains most: {len(joint['holds'])} of "
        f"{len(joint['findings'])} thermal findings hold ({', '.join(joint['holds']) or 'none'}), and "
        f"{', '.join(joint['does_not_hold'])} do not. At nominal conditions these hold: "
        f"{', '.join(joint['holds_as_is']) or 'none'}.{never}"
    )


def _describe(judged: Judged) -> list[str]:
    finding = judged.finding
    lines = [f"## {finding.name}", "", f"**{judged.verdict.verdict.capitalize()}**: {finding.claim.text}", ""]
    if finding.claim.is_thermal and judged.mapped:
        lines += [f"From which inlet and airflow on: {holds_when(judged)}.", ""]
    lines += [f"Rule: {finding.claim.rule}. Effect: {finding.unit}.", "", f"Evidence: {evidence(judged)}.", ""]
    if finding.claim.note:
        lines += [finding.claim.note, ""]
    cells = []
    for name, effect in judged.effects.items():
        told = "not possible" if effect is None else seen(judged, name)
        interval = judged.intervals.get(name)
        around = finding.claim.around(effect) if effect is not None and finding.claim.accuracy else None
        error = reach(around or interval)
        cells.append([name, number(effect, error), ends(around, error), ends(interval, error), told])
    lines += [*_table(("configuration", "effect", "with its error", LEVEL_WORDS, "verdict"), cells), ""]
    if judged.readings:
        error = reach(judged.verdict.ends or judged.interval)
        cells = [
            [
                entry["reading"],
                number(entry["median"], error),
                ends(entry["range"], error),
                _shares(entry["shown_by"]),
                entry["verdict"] or "",
            ]
            for entry in judged.readings
        ]
        lines += [*_table(("other reading", "median", "range", "show, exclude, open", "verdict"), cells), ""]
    if judged.mapped:
        lines += [f"It holds at: {holds_when(judged)}.", ""]
        lines += [f"Condition map: {finding.claim.headline} effect, bold where the finding holds.", ""]
        lines += [*_map(judged), ""]
    return lines


def _shares(counts: Sequence[int] | None) -> str:
    return ", ".join(str(count) for count in counts) if counts else ""


def _map(judged: Judged) -> list[str]:
    """Return the headline in every cell of the map's grid, bold where the finding holds."""
    asked, found = map_of(judged.finding), {cell.setting: cell for cell in judged.mapped}
    rows, error = [], reach(judged.verdict.ends or judged.interval)
    for row, cells in asked.grid.items():
        told = [(number(found[setting].effect, error), found[setting].verdict) for setting in cells.values()]
        rows.append([row, *(f"**{text}**" if verdict == HOLDS else text for text, verdict in told)])
    columns = list(next(iter(asked.grid.values())))
    return _table((asked.row_title, *(f"{asked.column_title} {column}" for column in columns)), rows)


def _recommendations(advice: Sequence[Advice]) -> list[str]:
    cells = [
        [
            one.recommendation.claim,
            one.recommendation.counterfactual,
            with_ends(one.gain, one.interval, one.recommendation.unit, one.verdict.ends),
            gain_words(one),
            accuracy_words(one.recommendation.gain, one.verdict),
            reverses_when(one),
            one.recommendation.cost,
        ]
        for one in advice
    ]
    head = ("advice", "simulated change", f"median gain ({LEVEL_WORDS})", "verdict", "model's error", "no gain",
            "cost not counted")  # fmt: skip
    return _table(head, cells)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [" | ".join(cells) for cells in (head, ["---"] * len(head), *rows)]
    return [f"| {line} |" for line in lines]
