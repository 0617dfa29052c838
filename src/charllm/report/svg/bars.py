"""Stacked bars from zero."""

from charllm.report.figure import Figure
from charllm.report.page.quantity import write_number
from charllm.report.svg.legend import draw_legend
from charllm.report.svg.pen import line, part, rect, text, text_width, ticks, write_tick

THICK, PITCH, GAP = 15.0, 20.0, 9.0


def draw_bars(figure: Figure, width: float) -> tuple[list[str], float]:
    """Return one bar a row, its parts in the same order and colours in all."""
    options, table = figure.options, figure.columns
    value = table[options["value"]]
    bars: dict[str, dict[str, float]] = {}
    groups: dict[str, str] = {}
    named = table[options["group"]].values if options.get("group") else [""] * len(value.values)
    for bar, key, number, group in zip(
        table[options["bar"]].values, table[options["part"]].values, value.values, named, strict=True
    ):
        bars.setdefault(str(bar), {}).setdefault(str(key), 0.0)
        bars[str(bar)][str(key)] += number or 0.0
        groups[str(bar)] = str(group)
    keys = list(dict.fromkeys(key for parts in bars.values() for key in parts))
    order = [str(key) for key in options.get("order", ()) if str(key) in keys]
    order += [key for key in keys if key not in order]
    order = [key for key in order if any(parts.get(key) for parts in bars.values())]
    labels = options.get("labels", {})
    fills = {key: part(str(options.get("palette", "series")), key, at) for at, key in enumerate(order)}
    found, top = draw_legend([(labels.get(key, key), fills[key], "") for key in order], width)
    left = min(max((text_width(name) for name in bars), default=0.0) + 10, 0.4 * width)
    most = max((sum(parts.values()) for parts in bars.values()), default=0.0) or 1.0
    unit = options.get("unit") or value.unit
    scale = (width - left - 70) / most
    y, last, marks = top, "", []
    for name, parts in bars.items():
        y += GAP if last and groups[name] != last else 0.0
        last = groups[name]
        x = left
        marks.append(text(left - 8, y + THICK / 2, name, anchor="end"))
        for key in order:
            if parts.get(key):
                tip = f"{name}: {labels.get(key, key)}, {parts[key]:.4g} {unit}"
                marks.append(rect(x, y, parts[key] * scale, THICK, fills[key], tip=tip))
                x += parts[key] * scale
        marks.append(text(x + 6, y + THICK / 2, write_number(sum(parts.values()))))
        y += PITCH
    for tick in ticks(0.0, most):
        x = left + tick * scale
        found += [line(x, top, x, y), text(x, y + 10, write_tick(tick), anchor="middle")]
    found.append(text(width - 70, y + 28, f"{value.label}, {unit}".removesuffix(", "), anchor="end", weight=650))
    return [*found, *marks], y + 40
