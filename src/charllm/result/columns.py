"""Tables by column, as results keep them, and the same by row."""

from collections.abc import Mapping, Sequence
from typing import Any

Columns = Mapping[str, Sequence[Any]]
"""A table by column; pandas, polars and matplotlib take it as it is."""
Row = dict[str, Any]


def rows_of(columns: Columns) -> list[Row]:
    """Return the rows of a table."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def columns_of(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return rows, each with a value for every name, as columns."""
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}
