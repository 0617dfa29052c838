"""A result in a few lines, for a Python prompt and for a notebook."""

from html import escape
from textwrap import shorten
from typing import TYPE_CHECKING

from charllm.result.answers import answer_lines, describe_spec, notable_warnings

if TYPE_CHECKING:
    from charllm.result.result import RunResult

LONGEST = 300
Line = tuple[str, str]
"""Label and text."""


def brief_lines(result: "RunResult") -> list[Line]:
    """Return what was run, its answers, and its warnings."""
    notable = notable_warnings(result)
    lines = [("Run", describe_spec(result.spec)), *answer_lines(result)]
    lines += [("Warning", warning) for warning in notable]
    unknown = len(result.warnings) - len(notable)
    lines += [("Not known", f"{unknown} metrics; `warnings` has the reason of each")] if unknown else []
    return [(label, shorten(text, LONGEST, placeholder=" ...")) for label, text in lines]


def write_text(result: "RunResult") -> str:
    """Write the lines for a terminal."""
    lines = brief_lines(result)
    width = max(len(label) for label, _text in lines)
    return "\n".join([f"{result.origin} run", *(f"  {label.ljust(width)}  {text}" for label, text in lines)])


def write_html(result: "RunResult") -> str:
    """Write the lines for a notebook."""
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(label)}</th><td style="text-align:left">{escape(text)}</td></tr>'
        for label, text in brief_lines(result)
    )
    return f"<table><caption>charllm: {escape(result.origin)} run</caption>{cells}</table>"
