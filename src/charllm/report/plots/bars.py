"""Bars from zero: in parts with a character each, or to both sides of zero."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from charllm.report.plots.marks import Marks
from charllm.report.plots.pen import Cell, Pen
from charllm.report.plots.scale import Scale

LEAST = 8
"""Cells a bar has on the narrowest output."""
LONGEST_NAME = 36


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: what it is of, its parts from zero on, and the number beside it."""

    name: str
    parts: Mapping[str, float]
    text: str

    @property
    def total(self) -> float:
        """Where it ends."""
        return sum(self.parts.values())


def draw_bars(
    bars: Sequence[Bar],
    marks: Marks,
    pen: Pen,
    *,
    limit: tuple[str, float] | None = None,
    names: Mapping[str, str] | None = None,
) -> list[str]:
    """Draw bars one below the other on one scale, a rule at the limit, and say which character is which part."""
    left, right, cells = _columns(bars, pen)
    scale = Scale(0.0, max([bar.total for bar in bars] + ([limit[1]] if limit else [])) or 1.0, cells)
    lines = []
    for bar in bars:
        drawn = _parts(bar, marks, scale)
        if limit and (rule := scale.cell(limit[1])) >= len(drawn):
            drawn += [(" ", None)] * (rule - len(drawn)) + [(pen.pick("│", "|"), None)]
        lines.append(_line(bar, drawn, (left, right, cells), pen))
    if limit:
        lines.append(_under(limit[0], scale.cell(limit[1]), left, pen))
    shown = [part for part in marks if any(bar.parts.get(part, 0) > 0 for bar in bars)]
    return [*lines, *(draw_legend(shown, marks, pen, names or {}) if len(shown) > 1 else [])]


def draw_signed_bars(bars: Sequence[Bar], pen: Pen, grey: frozenset[str] = frozenset()) -> list[str]:
    """Draw bars to both sides of zero; those of the names in `grey` are only outlined."""
    left, right, cells = _columns(bars, pen)
    low, high = min(0.0, *(bar.total for bar in bars)), max(0.0, *(bar.total for bar in bars))
    scale = Scale(low, high if high > low else 1.0, cells)
    zero = min(cells - 1, round(scale.fraction(0.0) * cells))
    lines = []
    for bar in bars:
        end = min(cells, round(scale.fraction(bar.total) * cells))
        first, last = (zero + 1, max(zero + 1, end)) if bar.total >= 0 else (min(zero, end), zero)
        mark = pen.pick("░", "-") if bar.name in grey else pen.pick("█", "#")
        drawn: list[Cell] = [(mark if first <= cell < last else " ", 32) for cell in range(cells)]
        drawn[zero] = (pen.pick("│", "|"), None)
        lines.append(_line(bar, drawn, (left, right, cells), pen))
    return lines


def draw_legend(parts: Sequence[str], marks: Marks, pen: Pen, names: Mapping[str, str]) -> list[str]:
    """Say which character is which part, in as many lines as it takes."""
    lines: list[list[Cell]] = []
    for part in parts:
        mark, tone = marks[part]
        entry: list[Cell] = [
            (mark, tone),
            *((letter, None) for letter in f" {names.get(part, part.replace('_', ' '))}"),
        ]
        if lines and len(lines[-1]) + 3 + len(entry) <= pen.width:
            lines[-1] += [(" ", None)] * 3 + entry
        else:
            lines.append(entry)
    return [pen.colour(line) for line in lines]


def _columns(bars: Sequence[Bar], pen: Pen) -> tuple[int, int, int]:
    """Return how wide names, numbers and bars are; a narrow output cuts names."""
    right = max(len(bar.text) for bar in bars)
    left = min(max(len(bar.name) for bar in bars), LONGEST_NAME, max(4, pen.width - right - 4 - LEAST))
    return left, right, max(LEAST, pen.width - left - right - 4)


def _line(bar: Bar, drawn: list[Cell], columns: tuple[int, int, int], pen: Pen) -> str:
    left, right, cells = columns
    padded = [*drawn, *[(" ", None)] * (cells - len(drawn))]
    return f"{bar.name[:left].ljust(left)}  {pen.colour(padded)}  {bar.text.rjust(right)}".rstrip()


def _under(text: str, cell: int, left: int, pen: Pen) -> str:
    """Write a text that ends below a cell."""
    return f"{text} {pen.pick('┘', chr(39))}".rjust(left + 3 + cell)[: pen.width]


def _parts(bar: Bar, marks: Marks, scale: Scale) -> list[Cell]:
    """Return the characters of a bar: each part from where the one before it ends, to the nearest cell."""
    drawn: list[Cell] = []
    end = 0.0
    for part, mark in marks.items():
        end += bar.parts.get(part, 0.0)
        drawn += [mark] * (min(scale.cells, round(scale.fraction(end) * scale.cells)) - len(drawn))
    return drawn
