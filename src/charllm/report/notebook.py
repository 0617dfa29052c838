"""A text view for a notebook: its tables as HTML tables, what stands between them as paragraphs."""

from collections.abc import Callable
from html import escape

from charllm.report.tables import COLLECTED, MARK, Table


def write_html(render: Callable[[], str]) -> str:
    """Return as HTML what a function renders as text."""
    tables: list[Table] = []
    token = COLLECTED.set(tables)
    try:
        parts = render().split("\n\n")
    finally:
        COLLECTED.reset(token)
    left = iter(tables)
    return "".join(_table(next(left)) if part == MARK else _paragraph(part) for part in parts)


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    caption = f'<caption style="text-align:left">{escape(table.title)}</caption>'
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _paragraph(text: str) -> str:
    return f'<p style="white-space:pre-line">{escape(text)}</p>'
