"""Bands of lowest, mean and highest over time."""

from charllm.report.figure import Figure
from charllm.report.svg.legend import draw_legend
from charllm.report.svg.pen import line, polyline, series, text, ticks, write_tick

TALL, LEFT, GAP = 220.0, 60.0, 40.0
ENDS = ("high", "mean", "low")


def draw_bands(figure: Figure, width: float) -> tuple[list[str], float]:
    """Return one panel below the other on a common axis, a line for each end of the band and its mean."""
    options, table = figure.options, figure.columns
    x = table[options["x"]]
    least, most = float(min(x.values)), float(max(x.values))
    found: list[str] = []
    y = 0.0
    for panel in options["panels"]:
        ends = [end for end in ENDS if panel.get(end)]
        items = [(table[panel[end]].label, series(at), "") for at, end in enumerate(ends)]
        legend, high = draw_legend(items, width)
        found += [f'<g transform="translate(0,{y + 18:g})">{"".join(legend)}</g>',
                  text(0, y + 6, f"{panel['label']}, {panel['unit']}", weight=650)]  # fmt: skip
        top = y + 18 + high
        known = [value for end in ends for value in table[panel[end]].values if value is not None]
        bottom_value, top_value = (0.0 if panel.get("from_zero") else min(known)), max(known)
        span = (top_value - bottom_value) or 1.0

        def across(value: float) -> float:
            return LEFT + (value - least) / (float(most - least) or 1.0) * (width - LEFT - 10)

        def down(value: float, top: float = top, low: float = bottom_value, span: float = span) -> float:
            return top + TALL - (value - low) / span * TALL

        for tick in ticks(bottom_value, top_value):
            found += [line(LEFT, down(tick), width - 10, down(tick)),
                      text(LEFT - 6, down(tick), write_tick(tick), anchor="end")]  # fmt: skip
        for at, end in enumerate(ends):
            points = zip(x.values, table[panel[end]].values, strict=True)
            found.append(polyline([(across(t), down(v)) for t, v in points if v is not None], series(at)))
        for tick in ticks(least, most, 8):
            found.append(text(across(tick), top + TALL + 12, write_tick(tick), anchor="middle"))
        y = top + TALL + GAP
    found.append(text(width - 10, y - 8, f"{x.label}, {x.unit}", anchor="end", weight=650))
    return found, y + 4
