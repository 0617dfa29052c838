"""Marks of a drawing as SVG text; colours are the light ones of the pages, read from the same file."""

import math
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files

FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
LETTER = 0.56
"""Width of a letter over the size of its font, about."""
SIZE = 12.0
SERIES = 8
CIVIDIS = ("#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838")
"""Every ninth of matplotlib's colour map (Nunez, Anderton, Renslow 2018)."""


@cache
def _tokens() -> dict[str, str]:
    text = (files("charllm.report.web") / "assets" / "tokens.css").read_text(encoding="utf-8")
    return dict(re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6})", text))


def colour(token: str) -> str:
    """Return the colour of a token of the pages."""
    return _tokens().get(token, _tokens()["ink"])


def series(place: int) -> str:
    """Return the colour of the next of some series."""
    return colour(f"series-{place % SERIES + 1}")


def part(palette: str, key: str, place: int) -> str:
    """Return the colour of a part of a stack: `tp_exposed` has that of `tp`."""
    word = re.sub(r"_(exposed|wait)$", "", key)
    return _tokens().get(f"{palette}-{word}") or series(place)


def shade(fraction: float) -> str:
    """Return the colour of a magnitude between 0 and 1."""
    at = min(max(fraction, 0.0), 1.0) * (len(CIVIDIS) - 1)
    low = min(int(at), len(CIVIDIS) - 2)
    ends = [[int(CIVIDIS[low + step][place : place + 2], 16) for place in (1, 3, 5)] for step in (0, 1)]
    mixed = [round(first + (at - low) * (last - first)) for first, last in zip(*ends, strict=True)]
    return "#" + "".join(f"{value:02x}" for value in mixed)


def text_width(text: str) -> float:
    """Return about how wide a text is."""
    return LETTER * SIZE * len(text)


def text(x: float, y: float, content: str, *, anchor: str = "start", size: float = SIZE, fill: str = "",
         weight: int = 400) -> str:  # fmt: skip
    """Return a text, centred on its line."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" dy="0.35em" font-size="{size:g}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="{fill or colour("ink")}">{escape(content)}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = "", width: float = 1.0, dash: str = "") -> str:
    """Return a line."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{stroke or colour("grid")}" stroke-width="{width:g}"{dashed}/>'
    )


def rect(x: float, y: float, width: float, height: float, fill: str, stroke: str = "none", tip: str = "") -> str:
    """Return a rectangle, with what a pointer over it reads."""
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.0):.1f}" height="{height:.1f}" fill="{fill}" '
        f'stroke="{stroke}" stroke-width="{2 if stroke != "none" else 0}">{title}</rect>'
    )


def mark(x: float, y: float, shape: str, fill: str, tip: str = "") -> str:
    """Return a point of some shape."""
    title = f"<title>{escape(tip)}</title>" if tip else ""
    if shape == "triangle":
        return f'<path d="M{x:.1f},{y - 5:.1f}l5,9h-10z" fill="{fill}">{title}</path>'
    if shape == "square":
        return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{fill}">{title}</rect>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}">{title}</circle>'


def polyline(points: Sequence[tuple[float, float]], stroke: str) -> str:
    """Return a line through points."""
    listed = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{listed}" fill="none" stroke="{stroke}" stroke-width="1.8"/>'


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers between two ends."""
    if not math.isfinite(low + high) or high <= low:
        return [low]
    raw = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(times * power for times in (1, 2, 2.5, 5, 10) if times * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    found = []
    while first * step <= high + 1e-9 * step:
        found.append(first * step)
        first += 1
    return found


def write_tick(value: float) -> str:
    """Write a round number shortly."""
    return (
        f"{value:,.0f}"
        if abs(value) >= 1000
        else f"{value:.10g}"
        if abs(value) >= 1e-4 or value == 0
        else f"{value:.0e}"
    )


def wrap(content: str, width: float, size: float = SIZE) -> list[str]:
    """Cut a text into lines of some width."""
    most = max(int(width / (LETTER * size)), 10)
    lines, now = [], ""
    for word in content.split():
        if now and len(now) + 1 + len(word) > most:
            lines.append(now)
            now = word
        else:
            now = f"{now} {word}".strip()
    return [*lines, now] if now else lines
