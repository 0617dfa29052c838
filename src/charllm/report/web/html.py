"""A page as one HTML file that opens without a network: its data once, as JSON, and the front end that draws it."""

import base64
import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from charllm.report.figure import KINDS, Column, Page

STYLES = ("vendor/uPlot.min.css", "tokens.css", "page.css")
LIBRARIES = ("vendor/uPlot.iife.min.js", "vendor/d3.min.js")
HELPERS = ("core.js", "paint.js", "address.js", "theme.js", "csv.js", "chart.js", "filter.js", "reader.js", "time.js")
DRAWINGS = tuple(f"draw/{kind}.js" for kind in KINDS)
SCRIPTS = (*LIBRARIES, *HELPERS, *DRAWINGS, "figure.js", "page.js")
"""Loaded in this order."""
LEAST_PACKED = 64
"""Values from which a column is packed: numbers as 32-bit floats, texts that repeat as places in a list."""
MOST_TEXTS = 2**16
NUMBERS = {int, float, type(None)}
PLAIN = {int, str, bool, type(None)}
"""Types whose values are written as they are; a float may not be finite."""
MOST_WHOLE = 10**7
"""Whole numbers below this come back whole from 32-bit floats."""

TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="charllm">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
 script-src 'unsafe-inline'; img-src data: blob:">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript>{answer}</noscript>
<main id="page"></main>
<script type="application/json" id="page-data">{data}</script>
<script>{script}</script>
<script>charllm.page.open();</script>
</body>
</html>
"""


def write_html(page: Page) -> str:
    """Return a page as one self-contained HTML file."""
    return TEMPLATE.format(
        title=html.escape(page.title),
        answer=html.escape(" ".join(page.answer)),
        style=style(),
        data=to_json(page),
        script=script(),
    )


def style() -> str:
    """Return the style sheets of the front end as one."""
    return "\n".join(_asset(name) for name in STYLES)


def script() -> str:
    """Return the scripts of the front end as one, libraries first."""
    return "\n;".join(_asset(name) for name in SCRIPTS)


def to_json(page: Page) -> str:
    """Write a page as JSON that may stand inside a script element: no character of it can end the element."""
    text = json.dumps(pack(page), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def pack(value: Any) -> Any:
    """Return a page, or a part of one, as plain tables: long columns packed, numbers that are not finite null."""
    value = _plain(value)
    if isinstance(value, Column):
        table = {"label": value.label, "values": _pack_values(value.values), "unit": value.unit, "digits": value.digits}
        return {name: part for name, part in table.items() if part not in ("", None)}
    if is_dataclass(value) and not isinstance(value, type):
        return {part.name: pack(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): pack(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [pack(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _pack_values(values: Sequence[Any]) -> Any:
    """Write a long column as base64: numbers (a missing one is NaN), or texts that repeat; anything else as it is."""
    values = values.tolist() if isinstance(values, np.ndarray) else values
    kinds = set(map(type, values))
    if any(issubclass(kind, np.generic) for kind in kinds):
        values = [_plain(value) for value in values]
        kinds = set(map(type, values))
    if len(values) >= LEAST_PACKED:
        large = int in kinds and any(type(value) is int and abs(value) >= MOST_WHOLE for value in values)
        if kinds <= NUMBERS and not large:
            # numpy reads None as NaN where it is asked for floats.
            floats = np.array(values, dtype=np.float64).astype("<f4")
            return {"f32": _base64(np.where(np.isfinite(floats), floats, np.nan).astype("<f4"))}
        texts = list(dict.fromkeys(values)) if kinds == {str} else values
        if len(texts) <= min(MOST_TEXTS, len(values) // 2):
            places = {text: place for place, text in enumerate(texts)}
            return {"texts": texts, "u16": _base64(np.array(list(map(places.__getitem__, values)), dtype="<u2"))}
    return list(values) if kinds <= PLAIN else [pack(value) for value in values]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _base64(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")
