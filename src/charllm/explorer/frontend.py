"""The files that a browser loads: the front end of reports as one script and one style sheet, and the explorer."""

import hashlib
import json
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from charllm.report.web import html
from charllm.result.metrics import DECLARED, flat_names, quantity

TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
FIRST, LAST = ("numbers.js", "settings.js", "request.js"), ("start.js",)
"""Scripts of the explorer that others build on, and the one that begins; the rest stands between, by name."""


class Asset(NamedTuple):
    """One file as it is sent."""

    body: bytes
    type: str
    tag: str
    """Its fingerprint, so that a browser asks again only whether it has changed."""


@lru_cache(maxsize=1)
def assets() -> dict[str, Asset]:
    """Return every file by the name it is asked for; nothing else is ever sent."""
    own = files(__package__) / "assets"
    found = {item.name: _asset(item.name, item.read_bytes()) for item in own.iterdir() if item.is_file()}
    found["explorer.js"] = _asset("explorer.js", _script(own / "explorer"))
    found["report.js"] = _asset("report.js", html.script().encode())
    found["report.css"] = _asset("report.css", html.style().encode())
    return found


def _script(folder: Traversable) -> bytes:
    """Join the scripts of the explorer, in an order in which each finds what it builds on."""
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".js"))
    middle = [name for name in names if name not in (*FIRST, *LAST)]
    ordered = [name for name in (*FIRST, *middle, *LAST) if name in names]
    return b"\n;".join((declared_metrics().encode(), *((folder / name).read_bytes() for name in ordered)))


def declared_metrics() -> str:
    """Return how each number among the metrics is called and written, as the scripts read it."""
    found = {}
    for name in flat_names(DECLARED):
        one = quantity(name)
        if one.is_number:
            places = int(one.digits[-2]) if one.digits.endswith("f") else None
            found[name] = {
                "name": name, "title": one.title, "meaning": one.meaning, "unit": one.unit, "scale": one.scale,
                "better": one.better, "places": places, "spelled": one.spelled,
            }  # fmt: skip
    return f"window.charllm.metrics = {json.dumps(found)};"


def _asset(name: str, body: bytes) -> Asset:
    suffix = name[name.rfind(".") :]
    return Asset(body, f"{TYPES[suffix]}; charset=utf-8", f'"{hashlib.sha256(body).hexdigest()[:16]}"')
