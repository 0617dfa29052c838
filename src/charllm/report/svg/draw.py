"""A figure as one SVG file: its question above, its caption below, axes with units between."""

from collections.abc import Callable, Mapping
from math import ceil

from charllm.report.figure import Figure
from charllm.report.page.quantity import write_number
from charllm.report.svg.bands import draw_bands
from charllm.report.svg.bars import draw_bars
from charllm.report.svg.multiples import draw_multiples
from charllm.report.svg.pen import FONT, SIZE, colour, rect, shade, text, text_width, wrap
from charllm.report.svg.points import draw_points

TALL, HEAD = 20.0, 24.0
GAP = 6.0
"""Least space between two labels."""
BAR_WIDE, BAR_STEPS = 160.0, 32
LEAST_TEXT = 34.0
DARK = 0.55
"""Shades below this carry white numbers."""


def draw_grid(figure: Figure, width: float) -> tuple[list[str], float]:
    """Return the cells with their numbers where there is room, and the range of colours above."""
    options, table = figure.options, figure.columns
    value = table[options["value"]]
    rings = table[options["ring"]].values if options.get("ring") else [False] * len(value.values)
    cells = list(zip(table[options["row"]].values, table[options["column"]].values, value.values, rings, strict=True))
    names = list(dict.fromkeys([*options.get("rows", ()), *(str(row) for row, *_ in cells)]))
    heads = list(dict.fromkeys(str(head) for _, head, *_ in cells))
    known = [number for _, _, number, _ in cells if number is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    unit = options.get("unit") or value.unit
    found, top = _colour_bar(options.get("label") or value.label, (low, high), unit)
    if options.get("ring"):
        found.append(text(0, top + 6, f"frame: {options.get('ring_label', '')}", fill=colour("ring")))
        top += 16
    left = min(max((text_width(name) for name in names), default=0.0) + 10, 0.42 * width)
    wide = (width - left) / max(len(heads), 1)
    every = max(1, ceil((max(map(text_width, heads), default=0.0) + GAP) / wide))
    found += [
        text(left + (at + 0.5) * wide, top + 12, head, anchor="middle", size=10)
        for at, head in enumerate(heads)
        if at % every == 0
    ]
    found += [text(left - 8, top + HEAD + TALL * (at + 0.5), name, anchor="end") for at, name in enumerate(names)]
    for row, head, number, ring in cells:
        x, y = left + wide * heads.index(str(head)), top + HEAD + TALL * names.index(str(row))
        fraction = (number - low) / (high - low) if number is not None and high > low else 0.5
        fill = "#ffffff" if number is None else shade(fraction)
        found.append(rect(x, y, wide - 1, TALL - 1, fill, tip=f"{row}, {head}: {number}"))
        if ring:
            found.append(rect(x + 1.5, y + 1.5, wide - 4, TALL - 4, "none", colour("ring")))
        if wide > LEAST_TEXT and number is not None:
            ink = "#ffffff" if fraction < DARK else "#111111"
            found.append(text(x + wide / 2, y + TALL / 2, write_number(number), anchor="middle", size=10, fill=ink))
    return found, top + HEAD + TALL * len(names)


def _colour_bar(label: str, ends: tuple[float, float], unit: str) -> tuple[list[str], float]:
    """Return a bar of all colours with its ends in words, and where what follows may begin."""
    low, high = (f"{f'{end:,.0f}' if abs(end) >= 1000 else f'{end:.3g}'} {unit}".rstrip() for end in ends)
    head = f"{label}: {low}"
    left, step = text_width(head) + GAP, BAR_WIDE / BAR_STEPS
    bar = [rect(left + at * step, 2, step + 0.5, 10, shade(at / (BAR_STEPS - 1))) for at in range(BAR_STEPS)]
    return [text(0, 8, head), *bar, text(left + BAR_WIDE + GAP, 8, high)], 20.0


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
