"""Limits on metrics, written as ``METRIC<VALUE``: which strategies keep them, and why none does."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from charllm.errors import SpecError, unknown_name
from charllm.plan.candidate import Candidate
from charllm.plan.strategy import name_strategy
from charllm.result.metric import metric_value
from charllm.result.metrics import PLAN_METRICS
from charllm.units import (
    DAY_S,
    GIGA,
    HOUR_S,
    KILO,
    KWH_J,
    MEGA,
    PERCENT,
    SUFFIXES,
    format_percent,
    si_key,
    split_suffix,
)

WRITTEN = re.compile(r"\s*([a-z0-9_.]+)\s*(<=|>=|<|>)\s*(?:([-+]?[\d.,]+(?:e[-+]?\d+)?)\s*([a-zA-Z%/]*)|(\S+))\s*")
UNITS: dict[str, tuple[str, float]] = {
    "%": ("fraction", PERCENT), "d": ("s", DAY_S), "day": ("s", DAY_S), "days": ("s", DAY_S), "h": ("s", HOUR_S),
    "hours": ("s", HOUR_S), "min": ("s", HOUR_S / 60), "gw": ("w", GIGA), "gwh": ("j", MEGA * KWH_J), "gj": ("j", GIGA),
}  # fmt: skip
"""Unit of a limit's value, in small letters: SI suffix and factor; beside the suffixes of units.py."""
MONEY = re.compile(r"([kmbg]?)([a-z]{3})?")
PREFIXES = {"": 1.0, "k": KILO, "m": MEGA, "b": GIGA, "g": GIGA}


class Limit(NamedTuple):
    """A bound on one metric."""

    metric: str
    """SI name; ``name.key`` of a metric that holds a table."""
    sense: str
    """<, <=, > or >=."""
    value: float
    text: str
    """As it was written."""
    scale: float = 1.0
    """One of the unit in which it was written, in SI."""
    unit: str = ""
    """The unit behind its value, where it has one."""

    @property
    def upper(self) -> bool:
        """Whether it bounds the metric from above."""
        return self.sense.startswith("<")


