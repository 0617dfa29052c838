"""Scatter plots, on linear or logarithmic axes."""

import math
from collections.abc import Callable, Sequence

from charllm.report.figure import Figure
from charllm.report.svg.legend import draw_legend
from charllm.report.svg.pen import colour, line, mark, series, text, ticks, write_tick

HEIGHT, LEFT = 360.0, 70.0


def draw_points(figure: Figure, width: float) -> tuple[list[str], float]:
    """Return the points with both axes and the lines of peaks."""
    options, table = figure.options, figure.columns
    x, y = table[options["x"]], table[options["y"]]
    keys = [str(key) for key in table[options["colour"]].values] if options.get("colour") else [""] * len(x.values)
    kinds = list(dict.fromkeys(keys))
    found, top = draw_legend([(kind, series(at), "circle") for at, kind in enumerate(kinds) if kind], width)
    points = [point for point in zip(x.values, y.values, keys, strict=True) if None not in point]
    levels = [one["y"] for one in options.get("lines", ()) if "y" in one]
    across, x_ticks = _scale([p[0] for p in points], options.get("x_scale") == "log", LEFT, width - 10)
    down, y_ticks = _scale([*(p[1] for p in points), *levels], options.get("y_scale") == "log", top + HEIGHT, top + 16)
    for tick in x_ticks:
        found += [line(across(tick), top + 16, across(tick), top + HEIGHT),
                  text(across(tick), top + HEIGHT + 12, write_tick(tick), anchor="middle")]  # fmt: skip
    for tick in y_ticks:
        found += [
            line(LEFT, down(tick), width - 10, down(tick)),
            text(LEFT - 6, down(tick), write_tick(tick), anchor="end"),
        ]
    for one in options.get("lines", ()):
        if "y" in one:
            found.append(line(LEFT, down(one["y"]), width - 10, down(one["y"]), colour("ink"), 1, "5 3"))
            found.append(text(LEFT + 6, down(one["y"]) - 8, one["label"], size=11))
    found += [mark(across(px), down(py), "circle", series(kinds.index(key))) for px, py, key in points]
    found.append(text(0, top + 4, f"{y.label}, {y.unit}".removesuffix(", "), weight=650))
    found.append(
        text(width - 10, top + HEIGHT + 30, f"{x.label}, {x.unit}".removesuffix(", "), anchor="end", weight=650)
    )
    return found, top + HEIGHT + 40


def _scale(
    values: Sequence[float], log: bool, start: float, end: float
) -> tuple[Callable[[float], float], list[float]]:
    """Return where a value stands between two ends, and round numbers of the axis."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if log and low > 0:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high) + 1e-9)
        span = max(last - first, 1)
        return (lambda value: start + (math.log10(value) - first) / span * (end - start)), [
            10.0**power for power in range(first, first + span + 1)
        ]
    air = 0.05 * ((high - low) or abs(high) or 1.0)
    low, high = low - air, high + air
    return (lambda value: start + (value - low) / (high - low) * (end - start)), ticks(low, high)
