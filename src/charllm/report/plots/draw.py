"""A figure of a page in characters: one function a kind, as the browser has one file a kind."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from charllm.report.colour import BOLD, RESET
from charllm.report.figure import Figure
from charllm.report.plots.bars import Bar, draw_bars, draw_signed_bars
from charllm.report.plots.columns import rows_of, values_of, writer_of
from charllm.report.plots.grid import draw_grid
from charllm.report.plots.lines import Panel, draw_panel, draw_x_axis, margin_of, tell_band
from charllm.report.plots.marks import marks_of
from charllm.report.plots.meters import Case, Meter, draw_meters
from charllm.report.plots.nodes import Slot, draw_nodes
from charllm.report.plots.pen import Pen
from charllm.report.plots.scale import Scale
from charllm.report.plots.scatter import draw_scatter
from charllm.report.plots.timeline import draw_timeline
from charllm.report.tables import render_table, wrap
from charllm.units import format_change

MOST_ROWS = 12
"""Rows of a table, bars of a tornado: the rest is counted."""


def draw_figure(figure: Figure, pen: Pen) -> str:
    """Return a figure as text: its question, what to see, the drawing; or why there is none."""
    title = f"{BOLD}{figure.question}{RESET}" if pen.has_colour else figure.question
    head = [title, *wrap(figure.message, pen.width)]
    if figure.missing or figure.kind not in DRAWN:
        return "\n".join(head)
    return "\n".join([*head, *DRAWN[figure.kind](figure, pen)])


def draw_stacked_bars(figure: Figure, pen: Pen) -> list[str]:
    """Draw bars in parts against a limit."""
    options, column = figure.options, figure.columns[figure.options["value"]]
    bars: dict[str, dict[str, float]] = {}
    keys = zip(values_of(figure, options["bar"]), values_of(figure, options["part"]), column.values, strict=True)
    for bar, part, value in keys:
        bars.setdefault(str(bar), {})[str(part)] = value or 0.0
    marks = marks_of(
        options.get("order") or [part for parts in bars.values() for part in parts], pen, options["palette"]
    )
    limit = options.get("limit")
    unit = options.get("unit") or column.unit
    write = writer_of([sum(parts.values()) for parts in bars.values()], column, unit)
    found = [Bar(name, parts, write(sum(parts.values()))) for name, parts in bars.items()]
    at = (str(limit["label"]), float(limit["value"])) if limit else None
    return draw_bars(found, marks, pen, limit=at, names=options.get("labels", {}))


def draw_band_panels(figure: Figure, pen: Pen) -> list[str]:
    """Draw bands of minimum, mean and maximum over a common axis."""
    x = figure.columns[figure.options["x"]]
    panels = [
        Panel(
            panel["label"],
            panel["unit"],
            values_of(figure, panel["mean"]),
            values_of(figure, panel["low"]) if panel.get("low") else (),
            values_of(figure, panel["high"]) if panel.get("high") else (),
            {line["label"]: line["value"] for line in panel.get("lines", [])},
            bool(panel.get("from_zero")),
        )
        for panel in figure.options["panels"]
    ]
    margin = margin_of(panels)
    across = Scale(min(x.values), max(x.values), pen.width - margin - 2)
    lines = [line for panel in panels for line in draw_panel(panel, x.values, across, margin, pen)]
    return [*lines, *draw_x_axis(across, x.unit, margin, pen), *tell_band(panels, pen)]


def draw_node_map(figure: Figure, pen: Pen) -> list[str]:
    """Draw nodes as they stand, with the value of each GPU."""
    options, value = figure.options, figure.columns[figure.options["value"]]
    names = ("node", "row", "place", options["value"], "ring")
    slots = [
        Slot(f"node {node}" if str(node).isdigit() else str(node), int(row), int(place), float(number), bool(ring))
        for node, row, place, number, ring in rows_of(figure.columns, names)
        if number is not None
    ]
    front, rear = ("front", "rear") if options.get("airflow") else ("", "")
    said = [f"{options['label']}, {options['unit'] or value.unit}"]
    said += [f"inlet {options['inlet']}"] if options.get("inlet") else []
    said += ["ring (> <): bottleneck"] if any(slot.paces for slot in slots) else []
    said += [options["more"]] if options.get("more") else []
    return [*draw_nodes(slots, pen, front=front, rear=rear), *wrap("; ".join(said), pen.width)]


def draw_multiples(figure: Figure, pen: Pen) -> list[str]:
    """Draw a block a facet: a row a case, and beside it a number and a bar for each metric."""
    options = figure.options
    rows = [str(row) for row in values_of(figure, options["row"])]
    facets = [str(facet) for facet in values_of(figure, options["facet"])] if options.get("facet") else [""] * len(rows)
    notes = values_of(figure, options["note"]) if options.get("note") else [""] * len(rows)
    columns = [(panel, figure.columns[panel["column"]]) for panel in options["panels"]]
    meters = [
        Meter(panel["label"], panel["unit"], column.values, writer_of(column.values, replace(column, unit="")))
        for panel, column in columns
    ]
    cases = [
        Case(facet, row.removeprefix(f"{facet} "), str(note or ""))
        for facet, row, note in zip(facets, rows, notes, strict=True)
    ]
    return draw_meters(cases, meters, pen)


def draw_tornado(figure: Figure, pen: Pen) -> list[str]:
    """Draw signed bars, the best first; those that do not fit in memory are only shaded."""
    rows = _changes(figure)
    known = [row for row in rows if row[1] is not None][:MOST_ROWS]
    bars = [
        Bar(str(name), {"": float(effect)}, f"{format_change(effect)}{_percent_ends(low, high)}")
        for name, effect, _, low, high in known
    ]
    if not bars:
        return ["no change is known"]
    grey = frozenset(str(name) for name, _, fit, *_ in known if not fit)
    more = [f"({len(rows) - len(known)} more changes not shown)"] if len(rows) > len(known) else []
    shaded = [f"{pen.pick('░', '-')} does not fit in memory"] if grey else []
    return [*draw_signed_bars(bars, pen, grey), *shaded, *more]


def _changes(figure: Figure) -> list[tuple[Any, ...]]:
    """Return change, effect, whether it fits, and the ends of its interval; what a figure does not say is assumed."""
    options, count = figure.options, len(values_of(figure, figure.options["change"]))
    default = {"fits": [True] * count, "low": [None] * count, "high": [None] * count}
    names = ("change", "effect", "fits", "low", "high")
    return list(
        zip(*(values_of(figure, options[name]) if name in options else default[name] for name in names), strict=True)
    )


def _percent_ends(low: float | None, high: float | None) -> str:
    """Write the interval of an effect, where it is known."""
    return "" if low is None or high is None else f" ({100 * low:+.0f} to {100 * high:+.0f})".rjust(13)


def draw_sides(figure: Figure, pen: Pen) -> list[str]:
    """Draw the runs of a comparison side by side: bars from zero, each metric on a scale of its own."""
    options = figure.options
    rows = rows_of(figure.columns, [options[key] for key in ("metric", "run", "value", "unit")])
    known = [(str(metric), str(run), float(value), str(unit)) for metric, run, value, unit in rows if value is not None]
    left = max((len(metric) for metric, *_ in known), default=0)
    bars: list[Bar] = []
    for metric in dict.fromkeys(row[0] for row in known):
        mine = [row for row in known if row[0] == metric]
        first, most = mine[0][2], max(abs(value) for _, _, value, _ in mine) or 1.0
        write = writer_of([value for _, _, value, _ in mine], None, mine[0][3])
        for place, (_, run, value, _) in enumerate(mine):
            change = _change(first, value, mine[0][3]) if place else ""
            title = metric.ljust(left) if place == 0 else " " * left
            bars.append(Bar(f"{title}  {run}", {"value": max(0.0, value) / most}, f"{write(value)}{change.rjust(12)}"))
    return draw_bars(bars, marks_of(["value"], pen), pen)


def _change(first: float, value: float, unit: str) -> str:
    """Say how far a value lies from the first: degrees and shares by their difference, all else by their ratio."""
    if unit in ("C", "%"):
        return f"{value - first:+.1f} {'K' if unit == 'C' else 'points'}"
    return format_change(value / first - 1) if first else ""


def draw_table(figure: Figure, pen: Pen) -> list[str]:
    """Lay out the first rows of a table."""
    columns = list(figure.columns.values())
    rows = list(zip(*(column.values for column in columns), strict=True))
    cells = [
        ["-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value) for value in row]
        for row in rows[:MOST_ROWS]
    ]
    headings = [f"{column.label}{f', {column.unit}' if column.unit else ''}" for column in columns]
    more = [f"({len(rows) - MOST_ROWS} more rows not shown)"] if len(rows) > MOST_ROWS else []
    # The question stands above the table in place of a title.
    return [*render_table("", headings, cells, width=pen.width).split("\n")[1:], *more]


def draw_commands(figure: Figure, pen: Pen) -> list[str]:
    """Write texts that are to be copied, each under what it is for."""
    rows = rows_of(figure.columns, [figure.options[name] for name in ("label", "text")])
    return [
        line
        for label, text in rows
        for line in (f"{label}:", *(each for part in str(text).split("\n") for each in wrap(part, pen.width)))
    ]


DRAWN: Mapping[str, Callable[[Figure, Pen], list[str]]] = {
    "stacked-bars": draw_stacked_bars,
    "timeline": draw_timeline,
    "bands": draw_band_panels,
    "node-map": draw_node_map,
    "heatmap": draw_grid,
    "scatter": draw_scatter,
    "multiples": draw_multiples,
    "tornado": draw_tornado,
    "sides": draw_sides,
    "table": draw_table,
    "commands": draw_commands,
}
"""How each kind of figure is drawn."""
