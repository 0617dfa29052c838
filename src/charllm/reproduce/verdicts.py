"""From rows to verdicts: findings and recommendations, with intervals and condition maps where they were run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

from charllm.report.claims import HOLDS, UNDECIDED, Verdict, judge
from charllm.reproduce.conditions import Setting
from charllm.reproduce.draws import draws, interval
from charllm.reproduce.finding import Effects, Finding, effects_of
from charllm.reproduce.looks import Rows
from charllm.reproduce.maps import map_of
from charllm.reproduce.recommendations import Recommendation


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
    """Of the headline, over the draws; it holds the nominal effect."""
    intervals: Mapping[str, list[float] | None]
    """Of each configuration."""
    readings: list[dict[str, Any]]
    mapped: list[Mapped]
    drawn: int = 0
    """Draws that the intervals rest on."""
    drawn_verdicts: Mapping[str, int] = MappingProxyType({})
    """Verdict: in how many draws it is reached."""
    drawn_median: float | None = None
    """Median of the drawn headlines."""


class Advice(NamedTuple):
    """A recommendation with what it gains."""

    recommendation: Recommendation
    gains: Effects
    verdict: Verdict
    gain: float | None
    interval: list[float] | None
    intervals: Mapping[str, list[float] | None]
    arms: list[tuple[str, float | None]]
    """Further conditions, each with the median gain."""
    drawn: int = 0
    """Draws that the intervals rest on."""


def judge_all(findings: Sequence[Finding], rows: Rows, *, drawn: bool, mapped: bool) -> list[Judged]:
    """Judge every finding."""
    return [_judge(finding, rows, drawn=drawn, mapped=mapped) for finding in findings]


def _judge(finding: Finding, rows: Rows, *, drawn: bool, mapped: bool) -> Judged:
    effects = effects_of(finding.configurations, rows)
    each = [effects_of(finding.configurations, rows, one.apply) for one in draws()] if drawn else []
    nominal = judge(finding.claim, effects, _intervals(effects, each))
    readings = []
    for text, other in finding.readings.items():
        read = effects_of(other.configurations, rows)
        known = [effect for effect in read.values() if effect is not None]
        found = judge(finding.claim, read) if other.is_judged else None
        readings.append(
            {
                "reading": text,
                "median": median(known) if known else None,
                "range": [min(known), max(known)] if known else None,
                "verdict": None if found is None else found.verdict,
                "shown_by": None if found is None else share(found),
            }
        )
    settings = map_of(finding).settings if mapped else ()
    cells = [
        Mapped(one, found.verdict, found.effect)
        for one in settings
        for found in (judge(finding.claim, effects_of(finding.configurations, rows, one.apply)),)
    ]
    drawn_ones = [judge(finding.claim, one) for one in each]
    headlines = [one.effect for one in drawn_ones]
    return Judged(
        finding=finding,
        verdict=nominal,
        effects=effects,
        interval=interval(nominal.effect, headlines),
        intervals=_intervals(effects, each),
        readings=readings,
        mapped=cells,
        drawn=count_drawn(each),
        drawn_verdicts=Counter(one.verdict for one in drawn_ones if one.effect is not None),
        drawn_median=_median(headlines),
    )


def _intervals(nominal: Effects, each: Sequence[Effects]) -> dict[str, list[float] | None]:
    """Return the interval of each configuration."""
    return {name: interval(effect, [one[name] for one in each]) for name, effect in nominal.items()} if each else {}


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def advise(recommendation: Recommendation, rows: Rows, *, drawn: bool) -> Advice:
    """Judge a recommendation."""
    configurations = recommendation.configurations
    gains = effects_of(configurations, rows)
    each = [effects_of(configurations, rows, one.apply) for one in draws()] if drawn else []
    return Advice(
        recommendation=recommendation,
        gains=gains,
        verdict=_judge_gain(recommendation, gains, _intervals(gains, each)),
        gain=middle(gains),
        interval=interval(middle(gains), [middle(one) for one in each]),
        intervals=_intervals(gains, each),
        arms=[(arm.words, middle(effects_of(configurations, rows, arm.apply))) for arm in recommendation.arms],
        drawn=count_drawn(each),
    )


def _judge_gain(recommendation: Recommendation, gains: Effects, intervals: Mapping[str, list[float] | None]) -> Verdict:
    """Judge a gain as a claim; nothing can be told of one whose error is not known in any way."""
    if recommendation.accuracy is None and not intervals:
        return Verdict(UNDECIDED, middle(gains), [], [], [name for name, gain in gains.items() if gain is not None])
    return judge(recommendation.gain, gains, intervals)


def share(found: Verdict) -> list[int]:
    """Return how many configurations show a claim, exclude it, and are within the error."""
    return [len(found.supporting), len(found.against), len(found.open)]


def middle(effects: Effects) -> float | None:
    """Return the median of the effects that are known."""
    return _median(list(effects.values()))


def count_drawn(each: Sequence[Effects]) -> int:
    """Return how many draws have a headline: all configurations that are possible at all were run."""
    possible = {name for one in each for name, effect in one.items() if effect is not None}
    return sum(all(one[name] is not None for name in possible) for one in each) if possible else 0


def explain_all(judged: Sequence[Judged]) -> dict[str, Any] | None:
    """Say which one setting makes most thermal findings hold, and which findings it leaves out; None without maps."""
    thermal = [one for one in judged if one.mapped and one.finding.claim.is_thermal]
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
