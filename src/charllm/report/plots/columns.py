"""Reading the table behind a figure: its columns, rows of several of them, and how their numbers are written."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from charllm.report.figure import Column, Figure

MOST_PLACES = 8
"""Places after the point; smaller numbers are written with an exponent."""


def values_of(figure: Figure, name: str) -> Sequence[Any]:
    """Return the values of a column."""
    return figure.columns[name].values


def rows_of(columns: Mapping[str, Column], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows of some columns; none of an empty table."""
    return list(zip(*(columns[name].values for name in names), strict=True)) if columns else []


def writer_of(values: Iterable[float | None], column: Column | None = None, unit: str = "") -> Callable[[float], str]:
    """Return how to write values below each other: as many places as the largest needs for the digits that matter."""
    digits = column.digits if column is not None and column.digits is not None else 4
    unit = unit or (column.unit if column is not None else "")
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    places = max(0, digits - 1 - math.floor(math.log10(largest))) if largest > 0 else 0
    form = f",.{places}f" if places <= MOST_PLACES else f".{digits}g"
    return lambda value: f"{value:{form}} {unit}".rstrip()
