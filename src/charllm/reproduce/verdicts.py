"""From rows to verdicts: findings and recommendations as tables, with intervals and condition maps where they ran."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from charllm.report.page.claims import HOLDS
from charllm.reproduce.conditions import (
    FLOWS,
    INLETS_C,
    LEVEL,
    PREHEATS,
    Setting,
    air_grid,
    draws,
    interval,
    map_settings,
    other_settings,
)  # fmt: skip
from charllm.reproduce.finding import Effects, Finding, Verdict, effects_of, judge
from charllm.reproduce.looks import Rows
from charllm.reproduce.recommendations import Recommendation

NOT_DRAWN = "no interval: run with --full (or --intervals) to draw the uncertain conditions"
NOT_MAPPED = "no condition map: run with --full (or --maps)"
MOST_NAMED = 6


class Mapped(NamedTuple):
    """A finding under one setting."""

    setting: Setting
    verdict: str
    effect: float | None


class Judged(NamedTuple):
    """A finding with all that its runs say."""

    finding: Finding
    verdict: Verdict
    effects: Effects
    interval: list[float] | None
    """Of the headline, over the draws."""
    intervals: Mapping[str, list[float] | None]
    """Of each configuration."""
    readings: list[dict[str, Any]]
    mapped: list[Mapped]
    drawn: int = 0
    """Draws that the intervals rest on."""


class Advice(NamedTuple):
    """A recommendation with what it gains."""

    recommendation: Recommendation
    gains: Effects
    gain: float | None
    interval: list[float] | None
    intervals: Mapping[str, list[float] | None]
    arms: list[tuple[str, float | None]]
    """Further conditions, each with the median gain."""
    drawn: int = 0
    """Draws that the intervals rest on."""


def judge_all(findings: Sequence[Finding], rows: Rows, *, drawn: bool, mapped: bool) -> list[Judged]:
    """Judge every finding."""
    return [_judge(finding, rows, drawn=drawn, mapped=mapped and finding.is_thermal) for finding in findings]


def _judge(finding: Finding, rows: Rows, *, drawn: bool, mapped: bool) -> Judged:
    effects = effects_of(finding.configurations, rows)
    each = [effects_of(finding.configurations, rows, one.apply) for one in draws()] if drawn else []
    readings = []
    for text, other in finding.readings.items():
        read = effects_of(other.configurations, rows)
        known = [effect for effect in read.values() if effect is not None]
        found = judge(finding, read) if other.is_judged else None
        readings.append(
            {
                "reading": text,
                "median": median(known) if known else None,
                "range": [min(known), max(known)] if known else None,
                "verdict": None if found is None else found.verdict,
            }
        )
    settings = map_settings() if mapped else ()
    cells = [
        Mapped(one, found.verdict, found.effect)
        for one in settings
        for found in (judge(finding, effects_of(finding.configurations, rows, one.apply)),)
    ]
    return Judged(
        finding=finding,
        verdict=judge(finding, effects),
        effects=effects,
        interval=interval([judge(finding, one).effect for one in each]),
        intervals={name: interval([one[name] for one in each]) for name in effects} if each else {},
        readings=readings,
        mapped=cells,
        drawn=count_drawn(each),
    )


def advise(recommendation: Recommendation, rows: Rows, *, drawn: bool) -> Advice:
    """Judge a recommendation."""
    configurations = recommendation.configurations
    gains = effects_of(configurations, rows)
    each = [effects_of(configurations, rows, one.apply) for one in draws()] if drawn else []
    return Advice(
        recommendation=recommendation,
        gains=gains,
        gain=middle(gains),
        interval=interval([middle(one) for one in each]),
        intervals={name: interval([one[name] for one in each]) for name in gains} if each else {},
        arms=[(arm.words, middle(effects_of(configurations, rows, arm.apply))) for arm in recommendation.arms],
        drawn=count_drawn(each),
    )


def middle(effects: Effects) -> float | None:
    """Return the median of the effects that are known."""
    known = [effect for effect in effects.values() if effect is not None]
    return median(known) if known else None


def finding_table(judged: Judged) -> dict[str, Any]:
    """Return a finding as findings.json holds it."""
    finding, verdict = judged.finding, judged.verdict
    return {
        "name": finding.name,
        "claim": finding.claim,
        "verdict": verdict.verdict,
        "effect": verdict.effect,
        "interval": judged.interval,
        "evidence": evidence(judged),
        "unit": finding.unit,
        "rule": finding.rule,
        "claimed_size": finding.size,
        "interval_level": LEVEL if judged.interval else None,
        "interval_basis": interval_basis(judged.drawn) if judged.interval else NOT_DRAWN,
        "supporting": {name: judged.effects[name] for name in verdict.supporting},
        "against": {name: judged.effects[name] for name in verdict.against},
        "not_possible": [name for name, effect in judged.effects.items() if effect is None],
        "readings": judged.readings,
        "circular": finding.circular or None,
        "holds_when": holds_when(judged) if finding.is_thermal else None,
        "note": finding.note,
        "figure": f"figures/finding-{finding.name}.svg",
    }


def interval_basis(drawn: int) -> str:
    """Say what intervals are drawn over; `drawn` settings could be run."""
    return f"{LEVEL:.0%} of {drawn} draws of inlet, airflow, preheat, spread of dies, kernel rate and energy"


def count_drawn(each: Sequence[Effects]) -> int:
    """Return how many draws have a headline: all configurations that are possible at all were run."""
    possible = {name for one in each for name, effect in one.items() if effect is not None}
    return sum(all(one[name] is not None for name in possible) for one in each) if possible else 0


def evidence(judged: Judged) -> str:
    """Say in words what the runs show."""
    verdict = judged.verdict
    known = [effect for effect in judged.effects.values() if effect is not None]
    if not known:
        return "none of its configurations could be run"
    parts = [
        f"{len(verdict.supporting)} of {len(known)} configurations show it: "
        f"{number(min(known))} to {number(max(known))} {judged.finding.unit}"
    ]
    if verdict.against:
        parts.append(f"against: {listed(verdict.against)}")
    if judged.finding.circular:
        parts.append(f"no evidence of its own: {judged.finding.circular}")
    if judged.interval is None:
        parts.append(NOT_DRAWN)
    return "; ".join(parts)


def listed(names: Sequence[str]) -> str:
    """Name some of many."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def number(value: float | None) -> str:
    """Write an effect with three digits that matter."""
    if value is None:
        return "unknown"
    return (
        f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.01 or value == 0 else f"{value:.1g}"
    )


