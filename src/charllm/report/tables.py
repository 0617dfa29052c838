"""Plain tables that read well in any terminal, in a log and without colour."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

MAX_STAGES = 12
Shown = TypeVar("Shown")


def render_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay rows out under a heading: the first column to the left, numbers to the right."""
    cells = [list(columns), *[list(row) for row in rows]]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    lines = [_line(row, widths) for row in cells]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([title, lines[0], rule, *lines[1:]])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first = row[0].ljust(widths[0])
    rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return "  ".join([first, *rest]).rstrip()


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows under the names of all their fields; what a row lacks stays empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def shown_ends(stages: Sequence[Shown]) -> tuple[list[Shown], str]:
    """Return the stages a table has room for, both ends of a long pipeline, and how to say what is left out."""
    half = MAX_STAGES // 2
    if len(stages) <= MAX_STAGES:
        return list(stages), ""
    return [*stages[:half], *stages[-half:]], f" ({len(stages) - 2 * half} stages between not shown)"


def format_percent(fraction: float) -> str:
    """Write a share with one place."""
    return f"{100 * fraction:.1f} %"
