"""What colours and shapes mean, in lines above a drawing."""

from collections.abc import Sequence

from charllm.report.svg.pen import mark, rect, text, text_width

LINE = 20.0


def draw_legend(items: Sequence[tuple[str, str, str]], width: float) -> tuple[list[str], float]:
    """Return (label, colour, shape) items side by side, and the height that they take; no shape: a patch."""
    parts: list[str] = []
    x, y = 0.0, LINE / 2
    for label, fill, shape in items:
        wide = 22 + text_width(label) + 16
        if x and x + wide > width:
            x, y = 0.0, y + LINE
        parts.append(mark(x + 6, y, shape, fill) if shape else rect(x, y - 6, 12, 12, fill))
        parts.append(text(x + 20, y, label))
        x += wide
    return parts, (y + LINE / 2 + 4) if items else 0.0
