"""Tables that fit the terminal: headings and texts wrap, then the least important columns are left out and named.

`render_table` is the only function that lays out columns; `to_csv` writes the same rows in full.
"""

import csv
import io
import re
import shutil
import textwrap
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from charllm.result.metrics import quantity
from charllm.spec.request import dotted_fields
from charllm.units import format_percent as format_percent

MAX_SHOWN = 12
PIPED_COLUMNS = 100
"""Width where no terminal says how wide it is."""
WIDEST = 400
"""No terminal is asked to be wider."""
GAP = "  "
LEAST_TEXT, LONGEST_WORD = 24, 40
"""Texts are wrapped to this width, or that of a word, before a column is left out."""
NUMBER = re.compile(r"[-+]?[\d,.]+(e[-+]?\d+)?( *[\d.]+)?( ?[%A-Za-z/]+)?|-|")
"""What is aligned to the right: a number, its share beside it or its unit; a dash; nothing."""
UNIT_SPACE, GLUE = re.compile(r"(?<=\d) (?=[%A-Za-z/]{1,5}\b|%)"), "\x00"
"""The space between a number and its unit, and what stands for it while a text is wrapped."""
Shown = TypeVar("Shown")


def terminal_columns() -> int:
    """Return the width to write for: COLUMNS where it is set, the terminal's, or 100 where output is piped."""
    return max(40, shutil.get_terminal_size((PIPED_COLUMNS, 24)).columns)


class Table(NamedTuple):
    """What a table is made of."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


COLLECTED: ContextVar[list[Table] | None] = ContextVar("COLLECTED", default=None)
"""Where tables go that are not laid out as text (report/notebook.py)."""
MARK = "\0"
"""Stands in the text for a table that was collected."""


def render_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    drop: Sequence[str] | None = None,
    where: str = "",
    width: int | None = None,
) -> str:
    """Lay rows out under a heading, numbers to the right, in at most `width` columns.

    `drop` names the columns that may be left out, the least important first (by default all but two, the last first);
    `where` is the flag that shows all, where there is one beside a wider terminal.
    """
    if (collected := COLLECTED.get()) is not None:
        collected.append(Table(title, columns, rows))
        return MARK
    width = width or terminal_columns()
    kept, dropped = _choose_columns(columns, rows, columns[:1:-1] if drop is None else drop, width)
    shown = [[row[index] for index in kept] for row in rows]
    names = [columns[index] for index in kept]
    widths = _fit(names, shown, width) or _squeezed(names, shown, width)
    right = [index for index in range(len(kept)) if _is_number([row[index] for row in shown], first=index == 0)]
    head = _lines(names, widths, right)
    rule = GAP.join("-" * each for each in widths).rstrip()
    body = [line for row in shown for line in _lines(row, widths, right)]
    parts = [*wrap(title, width), *head, rule, *body]
    if dropped:
        left_out = ", ".join(columns[index] for index in sorted(dropped))
        enough = bisect_left(range(WIDEST), True, width, key=lambda wide: _fit(columns, rows, wide) is not None)
        parts += wrap(
            f"(columns not shown: {left_out}; {where + ' or ' if where else ''}COLUMNS={enough} shows all)", width
        )
    return "\n".join(parts)


def _choose_columns(
    columns: Sequence[str], rows: Sequence[Sequence[str]], drop: Sequence[str], width: int
) -> tuple[list[int], list[int]]:
    """Return the columns that fit, and those left out: the least important go first, and return where room is left."""

    def fits(chosen: Sequence[int]) -> bool:
        cells = [[row[index] for index in chosen] for row in rows]
        return _fit([columns[index] for index in chosen], cells, width) is not None

    candidates = [list(columns).index(name) for name in drop if name in columns]
    # A column without a single entry goes first.
    candidates.sort(key=lambda index: any(row[index] not in ("", "-") for row in rows))
    kept, dropped = list(range(len(columns))), list[int]()
    while candidates and not fits(kept):
        dropped.append(candidates.pop(0))
        kept.remove(dropped[-1])
    for index in reversed(dropped):
        if fits(wider := sorted([*kept, index])):
            kept = wider
    return kept, [index for index in dropped if index not in kept]


def wrap(text: str, width: int | None = None, indent: str = "") -> list[str]:
    """Break a text at spaces, never between a number and its unit; inside a word only where it fills a line."""
    glued = UNIT_SPACE.sub(GLUE, text)
    lines = textwrap.wrap(glued, width or terminal_columns(), subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace(GLUE, " ") for line in lines] or [""]


def wrap_all(texts: Iterable[str]) -> list[str]:
    """Wrap each of several texts, its further lines set in."""
    return ["\n".join(wrap(text, indent="  ")) for text in texts]


def _fit(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return the width of each column so that all fit: as they are, with headings wrapped, with texts wrapped."""
    cells = [[row[index] for row in rows] for index in range(len(columns))]
    widths = [max(map(len, (name, *column))) for name, column in zip(columns, cells, strict=True)]
    spare = width - len(GAP) * (len(columns) - 1)
    least = [max([_longest_word(name), *map(len, column)]) for name, column in zip(columns, cells, strict=True)]
    widths = _shrink(widths, least, spare)
    least = [
        each if _is_number(column) else min(each, max(LEAST_TEXT, *(_longest_word(cell) for cell in (name, *column))))
        for name, column, each in zip(columns, cells, widths, strict=True)
    ]
    widths = _shrink(widths, least, spare)
    return widths if sum(widths) <= spare else None


