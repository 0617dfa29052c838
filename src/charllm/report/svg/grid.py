"""Heatmaps: a coloured cell for each pair of a row and a column."""

from math import ceil

from charllm.report.figure import Figure
from charllm.report.page.quantity import write_number
from charllm.report.svg.pen import colour, rect, shade, text, text_width

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
    low, high = (f"{end:.3g} {unit}".rstrip() for end in ends)
    head = f"{label}: {low}"
    left, step = text_width(head) + GAP, BAR_WIDE / BAR_STEPS
    bar = [rect(left + at * step, 2, step + 0.5, 10, shade(at / (BAR_STEPS - 1))) for at in range(BAR_STEPS)]
    return [text(0, 8, head), *bar, text(left + BAR_WIDE + GAP, 8, high)], 20.0
