"""A figure as one SVG file: its question above, its caption below, axes with units between."""

from collections.abc import Callable, Mapping

from charllm.report.figure import Figure
from charllm.report.svg.bands import draw_bands
from charllm.report.svg.bars import draw_bars
from charllm.report.svg.grid import draw_grid
from charllm.report.svg.multiples import draw_multiples
from charllm.report.svg.pen import FONT, SIZE, colour, text, wrap
from charllm.report.svg.points import draw_points

WIDTH, PAD, LINE = 960.0, 16.0, 16.0
BOLD = 1.15
"""Width of bold letters over that of plain ones."""
Drawing = tuple[list[str], float]
"""Marks, and the height that they take."""

DRAWN: Mapping[str, Callable[[Figure, float], Drawing]] = {
    "stacked-bars": draw_bars,
    "multiples": draw_multiples,
    "heatmap": draw_grid,
    "scatter": draw_points,
    "bands": draw_bands,
}
"""Kinds that have a file; tables, timelines and node maps stand in the report alone."""


def write_svg(figure: Figure) -> str:
    """Return a figure as an SVG document with a white ground."""
    inner = WIDTH - 2 * PAD
    marks, height = DRAWN[figure.kind](figure, inner)
    # Bold letters are wider than those that `wrap` counts with.
    title = wrap(figure.question, inner, 16 * BOLD)
    caption = wrap(" ".join(filter(None, (figure.message, figure.conditions))), inner)
    top = PAD + 22 * len(title) + 6
    whole = top + height + 14 + LINE * len(caption) + PAD
    parts = [text(PAD, PAD + 10 + 22 * at, line, size=16, weight=650) for at, line in enumerate(title)]
    parts.append(f'<g transform="translate({PAD:g},{top:g})">{"".join(marks)}</g>')
    below = top + height + 14
    parts += [
        text(PAD, below + LINE * (at + 0.5), line, size=SIZE, fill=colour("quiet")) for at, line in enumerate(caption)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:g}" height="{whole:.0f}" '
        f'viewBox="0 0 {WIDTH:g} {whole:.0f}" font-family="{FONT}">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )
