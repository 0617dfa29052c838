"""Points in the plane: letters for those with a key, the others counted, lines of reference under them."""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from charllm.report.plots.dots import Dots
from charllm.report.plots.lines import draw_x_axis, draw_y_axis
from charllm.report.plots.pen import Pen
from charllm.report.plots.scale import Scale, label, scale_of, ticks

LETTERS = string.ascii_uppercase + string.ascii_lowercase
ROWS = 14
FRONT_COLOUR, POINT_COLOUR, LINE_COLOUR = 208, 74, 245


@dataclass(frozen=True, slots=True)
class Point:
    """One point; those that are named get a letter."""

    x: float
    y: float
    name: str = ""
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis is of."""

    name: str
    unit: str
    is_log: bool = False

    @property
    def title(self) -> str:
        """Its name with the unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name


def letter_points(points: Sequence[Point]) -> dict[int, str]:
    """Give the named points letters, in order of x; return them by place in the list."""
    named = sorted((place for place, point in enumerate(points) if point.is_named), key=lambda place: points[place].x)
    return dict(zip(named, LETTERS, strict=False))


def draw_points(
    points: Sequence[Point],
    x: Axis,
    y: Axis,
    pen: Pen,
    *,
    lines: Sequence[Sequence[tuple[float, float]]] = (),
    levels: Sequence[float] = (),
    rows: int = ROWS,
) -> list[str]:
    """Draw points on labelled axes that hold all levels: the letter of a named one, else how many fall in the cell."""
    up = scale_of([*(point.y for point in points), *levels], rows, is_log=y.is_log, room=0.04)
    if up is None:
        return ["no point is known"]
    labels = {up.cell(tick): label(tick) for tick in ticks(up, max(2, rows // 3))}
    margin = max(map(len, labels.values()))
    across = scale_of([point.x for point in points], pen.width - margin - 3, is_log=x.is_log, room=0.03)
    assert across is not None
    dots = Dots(across.cells, rows, pen)
    for line in lines:
        _draw_line(dots, line, across, up)
    _put_points(dots, points, across, up)
    body = draw_y_axis(dots.lines(LINE_COLOUR), labels, margin, pen)
    return [y.title, *body, *draw_x_axis(across, "", margin, pen), x.title.rjust(margin + 2 + across.cells)]


def _put_points(dots: Dots, points: Sequence[Point], across: Scale, up: Scale) -> None:
    counts: dict[tuple[int, int], int] = {}
    for point in points:
        cell = across.cell(point.x), up.cell(point.y)
        counts[cell] = counts.get(cell, 0) + 1
    for cell, count in counts.items():
        many = next(mark for most, mark in ((1, "o"), (3, "8"), (9, "@"), (count, "#")) if count <= most)
        dots.put(*cell, many, POINT_COLOUR)
    for place, letter in reversed(letter_points(points).items()):
        dots.put(across.cell(points[place].x), up.cell(points[place].y), letter, FRONT_COLOUR)


def _draw_line(dots: Dots, line: Sequence[tuple[float, float]], across: Scale, up: Scale) -> None:
    """Draw a line through points, straight on the axes as they are; what lies outside is left out."""
    fine_x = Scale(across.low, across.high, dots.width, across.is_log)
    fine_y = Scale(up.low, up.high, dots.height, up.is_log)
    for (x0, y0), (x1, y1) in pairwise(line):
        first, last = (fine_x.fraction(x0), fine_y.fraction(y0)), (fine_x.fraction(x1), fine_y.fraction(y1))
        steps = 2 * max(dots.width, dots.height)
        for step in range(steps + 1):
            fx, fy = (one + (other - one) * step / steps for one, other in zip(first, last, strict=True))
            if 0 <= fx < 1 and 0 <= fy < 1:
                dots.dot(int(fx * dots.width), int(fy * dots.height))


def draw_key(points: Sequence[Point], told: Sequence[str]) -> list[str]:
    """Name the points that have letters, each with what is told of it."""
    return [f"{letter}  {points[place].name}: {told[place]}" for place, letter in letter_points(points).items()]
