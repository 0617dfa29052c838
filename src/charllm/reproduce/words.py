"""Findings and recommendations in words: reason, evidence, conditions, and when a recommendation reverses."""

from collections.abc import Sequence

from charllm.report.claims import HOLDS, Verdict
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
        parts.append(f"{claim.headline} effect {number(verdict.effect)}, claimed {claim.size:g}")
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
    claim, around = judged.finding.claim, judged.verdict.ends
    if claim.accuracy is None or around is None:
        return "no error of this kind of effect is known"
    return f"{ends(around)} by the {claim.accuracy.words}"


def evidence(judged: Judged) -> str:
    """Say in words what the runs show."""
    verdict = judged.verdict
    known = [effect for effect in judged.effects.values() if effect is not None]
    if not known:
        return reason(judged)
    parts = [reason(judged), f"effects {ends([min(known), max(known)])} ({judged.finding.unit})", accuracy(judged)]
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


def number(value: float | None) -> str:
    """Write an effect with three significant digits."""
    if value is None:
        return "unknown"
    return (
        f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.01 or value == 0 else f"{value:.1g}"
    )


def ends(interval: Sequence[float] | None) -> str:
    """Write an interval or a range."""
    return f"{number(interval[0])} to {number(interval[1])}" if interval else ""


def with_ends(effect: float | None, interval: Sequence[float] | None, unit: str) -> str:
    """Write an effect with its interval, where there is one, and its unit."""
    return f"{number(effect)}{f' ({ends(interval)})' if interval else ''} {unit}"


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


def reverses_when(advice: Advice) -> str:
    """Say for which configurations and under which conditions there is no gain."""
    asked, worth = advice.recommendation, advice.recommendation.worth
    idle = [name for name, gain in advice.gains.items() if gain is not None and gain < worth]
    arms = [f"({words}): {number(gain)} %" for words, gain in advice.arms if gain is not None and gain < worth]
    grows = [
        f"({words}): {number(gain)} %"
        for words, gain in advice.arms
        if gain is not None and advice.gain is not None and gain >= worth > advice.gain
    ]
    parts = []
    if idle:
        parts.append(f"gain below {worth:g} % for {listed(idle)}")
    if arms:
        parts.append(f"median gain below {worth:g} % at {listed(arms)}")
    if grows:
        parts.append(f"median gain above {worth:g} % at {listed(grows)}")
    if not parts:
        tried = f" under {len(asked.arms) + 1} conditions" if asked.arms else ""
        return f"not observed in {len(advice.gains)} configurations{tried}"
    return "; ".join(parts)
