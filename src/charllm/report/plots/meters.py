"""Rows of numbers with a bar beside each: several metrics of the same cases, as many beside each other as fit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from charllm.report.plots.pen import Cell, Pen
from charllm.report.plots.scale import Scale

LEAST_BAR, LONGEST_BAR, LONGEST_NAME, GAP = 6, 24, 40, "  "
COLOUR = 74


class Case(NamedTuple):
    """What a row is of."""

    group: str
    name: str
    note: str = ""
    """Why it has no numbers."""


@dataclass(frozen=True, slots=True)
class Meter:
    """One metric of every case."""

    title: str
    unit: str
    values: Sequence[float | None]
    write: Callable[[float], str]

    @property
    def digits(self) -> int:
        """Width of its longest number."""
        return max((len(self.write(value)) for value in self.values if value is not None), default=1)

    def scale(self, cells: int) -> Scale:
        """Return the scale of its bars, from zero to the largest of all cases."""
        return Scale(0.0, max((value for value in self.values if value is not None), default=0.0) or 1.0, cells)


def draw_meters(cases: Sequence[Case], meters: Sequence[Meter], pen: Pen) -> list[str]:
    """Draw a row a case, grouped; metrics that have no room beside the others follow below."""
    left = min(max(len(text) for case in cases for text in case[:2]), LONGEST_NAME, pen.width // 3)
    lines: list[str] = []
    for together in _rows_of(meters, pen.width - left):
        spare = pen.width - left - sum(meter.digits + 1 + len(GAP) for meter in together)
        bar = max(LEAST_BAR, min(LONGEST_BAR, spare // len(together)))
        heads = [(meter.title, f"({meter.unit})" if meter.unit else "") for meter in together]
        lines += ["", *(_head(texts, together, left, bar, pen) for texts in zip(*heads, strict=True))]
        for group in dict.fromkeys(case.group for case in cases):
            lines += [group] if group else []
            lines += [
                f"{pen.cut(case.name, left).ljust(left)}{GAP}{_cells(case, row, together, bar, left, pen)}".rstrip()
                for row, case in enumerate(cases)
                if case.group == group
            ]
    return lines[1:]


def _head(texts: Sequence[str], meters: Sequence[Meter], left: int, bar: int, pen: Pen) -> str:
    widths = [meter.digits + 1 + bar for meter in meters]
    cells = [pen.cut(text, width).ljust(width) for text, width in zip(texts, widths, strict=True)]
    return f"{' ' * left}{GAP}{GAP.join(cells)}".rstrip()


def _rows_of(meters: Sequence[Meter], width: int) -> list[list[Meter]]:
    """Return the metrics that stand beside each other."""
    rows: list[list[Meter]] = []
    room = 0
    for meter in meters:
        needs = len(GAP) + meter.digits + 1 + LEAST_BAR
        if not rows or needs > room:
            rows.append([])
            room = width
        rows[-1].append(meter)
        room -= needs
    return rows


def _cells(case: Case, row: int, meters: Sequence[Meter], bar: int, left: int, pen: Pen) -> str:
    if all(meter.values[row] is None for meter in meters):
        return pen.cut(case.note or "-", pen.width - left - len(GAP))
    return GAP.join(_meter(meter, meter.values[row], bar, pen) for meter in meters)


def _meter(meter: Meter, value: float | None, bar: int, pen: Pen) -> str:
    """Return a number and its bar from zero."""
    if value is None:
        return "-".rjust(meter.digits) + " " * (bar + 1)
    filled = round(max(0.0, meter.scale(bar).fraction(value)) * bar)
    cells: list[Cell] = [(pen.pick("█", "#"), COLOUR)] * filled + [(" ", None)] * (bar - filled)
    return f"{meter.write(value).rjust(meter.digits)} {pen.colour(cells)}"