def holds_when(judged: Judged) -> str:
    """Say under which settings of the map a finding holds at its full size."""
    if not judged.mapped:
        return NOT_MAPPED
    held = {cell.setting for cell in judged.mapped if cell.verdict == HOLDS}
    if not held:
        return "nowhere on the map"
    if len(held) == len(judged.mapped):
        return "everywhere on the map"
    parts = []
    for flow in FLOWS:
        for preheat in PREHEATS:
            row = [Setting(inlet_c=inlet_c, flow=flow, preheat=preheat) in held for inlet_c in INLETS_C]
            if any(row):
                air = f"airflow x {flow:g}, preheat x {preheat:g}"
                parts.append(f"{air}: inlet {_inlets(row)}")
    others = [one.words for one in other_settings() if one in held]
    return "; ".join([*parts, *([f"also: {listed(others)}"] if others else [])])


def _inlets(held: Sequence[bool]) -> str:
    """Say at which inlets something holds, in words."""
    warm = [inlet_c for inlet_c, holds in zip(INLETS_C, held, strict=True) if holds]
    if len(warm) == len(held):
        return "any"
    runs = INLETS_C[held.index(True) : held.index(True) + len(warm)]
    if list(runs) == warm and len(warm) > 1:
        return f"{warm[0]:.0f} to {warm[-1]:.0f} C"
    return ", ".join(f"{inlet_c:.0f}" for inlet_c in warm) + " C"


def explain_all(judged: Sequence[Judged]) -> dict[str, Any] | None:
    """Say which one setting makes most thermal findings hold, and which findings it leaves out; None without maps."""
    thermal = [one for one in judged if one.mapped]
    if not thermal:
        return None
    counts: dict[Setting, list[str]] = {cell.setting: [] for cell in thermal[0].mapped}
    for one in thermal:
        for cell in one.mapped:
            if cell.verdict == HOLDS:
                counts[cell.setting].append(one.finding.name)
    # Of settings that explain as many, the coolest and least unusual.
    best = max(counts, key=lambda one: (len(counts[one]), -one.inlet_c, -len(one.words)))
    names = [one.finding.name for one in thermal]
    return {
        "findings": names,
        "settings": len(counts),
        "best_setting": best.words,
        "holds": counts[best],
        "does_not_hold": [name for name in names if name not in counts[best]],
        "explains_all": len(counts[best]) == len(names),
        "holds_as_is": counts[Setting()],
        "never": [name for name in names if not any(name in held for held in counts.values())],
    }


def advice_table(advice: Advice) -> dict[str, Any]:
    """Return a recommendation as recommendations.json holds it."""
    asked = advice.recommendation
    return {
        "claim": asked.claim,
        "counterfactual": asked.counterfactual,
        "gain": advice.gain,
        "interval": advice.interval,
        "reverses_when": reverses_when(advice),
        "name": asked.name,
        "unit": asked.unit,
        "worth_it": advice.gain is not None and advice.gain >= asked.worth,
        "interval_basis": interval_basis(advice.drawn) if advice.interval else NOT_DRAWN,
        "gains": dict(advice.gains),
        "conditions": dict(advice.arms),
        "cost": asked.cost,
        "figure": f"figures/recommendation-{asked.name}.svg",
    }


def reverses_when(advice: Advice) -> str:
    """Say for which configurations, and under which conditions, nothing is gained."""
    asked, worth = advice.recommendation, advice.recommendation.worth
    idle = [name for name, gain in advice.gains.items() if gain is not None and gain < worth]
    arms = [f"{words} ({number(gain)})" for words, gain in advice.arms if gain is not None and gain < worth]
    grows = [
        f"{words} ({number(gain)})"
        for words, gain in advice.arms
        if gain is not None and advice.gain is not None and gain >= worth > advice.gain
    ]
    parts = []
    if idle:
        parts.append(f"gain below {worth:g} for: {listed(idle)}")
    if arms:
        parts.append(f"median gain below {worth:g} at: {listed(arms)}")
    if grows:
        parts.append(f"it pays at: {listed(grows)}")
    if not parts:
        tried = f" and {len(asked.arms)} other conditions" if asked.arms else ""
        return f"in none of {len(advice.gains)} configurations{tried} that were tried"
    return "; ".join(parts)


def air_cells(judged: Judged) -> list[Mapped]:
    """Return the cells of a map that differ in air alone, in the order of the grid."""
    grid = air_grid()
    return [cell for cell in judged.mapped if cell.setting in grid]
