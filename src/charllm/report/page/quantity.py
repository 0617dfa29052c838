"""Metrics as pages show them: columns of a figure's table, and numbers in sentences with three digits that matter."""

from collections.abc import Iterable, Mapping
from typing import Any

from charllm.report.figure import Column
from charllm.result.metrics import quantity
from charllm.units import format_percent


def is_number(value: Any) -> bool:
    """Tell whether a metric is a number, and not a verdict."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def metric_column(name: str, rows: Iterable[Mapping[str, Any]], digits: int | None = None) -> Column:
    """Return a metric of several runs as a column, in the unit in which people read it."""
    shown = quantity(name)
    return Column(shown.label, [shown.shown(row.get(name)) for row in rows], shown.unit, digits)


def write_value(name: str, value: Any) -> str:
    """Write a metric with its unit."""
    number = quantity(name).shown(value)
    return "unknown" if number is None else f"{write_number(number)} {quantity(name).unit}".rstrip()


def write_number(value: float) -> str:
    """Write a number with three digits that matter, and thousands apart: 2,736, 41.8, 0.0123."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def write_slower(ratio: float) -> str:
    """Say how far a throughput falls behind one that is `ratio` times as high: '12 % slower', '3.4 times slower'."""
    return f"{write_number(ratio)} times slower" if ratio >= 2 else f"{write_percent(1 - 1 / ratio)} slower"


def write_percent(fraction: float) -> str:
    """Write a fraction as a percentage, small ones with one digit more."""
    return format_percent(fraction, 0 if abs(fraction) >= 0.1 else 1)


def write_ratio(ratio: float) -> str:
    """Write how much larger something is: '12 %', or '3.4 times' from twice on."""
    return f"{write_number(ratio)} times" if ratio >= 2 else write_percent(ratio - 1)


def write_list(words: list[str], most: int = 5) -> str:
    """Join words as a sentence lists them; beyond `most` the rest is counted."""
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
