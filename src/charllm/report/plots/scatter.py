"""Any two metrics as points: those of the front, or marked ones, with letters and a key; lines of reference dotted."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from charllm.report.figure import Column, Figure
from charllm.report.plots.columns import values_of
from charllm.report.plots.pen import Pen
from charllm.report.plots.points import Axis, Point, draw_key, draw_points
from charllm.report.plots.scale import label
from charllm.report.tables import wrap

CROWDS = "o one point, 8 two or three, @ up to nine, # more"


def draw_scatter(figure: Figure, pen: Pen) -> list[str]:
    """Draw the points of a figure, what its lines are, and the key."""
    options = figure.options
    x, y = figure.columns[options["x"]], figure.columns[options["y"]]
    points = _points(figure, x, y)
    if not points:
        return ["no point is known"]
    axes = (
        Axis(x.label, x.unit, options.get("x_scale") == "log"),
        Axis(y.label, y.unit, options.get("y_scale") == "log"),
    )
    references = options.get("lines", [])
    ends = min(point.x for point in points), max(point.x for point in points)
    lines = [line for reference in references for line in _lines(reference, ends)]
    levels = [reference["y"] for reference in references if "y" in reference]
    said = "; ".join(reference["label"] for reference in references if reference.get("label"))
    key = draw_key(points, [_told(point, x, y) for point in points])
    return [
        *draw_points(points, *axes, pen, lines=lines, levels=levels),
        *(wrap(f"dotted: {said}", pen.width) if said else []),
        *wrap(CROWDS, pen.width),
        *(pen.cut(line, pen.width) for line in key),
    ]


def _points(figure: Figure, x: Column, y: Column) -> list[Point]:
    options, count = figure.options, len(x.values)
    flagged = next((options[name] for name in ("front", "marked") if options.get(name)), None)
    flags = values_of(figure, flagged) if flagged else [False] * count
    names = values_of(figure, options["name"]) if options.get("name") else [""] * count
    rows = [row for row in zip(x.values, y.values, names, flags, strict=True) if None not in row[:2]]
    return [Point(float(a), float(b), str(name), bool(flag)) for a, b, name, flag in rows]


def _lines(reference: Mapping[str, Any], ends: tuple[float, float]) -> Iterator[Sequence[tuple[float, float]]]:
    """Yield the lines of one reference from end to end: its points, a level, or a slope with its band."""
    if reference.get("points"):
        yield reference["points"]
    if "y" in reference:
        yield [(end, reference["y"]) for end in ends]
    if reference.get("slope"):
        band = reference.get("band_fraction")
        for factor in (1 - band, 1 + band) if band else (1.0,):
            yield [(end, reference["slope"] * factor * end) for end in ends]


def _told(point: Point, x: Column, y: Column) -> str:
    """Write both values of a point; values of one unit are told apart by name."""
    before = (f"{x.label} ", f"{y.label} ") if x.unit == y.unit else ("", "")
    return f"{before[0]}{label(point.x)} {x.unit}, {before[1]}{label(point.y)} {y.unit}"
