"""What happens when: a lane a stage, each cell the part that takes most of its time."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from charllm.report.plots.marks import Marks
from charllm.report.plots.pen import Cell, Pen
from charllm.report.plots.scale import Scale


class Span(NamedTuple):
    """A part of a step on one lane."""

    lane: str
    part: str
    start_s: float
    end_s: float


def draw_lanes(
    spans: Iterable[Span], lanes: Sequence[str], marks: Marks, across: Scale, margin: int, pen: Pen
) -> list[str]:
    """Draw the lanes of a time axis; nothing is skipped, however short: the cell goes to who takes most of it."""
    shares = share_cells(spans, across)
    lines = []
    for lane in lanes:
        cells: list[Cell] = []
        for cell in range(across.cells):
            parts = shares.get((lane, cell))
            cells.append(marks[max(parts, key=lambda part: parts[part])] if parts else (" ", None))
        lines.append(f"{lane[:margin].rjust(margin)} {pen.pick('│', '|')}{pen.colour(cells)}".rstrip())
    return lines


def share_cells(spans: Iterable[Span], across: Scale) -> dict[tuple[str, int], dict[str, float]]:
    """Return the seconds that each part takes of each cell of a lane."""
    shares: dict[tuple[str, int], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for span in spans:
        if span.end_s <= across.low or span.start_s >= across.high:
            continue
        for cell in range(across.cell(span.start_s), across.cell(span.end_s) + 1):
            low_s, high_s = across.bounds(cell)
            seconds = min(high_s, span.end_s) - max(low_s, span.start_s)
            if seconds > 0:
                shares[span.lane, cell][span.part] += seconds
    return shares


CELLS_EACH = 3
"""Cells that a short pass has at least."""


def beginning_s(spans: Sequence[Span], end_s: float, cells: int) -> float | None:
    """Return how much of a long step to draw so that its passes can be told apart; None where they already can."""
    lengths_s = sorted(span.end_s - span.start_s for span in spans if span.part in ("forward", "backward"))
    if not lengths_s:
        return None
    shown_s = lengths_s[len(lengths_s) // 4] * cells / CELLS_EACH
    return shown_s if shown_s < 0.7 * end_s else None
