"""The report: verdicts first, then each finding with its figure, condition maps, advice, and the paper's figures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.figure import Column, Fact, Figure, Page, Section
from charllm.report.page.claims import FAILS, HOLDS, PARTLY
from charllm.reproduce.conditions import FLOWS, PREHEATS, other_settings
from charllm.reproduce.paper import NAME
from charllm.reproduce.verdicts import (
    NOT_DRAWN,
    Advice,
    Judged,
    air_cells,
    evidence,
    holds_when,
    interval_basis,
    listed,
    number,
    reverses_when,
)

CONDITIONS = "simulated; inlet 25 C, usual airflow, equal dies, thermal steady state, unless a label says otherwise"


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
    maps = [_air_map(one) for one in judged if one.mapped]
    if joint is not None:
        sections.append(Section("Under which conditions would they hold?", [_joint(joint, judged), *maps]))
    if readings:
        sections.append(Section("Where the artifact is wrong", [_readings(readings)]))
    if advice:
        sections.append(Section("Recommendations", [_advice(advice), *(_gains(one) for one in advice)]))
    if figures:
        sections.append(Section("Figures of the paper, and those that its artifact lacks", figures))
    return Page(f"{NAME}, reproduced", _answer(judged, joint), _facts(judged), sections, "simulated")


def _answer(judged: Sequence[Judged], joint: Mapping[str, Any] | None) -> list[str]:
    counts = Counter(one.verdict.verdict for one in judged)
    told = f"{counts[HOLDS]} hold, {counts[PARTLY]} hold in part, {counts[FAILS]} do not hold"
    found = [
        f"{len(judged)} findings of CharLLM-PPT (MICRO'25), each judged by a rule that stood before its runs: {told}."
    ]
    found.append("Nothing is fitted to any of them.")
    if joint is not None:
        found.append(
            f"No single setting explains all thermal findings; {joint['best_setting']} explains {len(joint['holds'])} "
            f"of {len(joint['findings'])}."
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
            f"{number(one.interval[0])} to {number(one.interval[1])}" if one.interval else "",
            f"finding-{one.finding.name}",
            f"{number(one.verdict.effect)} {one.finding.unit}",
        )
        for one in judged[:6]
    ]


def _verdicts(judged: Sequence[Judged]) -> Figure:
    columns = {
        "name": Column("finding", [one.finding.name for one in judged]),
        "claim": Column("claim", [one.finding.claim for one in judged]),
        "verdict": Column("verdict", [one.verdict.verdict for one in judged]),
        "effect": Column("effect", [one.verdict.effect for one in judged], digits=3),
        "low": Column("low", [one.interval[0] if one.interval else None for one in judged], digits=3),
        "high": Column("high", [one.interval[1] if one.interval else None for one in judged], digits=3),
        "unit": Column("unit", [one.finding.unit for one in judged]),
    }
    held = sum(one.verdict.verdict == HOLDS for one in judged)
    drawn = f" Intervals: {interval_basis(most)}." if (most := max(one.drawn for one in judged)) else ""
    message = f"{held} of {len(judged)} findings hold as claimed.{drawn}"
    return Figure("verdicts", "table", "Which findings hold?", message, columns, {"search": False}, CONDITIONS)


def _finding(judged: Judged) -> Figure:
    """Return the effect of every configuration of a finding, with its interval."""
    finding = judged.finding
    known = [(name, effect) for name, effect in judged.effects.items() if effect is not None]
    readings = [f"{entry['reading']}: {number(entry['median'])}" for entry in judged.readings]
    other = f" Other readings (medians): {'; '.join(readings)}." if readings else ""
    message = f"{judged.verdict.verdict.capitalize()}: {evidence(judged)}. {finding.note}{other}"
    rule = f"Rule: {finding.rule}. {CONDITIONS}"
    if not known:
        return Figure(f"finding-{finding.name}", "multiples", finding.claim, message, missing=evidence(judged))
    return _effects_figure(
        f"finding-{finding.name}", finding.claim, message, dict(known), judged.intervals, finding.unit, rule,
        {name: "shows it" if name in judged.verdict.supporting else "does not" for name, _ in known},
    )  # fmt: skip


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
        ends = [intervals.get(one) or (None, None) for one in effects]
        columns |= {"low": Column("low", [low for low, _ in ends]), "high": Column("high", [high for _, high in ends])}
        panel |= {"low": "low", "high": "high"}
    options = {"row": "configuration", "panels": [panel], "colour": "seen", "shape": "seen"}
    return Figure(name, "multiples", question, message, columns, options, conditions)


def _air_map(judged: Judged) -> Figure:
    """Return the map of a finding over inlet, airflow and preheat; cells that hold are ringed."""
    finding, cells = judged.finding, air_cells(judged)
    tried = [cell for cell in judged.mapped if cell.setting in other_settings()]
    others = [f"{cell.setting.words}: {cell.verdict}" for cell in tried if cell.verdict != judged.verdict.verdict]
    columns = {
        "row": Column(
            "airflow and preheat", [f"airflow x {c.setting.flow:g}, preheat x {c.setting.preheat:g}" for c in cells]
        ),
        "inlet": Column("inlet", [f"{cell.setting.inlet_c:.0f} C" for cell in cells]),
        "effect": Column(finding.unit, [cell.effect for cell in cells], digits=3),
        "verdict": Column("verdict", [cell.verdict for cell in cells]),
        "ring": Column("holds", [cell.verdict == HOLDS for cell in cells]),
    }
    options = {
        "row": "row",
        "column": "inlet",
        "value": "effect",
        "ring": "ring",
        "ring_label": "holds at full size",
        "label": finding.unit,
        "rows": [f"airflow x {flow:g}, preheat x {preheat:g}" for flow in FLOWS for preheat in PREHEATS],
    }
    message = (
        f"Holds at full size at: {holds_when(judged)}. Of {len(tried)} other dies, caps and fabrics these change the "
        f"verdict: {listed(others) or 'none'}."
    )
    question = f"When would it hold: {finding.name}?"
    return Figure(f"map-{finding.name}", "heatmap", question, message, columns, options, f"Rule: {finding.rule}")


def _joint(joint: Mapping[str, Any], judged: Sequence[Judged]) -> Figure:
    thermal = [one for one in judged if one.mapped]
    columns = {
        "finding": Column("finding", [one.finding.name for one in thermal]),
        "as_is": Column("as the machines stand", [one.finding.name in joint["holds_as_is"] for one in thermal]),
        "best": Column(joint["best_setting"], [one.finding.name in joint["holds"] for one in thermal]),
        "when": Column("holds at full size at", [holds_when(one) for one in thermal]),
    }
    message = (
        f"The setting that explains most is {joint['best_setting']}: {len(joint['holds'])} of {len(joint['findings'])} "
        f"thermal findings hold there at full size. Left out: {', '.join(joint['does_not_hold']) or 'none'}. No "
        f"setting makes these hold: {', '.join(joint['never']) or 'none'}."
    )
    question = "Does one setting explain all thermal findings at once?"
    return Figure(
        "one-setting", "table", question, message, columns, {"search": False}, f"{joint['settings']} settings"
    )


def _readings(readings: Sequence[Mapping[str, Any]]) -> Figure:
    columns = {
        name: Column(label, [entry[name] for entry in readings])
        for name, label in (("mistake", "mistake"), ("artifact", "as it reads"), ("corrected", "corrected"))
    }
    message = f"{len(readings)} mistakes of the artifact change what its figures say; both readings are given."
    return Figure(
        "readings", "table", "What do its own mistakes change?", message, columns, {"search": False}, CONDITIONS
    )


def _advice(advice: Sequence[Advice]) -> Figure:
    columns = {
        "claim": Column("advice", [one.recommendation.claim for one in advice]),
        "counterfactual": Column("judged by", [one.recommendation.counterfactual for one in advice]),
        "gain": Column("median gain", [one.gain for one in advice], digits=3),
        "low": Column("low", [one.interval[0] if one.interval else None for one in advice], digits=3),
        "high": Column("high", [one.interval[1] if one.interval else None for one in advice], digits=3),
        "unit": Column("unit", [one.recommendation.unit for one in advice]),
        "reverses": Column("no gain", [reverses_when(one) for one in advice]),
        "cost": Column("cost not counted", [one.recommendation.cost for one in advice]),
    }
    ranked = sorted((one for one in advice if one.gain is not None), key=lambda one: -(one.gain or 0.0))
    most = f" Largest median: {ranked[0].recommendation.name}." if ranked else ""
    message = f"{len(advice)} changes of machines, each simulated with all else equal.{most}"
    return Figure(
        "advice", "table", "What should the next machine look like?", message, columns, {"search": False}, CONDITIONS
    )


def _gains(advice: Advice) -> Figure:
    asked = advice.recommendation
    known = {name: gain for name, gain in advice.gains.items() if gain is not None}
    gain = f"median {number(advice.gain)} {asked.unit}"
    message = f"{asked.counterfactual[:1].upper()}{asked.counterfactual[1:]}: {gain}. No gain: {reverses_when(advice)}."
    kinds = {name: "gains" if gain >= asked.worth else "does not" for name, gain in known.items()}
    name = f"recommendation-{asked.name}"
    return _effects_figure(name, asked.claim, message, known, advice.intervals, asked.unit, CONDITIONS, kinds)
