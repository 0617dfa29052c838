"""What happens when: the lanes of a step, its beginning closer, and the signals of one GPU on the same axis."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from charllm.report.figure import Figure
from charllm.report.page.series import cut_bins, decimate, to_floats
from charllm.report.plots.bars import draw_legend
from charllm.report.plots.columns import rows_of
from charllm.report.plots.lanes import Span, beginning_s, draw_lanes
from charllm.report.plots.lines import Panel, draw_panel, draw_x_axis, margin_of, tell_band
from charllm.report.plots.marks import marks_of
from charllm.report.plots.pen import Pen
from charllm.report.plots.scale import Scale

LONGEST_GAP = 0.05
"""A line is broken where no reading lies within this share of its length."""
HELD = "limited by"


class Signal(NamedTuple):
    """A panel and the moments it has values at."""

    panel: Panel
    times_s: list[float]


def draw_timeline(figure: Figure, pen: Pen) -> list[str]:
    """Draw lanes and signals over one time axis, lanes first."""
    gpu = str(figure.options.get("gpu", ""))
    spans = [Span(*row) for row in rows_of(figure.tables["spans"], ("lane", "part", "start", "end"))]
    signals = _signals(figure, gpu, pen.width)
    limits = rows_of(figure.tables["limits"], ("gpu", "start", "end", "cause"))
    held = [Span(HELD, str(cause), start, end) for which, start, end, cause in limits if which == gpu and signals]
    lanes = [str(lane) for lane in figure.options["lanes"]] if spans else []
    names = [*lanes, *([HELD] if held else [])]
    margin = max([margin_of([signal.panel for signal in signals]), *map(len, names)])
    ends = [*(span.end_s for span in spans), *(time for signal in signals for time in signal.times_s)]
    across = Scale(0.0, max(ends), pen.width - margin - 2)
    labels = figure.options.get("labels", {})
    lines = _draw_step(spans, lanes, labels, across, margin, pen) if lanes else []
    if not signals:
        return lines
    return [*lines, *([""] if lines else []), gpu, *_draw_signals(signals, held, across, margin, pen)]


def _draw_step(
    spans: Sequence[Span], lanes: Sequence[str], labels: Mapping[str, str], across: Scale, margin: int, pen: Pen
) -> list[str]:
    """Draw all of a step, and its beginning where passes are too short to be told apart."""
    marks = marks_of([span.part for span in spans], pen, "part")
    lines = [*draw_lanes(spans, lanes, marks, across, margin, pen), *draw_x_axis(across, "s", margin, pen)]
    begins_s = beginning_s(spans, across.high, across.cells)
    if begins_s is not None:
        near = Scale(0.0, begins_s, across.cells)
        lines += ["", f"The first {begins_s:.2g} s", *draw_lanes(spans, lanes, marks, near, margin, pen)]
        lines += draw_x_axis(near, "s", margin, pen)
    return [*lines, *(draw_legend(list(marks), marks, pen, labels) if len(marks) > 1 else [])]


def _draw_signals(signals: Sequence[Signal], held: Sequence[Span], across: Scale, margin: int, pen: Pen) -> list[str]:
    """Draw a panel a signal, and below them what holds the clock down."""
    marks = marks_of([span.part for span in held], pen, "cause")
    lines = [line for panel, times_s in signals for line in draw_panel(panel, times_s, across, margin, pen)]
    lines += draw_lanes(held, [HELD], marks, across, margin, pen) if held else []
    legend = [*draw_legend(list(marks), marks, pen, {}), *tell_band([signal.panel for signal in signals], pen)]
    return [*lines, *draw_x_axis(across, "s", margin, pen), *legend]


def _signals(figure: Figure, gpu: str, most: int) -> list[Signal]:
    """Return the signals of one GPU: each a panel, over at most so many moments."""
    columns = figure.tables["signals"]
    found = []
    for name in ("power", "clock", "temperature"):
        rows = rows_of(columns, ("gpu", "t", name))
        known = [(time, value) for which, time, value in rows if which == gpu and value is not None]
        if known:
            limits = {line["label"]: line["value"] for line in figure.options.get("lines", {}).get(name, [])}
            found.append(_signal(name, columns[name].unit, known, limits, most))
    return found


def _signal(
    name: str, unit: str, known: Sequence[tuple[float, float]], limits: Mapping[str, float], most: int
) -> Signal:
    """Return readings as a panel; its line is broken where nothing was read for long."""
    times = to_floats([time for time, _ in known])
    bins = cut_bins(times, most)
    band = decimate(bins, to_floats([value for _, value in known]))
    longest_s = LONGEST_GAP * float(times.max() - times.min())
    found: list[tuple[float, float | None, float | None, float | None]] = []
    for moment in zip(bins.middle_s.tolist(), *(part.tolist() for part in band), strict=True):
        if math.isnan(moment[2]):
            continue
        if found and moment[0] - found[-1][0] > longest_s:
            found.append((found[-1][0], None, None, None))
        found.append(moment)
    at, low, mean, high = (list(column) for column in zip(*found, strict=True))
    ends = {"low": low, "high": high} if low != high else {}
    return Signal(Panel(name, unit, mean, rules=limits, from_zero=name == "power", **ends), at)
