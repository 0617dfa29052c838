"""A heatmap in characters: a number in each cell where they fit, the range of each row where they do not."""

from collections.abc import Sequence

from charllm.report.figure import Figure
from charllm.report.plots.columns import rows_of
from charllm.report.plots.pen import Pen
from charllm.report.tables import render_table, wrap

MOST_HEADS = 12
"""Columns from which rows are told by their ends."""


def draw_grid(figure: Figure, pen: Pen) -> list[str]:
    """Draw a row for each row of cells; a ringed cell has a star."""
    options = figure.options
    ringed = options.get("ring")
    names = [options["row"], options["column"], options["value"], *([ringed] if ringed else [])]
    cells: dict[str, dict[str, str]] = {name: {} for name in options.get("rows", ())}
    values: dict[str, list[float]] = {}
    for row, head, value, *ring in rows_of(figure.columns, names):
        if value is not None:
            cells.setdefault(str(row), {})[str(head)] = f"{value:.3g}{'*' if ring and ring[0] else ''}"
            values.setdefault(str(row), []).append(float(value))
    heads = list(dict.fromkeys(head for row in cells.values() for head in row))
    said = [", ".join(str(options[name]) for name in ("label", "unit") if options.get(name))]
    said += [f"*: {options.get('ring_label', 'ringed')}"] if ringed else []
    table: list[Sequence[str]]
    if len(heads) <= MOST_HEADS:
        head, table = ["", *heads], [[name, *(row.get(one, "-") for one in heads)] for name, row in cells.items()]
    else:
        head = ["", "lowest", "highest"]
        table = [[name, f"{min(found):.3g}", f"{max(found):.3g}"] for name, found in values.items()]
    return [*render_table("", head, table, width=pen.width).split("\n")[1:], *wrap("; ".join(said), pen.width)]
