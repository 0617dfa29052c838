"""The tables of spellings.toml, and how a text finds its entry."""

import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from charllm.errors import CharllmError

HERE = Path(__file__).parent
Row = Mapping[str, str]
LARGEST = 16_777_216
"""Largest whole number that a column may hold: the longest sequence and the largest batch of a spec."""


class Unresolved(CharllmError):
    """A row that cannot be read: its message is the reason it is skipped."""


@lru_cache(maxsize=1)
def spellings() -> Mapping[str, Any]:
    """Load spellings.toml."""
    return tomllib.loads((HERE / "spellings.toml").read_text(encoding="utf-8"))


def find_pattern(table: str, text: str) -> Any:
    """Return the value of the first pattern of a table that is found in the text, or None."""
    lowered = text.lower()
    return next((value for pattern, value in spellings()[table].items() if re.search(pattern, lowered)), None)


def unresolved(column: str, found: str, expected: str) -> Unresolved:
    """Say which column cannot be read, what it holds and what is expected."""
    return Unresolved(
        f"{column}: got {found!r}; expected {expected}" if found else f"{column}: blank; expected {expected}"
    )


def read_real(row: Row, column: str) -> float | None:
    """Return a number of at least 0, None where the column is blank."""
    text = row.get(column, "").strip()
    if not text:
        return None
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = -1.0
    if not 0 <= value <= LARGEST:
        raise unresolved(column, text, f"a number from 0 to {LARGEST:,}")
    return value


def read_whole(row: Row, column: str) -> int | None:
    """Return a whole number of at least 0, None where the column is blank."""
    value = read_real(row, column)
    if value is not None and value != int(value):
        raise unresolved(column, row[column].strip(), f"a whole number from 0 to {LARGEST:,}")
    return None if value is None else int(value)


def needed(row: Row, column: str) -> int:
    """Return a whole number of at least 1, or raise Unresolved."""
    value = read_whole(row, column)
    if not value:
        raise unresolved(column, row.get(column, "").strip(), "a whole number of at least 1")
    return value
