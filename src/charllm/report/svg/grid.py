"""Heatmaps: a coloured cell for each pair of a row and a column."""

from charllm.report.figure import Figure
from charllm.report.page.quantity import write_number
from charllm.report.svg.legend import draw_legend
from charllm.report.svg.pen import CIVIDIS, colour, rect, shade, text, text_width

TALL, HEAD = 20.0, 24.0
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
    shown = [(f"{low:.3g} {unit}".rstrip(), CIVIDIS[0], ""), (f"{high:.3g} {unit}".rstrip(), CIVIDIS[-1], "")]
    found, top = draw_legend(
        [(f"{options.get('label') or value.label}: {shown[0][0]}", CIVIDIS[0], ""), shown[1]], width
    )
    if options.get("ring"):
        found.append(text(0, top + 6, f"frame: {options.get('ring_label', '')}", fill=colour("ring")))
        top += 16
    left = min(max((text_width(name) for name in names), default=0.0) + 10, 0.42 * width)
    wide = (width - left) / max(len(heads), 1)
    every = max(1, round(LEAST_TEXT / wide + 0.49))
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
