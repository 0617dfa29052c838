"""The report: verdicts, a figure for each finding, condition maps, recommendations, and the paper's figures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from charllm.report.claims import FAILS, HOLDS, UNDECIDED
from charllm.report.figure import Column, Fact, Figure, Page, Section
from charllm.reproduce.maps import map_of
from charllm.reproduce.settings import NAME
from charllm.reproduce.verdicts import Advice, Judged
from charllm.reproduce.words import (
    LEVEL_WORDS,
    NOT_DRAWN,
    accuracy,
    accuracy_words,
    ends,
    gain_words,
    holds_when,
    interval_basis,
    listed,
    reach,
    reason,
    reverses_when,
    with_ends,
)

CONDITIONS = "Simulated at an inlet of 25 C, nominal airflow, identical GPUs, thermal steady state."
SHOWS, SHOWS_NOT, OPEN = "shows it", "excludes it", "within the error"
GAINS, GAINS_NOT = "gains", "does not gain"


def paper_page(
    judged: Sequence[Judged],
    advice: Sequence[Advice],
    figures: Sequence[Figure],
    readings: Sequence[Mapping[str, Any]],
    joint: Mapping[str, Any] | None,
) -> Page:
    """Return the whole reproduction as one page."""
    sections = [
        Section("Verdicts", [_verdicts(judged)]),
        Section("Each finding", [_finding(one) for one in judged]),
    ]
    maps = [_map(one) for one in judged if one.mapped]
    if maps:
        first = [] if joint is None else [_joint(joint, judged)]
        sections.append(Section("Conditions under which findings hold", [*first, *maps]))
    if readings:
        sections.append(Section("Other readings", [_errors(readings), _other_readings(judged)]))
    if advice:
        sections.append(Section("Recommendations", [_advice(advice), *(_gains(one) for one in advice)]))
    if figures:
        sections.append(Section("Figures of the paper and of what its artifact lacks", figures))
    return Page(f"{NAME}, reproduced", _answer(judged, joint), _facts(judged), sections, "simulated")


def _answer(judged: Sequence[Judged], joint: Mapping[str, Any] | None) -> list[str]:
    counts = Counter(one.verdict.verdict for one in judged)
    told = f"{counts[HOLDS]} hold, {counts[FAILS]} fail, {counts[UNDECIDED]} are undecided at this accuracy"
    found = [f"Of {len(judged)} findings of CharLLM-PPT (MICRO'25), {told}."]
    found.append("Each is judged by a rule that was set before any run. No constant is fitted to a finding.")
    if joint is not None:
        found.append(
            f"No single setting explains all {len(joint['findings'])} thermal findings; {joint['best_setting']} "
            f"explains {len(joint['holds'])}."
            if not joint["explains_all"]
            else f"One setting explains all thermal findings: {joint['best_setting']}."
        )
    if not any(one.interval for one in judged):
        found.append(f"{NOT_DRAWN[:1].upper()}{NOT_DRAWN[1:]}.")
    return found


def _facts(judged: Sequence[Judged]) -> list[Fact]:
    return [
        Fact(
            one.finding.name,
            one.verdict.verdict,
            f"{LEVEL_WORDS}: {ends(one.interval, reach(one.verdict.ends or one.interval))}" if one.interval else "",
            f"finding-{one.finding.name}",
            with_ends(one.verdict.effect, None, one.finding.unit, one.verdict.ends or one.interval),
        )
        for one in judged[:6]
    ]


def _verdicts(judged: Sequence[Judged]) -> Figure:
    columns = {
        "claim": Column("claim", [f"{one.finding.claim.text} ({one.finding.name})" for one in judged]),
        "verdict": Column("verdict", [one.verdict.verdict for one in judged]),
        "effect": Column(
            f"effect ({LEVEL_WORDS})",
            [with_ends(one.verdict.effect, one.interval, one.finding.unit, one.verdict.ends) for one in judged],
        ),
        "error": Column("model's error", [accuracy(one) for one in judged]),
        "measured": Column("measured or published", [one.finding.claim.answer or None for one in judged]),
        "reason": Column("reason", [reason(one) for one in judged]),
    }
    held = sum(one.verdict.verdict == HOLDS for one in judged)
    drawn = f" Intervals: {interval_basis(most)}." if (most := max(one.drawn for one in judged)) else ""
    message = f"{held} of {len(judged)} findings hold as claimed.{drawn}"
    return Figure("verdicts", "table", "Which findings hold?", message, columns, {"search": False}, CONDITIONS)


def _finding(judged: Judged) -> Figure:
    """Return the effect of every configuration of a finding, with its interval."""
    finding = judged.finding
    known = [(name, effect) for name, effect in judged.effects.items() if effect is not None]
    message = f"{judged.verdict.verdict.capitalize()}: {reason(judged)}. {finding.claim.note}"
    name, text = f"finding-{finding.name}", finding.claim.text
    if not known:
        return Figure(name, "multiples", text, message, missing=reason(judged))
    whiskers = f" Whiskers: {LEVEL_WORDS}." if judged.interval else ""
    conditions = f"Rule: {finding.claim.rule}. Dashed line: {finding.claim.least:g}.{whiskers} {CONDITIONS}"
    kinds = {each: seen(judged, each) for each, _ in known}
    figure = _effects_figure(name, text, message, dict(known), judged.intervals, finding.unit, conditions, kinds)
    panel = {**figure.options["panels"][0], "threshold": finding.claim.least}
    return replace(figure, options={**figure.options, "panels": [panel], "kinds": [SHOWS, SHOWS_NOT, OPEN]})


def seen(judged: Judged, configuration: str) -> str:
    """Say whether a configuration shows a claim, excludes it, or is within the error."""
    verdict = judged.verdict
    return SHOWS if configuration in verdict.supporting else SHOWS_NOT if configuration in verdict.against else OPEN


def _effects_figure(
    name: str,
    question: str,
    message: str,
    effects: Mapping[str, float],
    intervals: Mapping[str, list[float] | None],
    unit: str,
    conditions: str,
    kinds: Mapping[str, str],
) -> Figure:
    columns = {
        "configuration": Column("configuration", list(effects)),
        "effect": Column(unit, list(effects.values()), digits=3),
        "seen": Column("verdict", [kinds[one] for one in effects]),
    }
    panel: dict[str, Any] = {"column": "effect", "label": unit, "unit": ""}
    if any(intervals.values()):
        bounds = [intervals.get(one) or (None, None) for one in effects]
        columns |= {
            "low": Column("low", [low for low, _ in bounds]),
            "high": Column("high", [high for _, high in bounds]),
        }
        panel |= {"low": "low", "high": "high"}
    options = {"row": "configuration", "panels": [panel], "colour": "seen", "shape": "seen"}
    return Figure(name, "multiples", question, message, columns, options, conditions)


def _map(judged: Judged) -> Figure:
    """Return the condition map of a finding; cells in which it holds are outlined."""
    finding, asked = judged.finding, map_of(judged.finding)
    found = {cell.setting: cell for cell in judged.mapped}
    cells = [(row, column, found[one]) for row, line in asked.grid.items() for column, one in line.items()]
    changed = [
        f"({one.words}): {found[one].verdict}" for one in asked.others if found[one].verdict != judged.verdict.verdict
    ]
    columns = {
        "row": Column(asked.row_title, [row for row, _, _ in cells]),
        "column": Column(asked.column_title, [column for _, column, _ in cells]),
        "effect": Column(finding.unit, [cell.effect for _, _, cell in cells], digits=3),
        "verdict": Column("verdict", [cell.verdict for _, _, cell in cells]),
        "ring": Column("holds", [cell.verdict == HOLDS for _, _, cell in cells]),
    }
    options = {
        "row": "row",
        "column": "column",
        "value": "effect",
        "ring": "ring",
        "ring_label": "holds",
        "label": finding.unit,
        "rows": list(asked.grid),
    }
    message = (
        f"Columns: {asked.column_title}. Holds at: {holds_when(judged)}. Of {len(asked.others)} further settings, "
        f"these change the verdict: {listed(changed) or 'none'}."
    )
    question = f"Where does {finding.name} hold?"
    return Figure(f"map-{finding.name}", "heatmap", question, message, columns, options, f"Rule: {finding.claim.rule}.")


def _joint(joint: Mapping[str, Any], judged: Sequence[Judged]) -> Figure:
    thermal = [one for one in judged if one.mapped and one.finding.claim.is_thermal]
    columns = {
        "finding": Column("finding", [one.finding.name for one in thermal]),
        "as_is": Column("at nominal conditions", [one.finding.name in joint["holds_as_is"] for one in thermal]),
        "best": Column(joint["best_setting"], [one.finding.name in joint["holds"] for one in thermal]),
        "when": Column("holds at", [holds_when(one) for one in thermal]),
    }
    message = (
        f"The setting that explains most is {joint['best_setting']}: {len(joint['holds'])} of {len(joint['findings'])} "
        f"thermal findings hold there. These do not: {', '.join(joint['does_not_hold']) or 'none'}. Under no setting "
        f"do these hold: {', '.join(joint['never']) or 'none'}."
    )
    question = "Does one setting explain all thermal findings at once?"
    return Figure(
        "one-setting", "table", question, message, columns, {"search": False}, f"{joint['settings']} settings"
    )


def _errors(readings: Sequence[Mapping[str, Any]]) -> Figure:
    columns = {
        name: Column(label, [entry[name] for entry in readings])
        for name, label in (("mistake", "error"), ("artifact", "as the artifact reads it"), ("corrected", "corrected"))
    }
    message = f"{len(readings)} errors of the artifact change what its figures say; both readings are given."
    question = "How do errors of the artifact change its results?"
    return Figure("readings", "table", question, message, columns, {"search": False}, CONDITIONS)


def _other_readings(judged: Sequence[Judged]) -> Figure:
    """Return every other reading of a claim, with the verdict where the rule applies to it."""
    listed = [(one.finding.name, entry) for one in judged for entry in one.readings]
    columns = {
        "finding": Column("finding", [name for name, _ in listed]),
        "reading": Column("reading", [entry["reading"] for _, entry in listed]),
        "median": Column("median", [entry["median"] for _, entry in listed], digits=3),
        "range": Column("range", [ends(entry["range"]) or None for _, entry in listed]),
        "verdict": Column("verdict", [entry["verdict"] for _, entry in listed]),
    }
    message = "The same claims in other measures or on other runs; a verdict where the rule of the claim applies."
    question = "How else can the claims be read?"
    return Figure("other-readings", "table", question, message, columns, {"search": False}, CONDITIONS)


def _advice(advice: Sequence[Advice]) -> Figure:
    columns = {
        "claim": Column("advice", [one.recommendation.claim for one in advice]),
        "counterfactual": Column("simulated change", [one.recommendation.counterfactual for one in advice]),
        "gain": Column(
            f"median gain ({LEVEL_WORDS})",
            [with_ends(one.gain, one.interval, one.recommendation.unit, one.verdict.ends) for one in advice],
        ),
        "verdict": Column("verdict", [gain_words(one) for one in advice]),
        "error": Column("model's error", [accuracy_words(one.recommendation.gain, one.verdict) for one in advice]),
        "reverses": Column("no gain", [reverses_when(one) for one in advice]),
        "cost": Column("cost not counted", [one.recommendation.cost for one in advice]),
    }
    ranked = sorted((one for one in advice if one.gain is not None), key=lambda one: -(one.gain or 0.0))
    most = f" Largest median: {ranked[0].recommendation.name}." if ranked else ""
    message = f"{len(advice)} changes of the machine or its operation, each simulated with all else equal.{most}"
    return Figure(
        "advice", "table", "What should the next machine look like?", message, columns, {"search": False}, CONDITIONS
    )


def _gains(advice: Advice) -> Figure:
    asked = advice.recommendation
    known = {name: gain for name, gain in advice.gains.items() if gain is not None}
    gain = f"median {with_ends(advice.gain, None, asked.unit, advice.verdict.ends or advice.interval)}"
    message = f"{asked.counterfactual[:1].upper()}{asked.counterfactual[1:]}: {gain}. No gain: {reverses_when(advice)}."
    verdict = advice.verdict
    kinds = {
        name: GAINS if name in verdict.supporting else GAINS_NOT if name in verdict.against else OPEN for name in known
    }
    whiskers = f"Whiskers: {LEVEL_WORDS}. " if advice.interval else ""
    name, conditions = f"recommendation-{asked.name}", f"{whiskers}{CONDITIONS}"
    figure = _effects_figure(name, asked.claim, message, known, advice.intervals, asked.unit, conditions, kinds)
    return replace(figure, options={**figure.options, "kinds": [GAINS, GAINS_NOT, OPEN]})
