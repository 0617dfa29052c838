"""Values over time as lines: one panel a quantity, its band of minimum and maximum, its limits as rules."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from charllm.report.plots.dots import Dots
from charllm.report.plots.pen import Pen
from charllm.report.plots.scale import Scale, label, scale_of, ticks

LINE_COLOUR = 32
ROWS = 5


@dataclass(frozen=True, slots=True)
class Panel:
    """One quantity over the x axis; low and high may be missing."""

    name: str
    unit: str
    mean: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    rules: Mapping[str, float] = field(default_factory=dict)
    """Limits by what they are called, such as 'limit 700 W'."""
    from_zero: bool = False


def margin_of(panels: Sequence[Panel]) -> int:
    """Return how wide the labels of the y axes are."""
    scales = [scale for panel in panels if (scale := _scale(panel, ROWS))]
    return max((len(text) for scale in scales for text in _labels(scale).values()), default=0)


def draw_panel(panel: Panel, x: Sequence[float], across: Scale, margin: int, pen: Pen) -> list[str]:
    """Draw one quantity: its title with the limits, then rows of cells on a labelled axis."""
    rules = "; ".join(panel.rules)
    title = f"{panel.name}, {panel.unit}" + (f" ({pen.pick('─', '-')} {rules})" if rules else "")
    scale = _scale(panel, ROWS)
    if scale is None:
        return [f"{title}: not known"]
    dots = Dots(across.cells, ROWS, pen)
    for value in panel.rules.values():
        for column in range(across.cells):
            dots.shade(column, scale.cell(value), pen.pick("─", "-"))
    _draw_band(dots, panel, x, across, scale)
    _draw_mean(dots, panel, x, across, scale)
    return [pen.cut(title, pen.width), *draw_y_axis(dots.lines(LINE_COLOUR), _labels(scale), margin, pen)]


def tell_band(panels: Sequence[Panel], pen: Pen) -> list[str]:
    """Say what the shade behind a line is, where there is one."""
    return [f"{pen.pick('░', ':')} lowest to highest"] if any(panel.low for panel in panels) else []


def draw_y_axis(lines: Sequence[str], labels: Mapping[int, str], margin: int, pen: Pen) -> list[str]:
    """Set rows of cells, top first, behind an axis; labels by row from the bottom."""
    found = []
    for row, line in enumerate(lines):
        text = labels.get(len(lines) - 1 - row)
        axis = pen.pick("│", "|") if text is None else pen.pick("┤", "+")
        found.append(f"{(text or '').rjust(margin)} {axis}{line}".rstrip())
    return found


def draw_x_axis(across: Scale, unit: str, margin: int, pen: Pen) -> list[str]:
    """Draw the axis below panels that share it."""
    found = ticks(across, max(2, across.cells // 12))
    marks, texts = [pen.pick("─", "-")] * across.cells, [" "] * (across.cells + 12)
    end = -1
    for tick in found:
        cell, text = across.cell(tick), label(tick) + (f" {unit}" if tick == found[-1] and unit else "")
        begin = max(0, min(cell - len(label(tick)) // 2, across.cells - len(text)))
        if begin <= end:
            continue
        marks[cell] = pen.pick("┬", "+")
        texts[begin : begin + len(text)] = text
        end = begin + len(text)
    before = " " * (margin + 1)
    return [f"{before}{pen.pick('└', '+')}{''.join(marks)}", f"{before} {''.join(texts)}".rstrip()]


def _scale(panel: Panel, rows: int) -> Scale | None:
    values = [*panel.mean, *panel.low, *panel.high, *panel.rules.values()]
    return scale_of(values, rows, from_zero=panel.from_zero, room=0.02)


def _labels(scale: Scale) -> dict[int, str]:
    """Return the numbers beside the rows, by row from the bottom."""
    return {scale.cell(tick): label(tick) for tick in ticks(scale, max(2, scale.cells // 2 + 1))}


def _draw_band(dots: Dots, panel: Panel, x: Sequence[float], across: Scale, scale: Scale) -> None:
    """Shade from the lowest to the highest value, between moments as straight lines between them."""
    before: tuple[int, float, float] | None = None
    for place, low, high in zip(x, panel.low, panel.high, strict=False):
        if low is None or high is None:
            before = None
            continue
        here = across.cell(place), low, high
        for column, first, last in _between(before or here, here):
            for row in range(scale.cell(first), scale.cell(last) + 1):
                dots.shade(column, row, dots.pen.pick("░", ":"))
        before = here


def _between(first: tuple[int, float, float], last: tuple[int, float, float]) -> Iterator[tuple[int, float, float]]:
    """Yield the ends of a band in every column after the first up to the last."""
    steps = max(1, last[0] - first[0])
    for step in range(1, steps + 1):
        low, high = (first[end] + (last[end] - first[end]) * step / steps for end in (1, 2))
        yield min(last[0], first[0] + step), low, high


def _draw_mean(dots: Dots, panel: Panel, x: Sequence[float], across: Scale, scale: Scale) -> None:
    """Draw a line through the means: all that falls in one column of dots, and on to the next."""
    fine_x = Scale(across.low, across.high, dots.width)
    fine_y = Scale(scale.low, scale.high, dots.height)
    before: tuple[int, int] | None = None
    for place, value in zip(x, panel.mean, strict=True):
        if value is None:
            before = None
            continue
        here = fine_x.cell(place), fine_y.cell(value)
        if before is None:
            dots.dot(*here)
        else:
            _draw_between(dots, before, here)
        before = here


def _draw_between(dots: Dots, first: tuple[int, int], last: tuple[int, int]) -> None:
    steps = max(abs(last[0] - first[0]), 1)
    height = first[1]
    for step in range(1, steps + 1):
        up = round(first[1] + (last[1] - first[1]) * step / steps)
        dots.column(min(last[0], first[0] + step), min(height, up), max(height, up))
        height = up