def parse_limit(text: str) -> Limit:
    """Read ``memory_peak_gib<130``; the unit at the end of a metric may be any that units.py knows."""
    found = WRITTEN.fullmatch(text)
    if not found:
        raise SpecError("limit", text, "METRIC<VALUE with <, <=, > or >=, e.g. memory_peak_gib<130")
    name, sense, number, unit, word = found.groups()
    metric, factor = _si_metric(name)
    factor = _unit_factor(metric, unit, text) if unit else factor
    try:
        value = float((number or word).replace(",", ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SpecError(f"limit {name}", word or number + unit, "a number, with or without a unit")
    return Limit(metric, sense, value * factor, text.strip(), factor, unit)


def _unit_factor(metric: str, unit: str, text: str) -> float:
    """Return the factor of a value's unit; one that is no unit of the metric is refused."""
    stem = metric.partition(".")[0]
    if stem.startswith("money_") or stem.endswith("_money"):
        found = MONEY.fullmatch(unit.lower())
        if found:
            return PREFIXES[found[1]]
        raise SpecError(f"limit {text}", unit, "money, such as 2M, 500k or 2MUSD")
    split = split_suffix(stem)
    own = split[1] if split else "fraction" if PLAN_METRICS[stem].unit == "%" else ""
    suffix, factor = UNITS.get(unit.lower(), SUFFIXES.get(unit.lower(), ("", 1.0)))
    if not own or suffix != own:
        known = [one for one, (si, _factor) in {**SUFFIXES, **UNITS}.items() if si == own]
        raise SpecError(f"limit {text}", unit, f"one of {', '.join(known)}" if own else "a number without a unit")
    return factor


def _si_metric(name: str) -> tuple[str, float]:
    """Return the SI name of a metric and the factor to it."""
    stem, dot, key = name.partition(".")
    metric, factor = si_key(stem)
    if metric not in PLAN_METRICS or not PLAN_METRICS[metric].is_number:
        raise unknown_name("limit", name, [known for known, one in PLAN_METRICS.items() if one.is_number])
    keys = PLAN_METRICS[metric].keys or ()
    if bool(keys) != bool(dot) or (dot and key not in keys):
        possible = f"{stem}.KEY, where KEY is one of {', '.join(keys)}" if keys else f"{stem}, which is one number"
        raise SpecError("limit", name, possible)
    return f"{metric}{dot}{key}", factor


def parse_limits(texts: Iterable[str]) -> tuple[Limit, ...]:
    """Read several limits; two that no value can keep are refused."""
    limits = tuple(map(parse_limit, texts))
    for one, other in combinations(limits, 2):
        low, high = (one, other) if other.upper else (other, one)
        if one.metric == other.metric and high.upper and not low.upper and not _some_value(low, high):
            asked = f"{low.text} and {high.text}"
            raise SpecError("limit", asked, f"limits on {one.metric} that some value keeps")
    return limits


def _some_value(low: Limit, high: Limit) -> bool:
    return low.value < high.value or (low.value == high.value and low.sense == ">=" and high.sense == "<=")


def keeps(limit: Limit, metrics: Mapping[str, Any]) -> bool | None:
    """Tell whether metrics keep a limit; None where the metric is not known."""
    value = metric_value(metrics, limit.metric)
    if value is None:
        return None
    beyond = _beyond(limit, value)
    return beyond < 0 or (beyond == 0 and limit.sense.endswith("="))


def broken(limits: Iterable[Limit], metrics: Mapping[str, Any]) -> list[Limit]:
    """List the limits that metrics break; a metric that is not known breaks its limit."""
    return [limit for limit in limits if not keeps(limit, metrics)]


def _beyond(limit: Limit, value: float) -> float:
    """Return how far a value lies on the wrong side of a limit; negative on the right side."""
    return value - limit.value if limit.upper else limit.value - value


def explain_infeasible(limits: Sequence[Limit], candidates: Sequence[Candidate]) -> str:
    """Say which limits no candidate keeps, and by how much; or which two of them contradict each other."""
    if not candidates:
        return "no strategy was simulated"
    judged = [Judged(name_strategy(one.run), one.metrics) for one in candidates]
    return explain_unmet(limits, judged, "strategy")


class Judged(NamedTuple):
    """What limits are held against: a strategy or a machine."""

    name: str
    metrics: Mapping[str, Any]


def explain_unmet(limits: Sequence[Limit], judged: Sequence[Judged], kind: str) -> str:
    """Say which limits none of several strategies or machines keeps, and which comes nearest; `kind` is its word."""
    count = _count(len(judged), kind)
    lines = [line for limit in limits if (line := _killing(limit, judged, count))]
    lines = lines or [line for pair in combinations(limits, 2) if (line := _contradiction(*pair, judged))]
    if not lines and all(broken(limits, one.metrics) for one in judged):
        words = ", ".join(limit.text for limit in limits)
        lines = [f"every two of the limits can be kept together, but none of {count} keeps all: {words}"]
    return "; ".join(lines) or f"some of {count} keep every limit"


def _killing(limit: Limit, judged: Sequence[Judged], count: str) -> str:
    """Say that none keeps a limit, and which comes nearest; nothing where one keeps it."""
    if any(keeps(limit, one.metrics) for one in judged):
        return ""
    known = [one for one in judged if metric_value(one.metrics, limit.metric) is not None]
    if not known:
        return f"{limit.text}: {limit.metric} is not known for any of {count}"
    return f"{_nearest(limit, known)}, which of {count} comes nearest to {limit.text}"


def _contradiction(one: Limit, other: Limit, judged: Sequence[Judged]) -> str:
    """Say that two limits exclude each other, and what comes nearest to the second among those that keep the first."""
    if any(not broken((one, other), each.metrics) for each in judged):
        return ""
    words = []
    for kept, lost in ((one, other), (other, one)):
        among = [each for each in judged if keeps(kept, each.metrics)]
        words.append(f"with {kept.text} {_nearest(lost, among)}")
    return f"{'; or '.join(words)}"


def _nearest(limit: Limit, judged: Sequence[Judged]) -> str:
    """Write the nearest limit that one of them keeps, in the unit that was written, how far it is, and who keeps it."""
    known = [(value, one) for one in judged if (value := metric_value(one.metrics, limit.metric)) is not None]
    if not known:
        return f"{limit.metric} is not known for any"
    value, best = min(known, key=lambda pair: _beyond(limit, pair[0]))
    far, shown = _beyond(limit, value), value / limit.scale
    share = f" ({format_percent(far / abs(limit.value))} {'above' if limit.upper else 'below'})" if limit.value else ""
    step = 10.0 ** (math.floor(math.log10(abs(shown))) - 3) if shown else 0.001
    # Rounded first, for 0.061 holds 6099.999... steps of 0.00001.
    steps = round(shown / step, 6)
    met = (math.floor(steps) + 1 if limit.upper else math.ceil(steps) - 1) * step
    written = WRITTEN.fullmatch(limit.text)
    name = written[1] if written else limit.metric
    return f"{name}{limit.sense}{met:.5g}{limit.unit}{share}, met by {best.name}"


def _count(number: int, kind: str) -> str:
    several = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return f"1 {kind}" if number == 1 else f"{number:,} {several}"