def _squeezed(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return widths that fit whatever it takes: words are broken where nothing else is left to give."""
    widths = [max(map(len, (name, *(row[index] for row in rows)))) for index, name in enumerate(columns)]
    return _shrink(widths, [1] * len(widths), width - len(GAP) * (len(columns) - 1))


def _shrink(widths: Sequence[int], least: Sequence[int], spare: int) -> list[int]:
    """Take from the widest column that can still give, until all fit or none can."""
    found = list(widths)
    while sum(found) > spare:
        able = [index for index in range(len(found)) if found[index] > least[index]]
        if not able:
            break
        found[max(able, key=lambda index: found[index])] -= 1
    return found


def _longest_word(text: str) -> int:
    return min(LONGEST_WORD, max((len(word) for word in text.split()), default=1))


def _is_number(column: Sequence[str], *, first: bool = False) -> bool:
    """Tell whether a column holds numbers; the first one names the rows, whatever it holds."""
    return not first and all(NUMBER.fullmatch(cell) for cell in column)


def _lines(cells: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> list[str]:
    """Return one row of cells, over several lines where a cell is wider than its column."""
    pieces = [
        textwrap.wrap(cell, width, break_on_hyphens=False) or [""] if len(cell) > width else [cell]
        for cell, width in zip(cells, widths, strict=True)
    ]
    lines = []
    for line in range(max(map(len, pieces))):
        row = [piece[line] if line < len(piece) else "" for piece in pieces]
        padded = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(GAP.join(padded).rstrip())
    return lines


def metric_headings(names: Iterable[str]) -> list[str]:
    """Return the headings of columns of metrics."""
    return [quantity(name).heading for name in names]


def metric_cells(row: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return metrics of a row as they stand under their headings; a dash where one is not known."""
    return [quantity(name).cell(row.get(name)) for name in names]


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows under the names of all their fields, tables inside them as `outer.inner`; what is missing is empty."""
    flat = [{name: _csv_cell(value) for name, value in dotted_fields(row).items()} for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue().rstrip("\n")


def _csv_cell(value: Any) -> Any:
    return ";".join(map(str, value)) if isinstance(value, list | tuple) else value


def shown_ends(items: Sequence[Shown], what: str = "stages") -> tuple[list[Shown], str]:
    """Return the stages or nodes a table has room for, both ends of a long list, and how to say what is left out."""
    half = MAX_SHOWN // 2
    if len(items) <= MAX_SHOWN:
        return list(items), ""
    return [*items[:half], *items[-half:]], f" ({len(items) - 2 * half} {what} between not shown)"


def render_facts(facts: Sequence[tuple[str, str]], width: int | None = None) -> str:
    """Return labelled sentences, each wrapped beside its label."""
    width = width or terminal_columns()
    label_width = max(len(label) for label, _ in facts) + len(GAP)
    lines = []
    for label, text in facts:
        first, *rest = wrap(text, width - label_width)
        lines += [f"{label.ljust(label_width)}{first}", *(" " * label_width + line for line in rest)]
    return "\n".join(lines)
