"""Findings and recommendations in words: reason, evidence, conditions, and when a recommendation reverses."""

from collections.abc import Sequence
from math import floor, log10

from charllm.report.claims import FAILS, HOLDS, Claim, Verdict
from charllm.reproduce.maps import map_of
from charllm.reproduce.verdicts import Advice, Judged, share
from charllm.result.uncertainty import LEVEL
from charllm.units import format_percent

NOT_DRAWN = "no interval: run with --full (or --intervals)"
NOT_MAPPED = "no condition map: run with --full (or --maps)"
LEVEL_WORDS = f"{format_percent(LEVEL, 0)} interval"
"""Heading of intervals."""
NOT_RUN = "none of its configurations could be run"
MOST_NAMED = 6


def interval_basis(drawn: int) -> str:
    """Say what intervals are drawn over; `drawn` settings could be run."""
    return (
        f"{format_percent(LEVEL, 0)} of {drawn} draws of inlet, airflow, preheat, silicon spread, GEMM rate, kernel "
        "energy, NVLink and NIC bandwidth and message latency, widened where needed to include the effect at "
        "nominal conditions"
    )


def reason(judged: Judged) -> str:
    """Say in one line what is behind a finding, and what its verdict rests on."""
    claim, verdict = judged.finding.claim, judged.verdict
    if verdict.effect is None:
        return NOT_RUN
    parts = [judged.finding.claim.why, share_words(verdict)]
    if claim.size is not None:
        effect = number(verdict.effect, reach(verdict.ends or judged.interval))
        parts.append(f"{claim.headline} effect {effect}, claimed {claim.size:g}")
    if judged.drawn:
        same = judged.drawn_verdicts.get(verdict.verdict, 0)
        parts.append(f"same verdict in {same} of {sum(judged.drawn_verdicts.values())} draws")
    if judged.finding.claim.circular:
        parts.append("circular: no evidence of its own")
    return "; ".join(parts)


def share_words(verdict: Verdict) -> str:
    """Say how many configurations show a claim, exclude it, and are within the error."""
    shown, denied, unclear = share(verdict)
    told = f"{shown} of {shown + denied + unclear} configurations show it, {denied} exclude it"
    return f"{told}, {unclear} within the error" if unclear else told


def accuracy(judged: Judged) -> str:
    """Say how far the headline may be off, and what that rests on."""
    return accuracy_words(judged.finding.claim, judged.verdict)


def accuracy_words(claim: Claim, verdict: Verdict) -> str:
    """Say between what a headline lies, and what that rests on."""
    if claim.accuracy is None or verdict.ends is None:
        return "no error of this kind of effect is known"
    return f"{ends(verdict.ends, reach(verdict.ends))} by the {claim.accuracy.words}"


def evidence(judged: Judged) -> str:
    """Say in words what the runs show."""
    verdict = judged.verdict
    known = [effect for effect in judged.effects.values() if effect is not None]
    if not known:
        return reason(judged)
    error = reach(verdict.ends or judged.interval)
    parts = [
        reason(judged),
        f"effects {ends([min(known), max(known)], error)} ({judged.finding.unit})",
        accuracy(judged),
    ]
    if verdict.against:
        parts.append(f"against: {listed(verdict.against)}")
    if judged.finding.claim.answer:
        parts.append(f"measured: {judged.finding.claim.answer}")
    if judged.finding.claim.circular:
        parts.append(judged.finding.claim.circular)
    if judged.interval is None:
        parts.append(NOT_DRAWN)
    return "; ".join(parts)


def listed(names: Sequence[str]) -> str:
    """Name some of many."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def reach(around: Sequence[float] | None) -> float | None:
    """Return half the width of what an effect lies in, where that is known."""
    return (around[1] - around[0]) / 2 if around and around[1] > around[0] else None


def number(value: float | None, error: float | None = None) -> str:
    """Write an effect no finer than the first digit of its error; with three digits where none is known."""
    if value is None:
        return "unknown"
    if error:
        digits = -floor(log10(error))
        return f"{round(value, digits) + 0.0:,.{max(0, digits)}f}"
    return (
        f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.01 or value == 0 else f"{value:.1g}"
    )


def ends(interval: Sequence[float] | None, error: float | None = None) -> str:
    """Write an interval or a range."""
    return f"{number(interval[0], error)} to {number(interval[1], error)}" if interval else ""


def with_ends(
    effect: float | None, interval: Sequence[float] | None, unit: str, around: Sequence[float] | None = None
) -> str:
    """Write an effect with its interval, where there is one, and its unit, no finer than its error."""
    error = reach(around or interval)
    return f"{number(effect, error)}{f' ({ends(interval, error)})' if interval else ''} {unit}"


def holds_when(judged: Judged) -> str:
    """Say under which settings of the map a finding holds."""
    if not judged.mapped:
        return NOT_MAPPED
    held = {cell.setting for cell in judged.mapped if cell.verdict == HOLDS}
    if not held:
        return f"none of {len(judged.mapped)} settings"
    if len(held) == len(judged.mapped):
        return f"all {len(judged.mapped)} settings"
    asked = map_of(judged.finding)
    parts = []
    for row, cells in asked.grid.items():
        found = [column for column, setting in cells.items() if setting in held]
        if found:
            parts.append(f"{row}: {_span(asked.column_title, found, list(cells))}")
    others = [f"({one.words})" for one in asked.others if one in held]
    return "; ".join([*parts, *([f"also at {listed(others)}"] if others else [])])


def _span(title: str, held: Sequence[str], columns: Sequence[str]) -> str:
    """Say in which columns something holds, in words."""
    if len(held) == len(columns):
        return f"any {title}"
    first = columns.index(held[0])
    if len(held) > 1 and list(held) == list(columns[first : first + len(held)]):
        return f"{title} {held[0]} to {held[-1]}"
    return f"{title} {', '.join(held)}"


def gain_words(advice: Advice) -> str:
    """Say whether a change gains, on the three levels of findings."""
    return {HOLDS: "a gain", FAILS: "no gain"}.get(advice.verdict.verdict, advice.verdict.verdict)


def reverses_when(advice: Advice) -> str:
    """Say for which configurations and under which conditions there is no gain, or none that can be told."""
    asked, verdict = advice.recommendation, advice.verdict
    known = [(words, gain, asked.gain.around(gain)) for words, gain in advice.arms if gain is not None]
    told = {words: f"({words}): {number(gain, reach(around))} %" for words, gain, around in known}
    idle = [told[words] for words, _gain, (_low, high) in known if high <= asked.worth]
    grows = [told[words] for words, _gain, (low, _high) in known if low > asked.worth and verdict.verdict != HOLDS]
    parts = [
        (f"no gain of {asked.worth:g} % for", verdict.against),
        ("within the error for", verdict.open),
        ("median no gain at", idle),
        ("median a gain at", grows),
    ]
    if not any(found for _words, found in parts):
        tried = f" under {len(asked.arms) + 1} conditions" if asked.arms else ""
        return f"not observed in {len(advice.gains)} configurations{tried}"
    return "; ".join(f"{words} {listed(found)}" for words, found in parts if found)
