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
from charllm.units import format_percent, si_key

WRITTEN = re.compile(r"\s*([a-z0-9_.]+)\s*(<=|>=|<|>)\s*(\S+)\s*")


class Limit(NamedTuple):
    """A bound on one metric."""

    metric: str
    """SI name; ``name.key`` of a metric that holds a table."""
    sense: str
    """<, <=, > or >=."""
    value: float
    text: str
    """As it was written."""

    @property
    def upper(self) -> bool:
        """Whether it bounds the metric from above."""
        return self.sense.startswith("<")


def parse_limit(text: str) -> Limit:
    """Read ``memory_peak_gib<130``; the unit at the end of a metric may be any that units.py knows."""
    found = WRITTEN.fullmatch(text)
    if not found:
        raise SpecError("limit", text, "METRIC<VALUE with <, <=, > or >=, e.g. memory_peak_gib<130")
    name, sense, number = found.groups()
    metric, factor = _si_metric(name)
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SpecError(f"limit {name}", number, "a number")
    return Limit(metric, sense, value * factor, text.strip())


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
    lines = [line for limit in limits if (line := _killing(limit, candidates))]
    lines = lines or [line for pair in combinations(limits, 2) if (line := _contradiction(*pair, candidates))]
    if not lines and all(broken(limits, one.metrics) for one in candidates):
        words = ", ".join(limit.text for limit in limits)
        lines = [f"every two of the limits can be kept together, but none of {_count(candidates)} keeps all: {words}"]
    return "; ".join(lines) or f"some of {_count(candidates)} keep every limit"


def _killing(limit: Limit, candidates: Sequence[Candidate]) -> str:
    """Say that no candidate keeps a limit, and which comes nearest; nothing where one keeps it."""
    if any(keeps(limit, one.metrics) for one in candidates):
        return ""
    known = [one for one in candidates if metric_value(one.metrics, limit.metric) is not None]
    if not known:
        return f"{limit.text}: {limit.metric} is not known for any of {_count(candidates)}"
    return f"{limit.text}: none of the {_count(candidates)} meets the limit; {_nearest(limit, known)}"


def _contradiction(one: Limit, other: Limit, candidates: Sequence[Candidate]) -> str:
    """Say that two limits exclude each other, and what comes nearest to the second among those that keep the first."""
    if any(not broken((one, other), candidate.metrics) for candidate in candidates):
        return ""
    words = []
    for kept, lost in ((one, other), (other, one)):
        among = [candidate for candidate in candidates if keeps(kept, candidate.metrics)]
        words.append(f"of the {len(among)} that keep {kept.text}, {_nearest(lost, among)}")
    return f"{one.text} and {other.text} contradict each other: {'; '.join(words)}"


def _nearest(limit: Limit, candidates: Sequence[Candidate]) -> str:
    """Name the candidate that comes nearest to a limit, its value in the unit that was written, and how far it is."""
    known = [(value, one) for one in candidates if (value := metric_value(one.metrics, limit.metric)) is not None]
    if not known:
        return f"{limit.metric} is not known for any"
    value, best = min(known, key=lambda pair: _beyond(limit, pair[0]))
    scale = _si_metric(re.split("[<>]", limit.text)[0].strip())[1]
    far, asked = _beyond(limit, value) / scale, limit.value / scale
    share = f", {format_percent(far / abs(asked))}" if asked else ""
    beyond = f"{far:.4g}{share} {'above' if limit.upper else 'below'} the limit"
    return f"nearest: {value / scale:.4g} ({beyond}) with {name_strategy(best.run)}"


def _count(candidates: Sequence[Candidate]) -> str:
    return f"{len(candidates):,} strategies" if len(candidates) > 1 else "1 strategy"
