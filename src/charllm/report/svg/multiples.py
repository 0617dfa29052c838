"""Small multiples: a block for each facet, a panel for each metric, points with their intervals."""

from typing import Any

from charllm.report.figure import Figure
from charllm.report.page.quantity import write_number
from charllm.report.svg.legend import draw_legend
from charllm.report.svg.pen import colour, line, mark, series, text, text_width, ticks, wrap, write_tick

PITCH, HEAD, FOOT, PAD = 17.0, 44.0, 30.0, 12.0
MOST_ACROSS = 4
SHAPES = ("circle", "triangle", "square")
ORIGINS = {"simulated": 0, "emulated": 1, "measured": 2}


def draw_multiples(figure: Figure, width: float) -> tuple[list[str], float]:
    """Return every facet below the one before, its panels side by side."""
    options = figure.options
    names = list(figure.columns)
    rows = [
        dict(zip(names, values, strict=True))
        for values in zip(*(column.values for column in figure.columns.values()), strict=True)
    ]
    kinds = _kinds(options, rows)
    found, y = draw_legend([(kind, *look) for kind, look in kinds.items()] if len(kinds) > 1 else [], width)
    facets = list(dict.fromkeys(row[options["facet"]] for row in rows)) if options.get("facet") else [""]
    left = min(max((text_width(str(row[options["row"]])) for row in rows), default=0.0) + 10, 0.42 * width)
    for facet in facets:
        own = [row for row in rows if not facet or row[options["facet"]] == facet]
        if facet:
            found.append(text(0, y + 10, str(facet), size=14, weight=650))
            y += 20
        labels = list(dict.fromkeys(str(row[options["row"]]) for row in own))
        panels = [panel for panel in options["panels"] if any(row[panel["column"]] is not None for row in own)]
        across = min(MOST_ACROSS, max(len(panels), 1))
        for start in range(0, max(len(panels), 1), across):
            bottom = y + HEAD + PITCH * len(labels)
            found += [
                text(left - 8, y + HEAD + PITCH * (at + 0.5), name, anchor="end") for at, name in enumerate(labels)
            ]
            found += _notes(own, labels, left, y + HEAD, width - left, options)
            for at, panel in enumerate(panels[start : start + across]):
                wide = (width - left) / across
                box = (left + at * wide, y + HEAD, wide, bottom)
                found += _panel(panel, own, labels, box, options, kinds)
            y = bottom + FOOT
    return found, y


def _kinds(options: Any, rows: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    name = options.get("shape") or options.get("colour")
    if not name:
        return {}
    keys = options.get("kinds") or list(dict.fromkeys(str(row[name]) for row in rows))
    return {
        key: (colour(f"origin-{key}") if key in ORIGINS else series(at), SHAPES[ORIGINS.get(key, at) % len(SHAPES)])
        for at, key in enumerate(keys)
    }


def _is_empty(row: dict[str, Any], options: Any) -> bool:
    return all(row[panel["column"]] is None for panel in options["panels"])


def _notes(rows: list[dict[str, Any]], labels: list[str], left: float, top: float, wide: float,
           options: Any) -> list[str]:  # fmt: skip
    """Return why rows are empty, once across all panels."""
    known = {str(row[options["row"]]) for row in rows if not _is_empty(row, options)}
    found = []
    for row in rows:
        name = str(row[options["row"]])
        if name not in known:
            y = top + PITCH * (labels.index(name) + 0.5)
            note = wrap(str(row.get(options.get("note", "")) or "-"), wide - PAD, 10)[0]
            found.append(text(left + PAD, y, note, size=10, fill=colour("quiet")))
    return found


def _panel(panel: Any, rows: list[dict[str, Any]], labels: list[str], box: tuple[float, float, float, float],
           options: Any, kinds: dict[str, tuple[str, str]]) -> list[str]:  # fmt: skip
    left, top, wide, bottom = box
    ends = [row.get(panel.get(end, "")) for row in rows for end in ("column", "low", "high")]
    known = [float(value) for value in (*ends, panel.get("threshold")) if value is not None]
    low, high = min(known), max(known)
    air = 0.08 * ((high - low) or abs(high) or 1.0)
    low, high = (max(0.0, low - air) if low >= 0 else low - air), high + air
    numbers = 44.0

    def place(value: float) -> float:
        return left + PAD + (value - low) / (high - low) * (wide - 2 * PAD - numbers)

    title = ", ".join(str(panel[name]) for name in ("label", "unit") if panel.get(name))
    heads = wrap(title, wide - PAD, 11)[-2:]
    found = [text(left + PAD, top - 26 + 13 * at, head, size=11, weight=650) for at, head in enumerate(heads)]
    for tick in ticks(low, high, 3 if wide < 300 else 6):
        x = place(tick)
        found += [line(x, top, x, bottom), text(x, bottom + 10, write_tick(tick), anchor="middle", size=10)]
    if low < 0 < high:
        found.append(line(place(0.0), top, place(0.0), bottom, colour("ink")))
    if panel.get("threshold") is not None:
        x = place(panel["threshold"])
        found.append(line(x, top, x, bottom, colour("quiet"), 1.2, "4 3"))
    told: set[str] = set()
    for row in rows:
        name = str(row[options["row"]])
        y = top + PITCH * (labels.index(name) + 0.5)
        value = row[panel["column"]]
        if value is None:
            if name not in told and not _is_empty(row, options):
                found.append(text(left + PAD, y, "-", size=10, fill=colour("quiet")))
            continue
        kind = str(row.get(options.get("shape") or options.get("colour") or "", ""))
        fill, shape = kinds.get(kind, (series(0), "circle"))
        ends_of = [row.get(panel.get(end, "")) for end in ("low", "high")]
        low_end, high_end = ends_of
        if low_end is not None and high_end is not None:
            found.append(line(place(low_end), y, place(high_end), y, colour("interval"), 1.4))
        found.append(mark(place(value), y, shape, fill, f"{row[options['row']]}: {value:.4g} {panel.get('unit', '')}"))
        if name not in told:
            # Further points of the same row are told by the legend and by their place.
            found.append(text(left + wide - 4, y, write_number(value), anchor="end", size=10))
            told.add(name)
    return found
