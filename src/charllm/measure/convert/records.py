"""Objects of JSON, one a line or in a list, each with a time and readings: read as the table that they are."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

from charllm.errors import SpecError
from charllm.measure.convert import table
from charllm.measure.convert.foreign import Foreign
from charllm.measure.convert.source import ForeignFile, Hints, whole_lines
from charllm.spec.request import parse_json

DEEPEST = 4
AMD_PARTS = ("power", "usage", "clock", "temperature", "mem_usage", "energy", "throttle")
"""Parts of an object of ``amd-smi metric --json``; its CSV names the same readings without them."""
LISTS = ("gpus", "gpu", "devices", "samples", "data", "records", "metrics", "gpu_data")
"""Keys under which a list of objects may stand: each of them is a row, with what stands beside it."""


def looks_like(head: str) -> bool:
    """Tell whether a text begins with an object that has a time and a quantity."""
    start = head.lstrip()
    if start[:1] not in ("{", "["):
        return False
    line = start.partition("\n")[0].rstrip().rstrip(",")
    first = line if line.startswith("{") and line.endswith("}") else _first_object(start)
    try:
        found = json.loads(first)
    except (ValueError, RecursionError):
        return False
    rows = list(_rows(found, {}, 0))
    return bool(rows) and bool(table.make_header(list(rows[0]), Hints()).readings)


def _first_object(text: str) -> str:
    """Return the first whole object of a text; one with lists in it may be the whole text."""
    opening = text.find("{")
    try:
        _, end = json.JSONDecoder().raw_decode(text[opening:])
    except (ValueError, RecursionError):
        return ""
    return text[opening : opening + end]


def read(file: ForeignFile, hints: Hints) -> Foreign:
    """Read the objects as rows of a table."""
    rows = [row for document in _documents(file) for row in _rows(document, {}, 0)]
    if not rows:
        raise SpecError("PATH", str(file.path), "objects with a time and readings")
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([row.get(name, "") for name in names] for row in rows)
    return table.read(file._replace(text=text.getvalue()), hints)


def _documents(file: ForeignFile) -> Iterator[Any]:
    lines = [line for _, line in whole_lines(file.text)]
    if len(lines) > 1 and all(line.lstrip().startswith("{") for line in lines[:5]) and lines[0].rstrip().endswith("}"):
        for line in lines[:-1]:
            yield parse_json(line, str(file.path), "PATH")
        try:
            yield json.loads(lines[-1])
        except (ValueError, RecursionError):
            # Cut short.
            return
        return
    yield parse_json(file.text, str(file.path), "PATH")


def _rows(value: Any, beside: Mapping[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    """Yield one flat row for each object; the objects of a list inside one share what stands beside it."""
    if depth > DEEPEST:
        return
    if isinstance(value, list):
        for inner in value:
            yield from _rows(inner, beside, depth + 1)
    elif isinstance(value, dict):
        row = {**beside, **_flat(value, "")}
        lists = [name for name in LISTS if isinstance(value.get(name), list) and _holds_objects(value[name])]
        if not lists:
            yield row
        for name in lists:
            yield from _rows(value[name], row, depth + 1)


def _holds_objects(values: list[Any]) -> bool:
    return bool(values) and isinstance(values[0], dict)


def _flat(value: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the numbers and texts of an object; those of an object inside it are named after both."""
    found: dict[str, Any] = {}
    amd = not prefix and "gpu" in value and sum(isinstance(value.get(part), dict) for part in AMD_PARTS) > 1
    for name, inner in value.items():
        if isinstance(inner, dict) and "value" in inner and not isinstance(inner["value"], dict):
            found[f"{prefix}{name}"] = f"{inner['value']} {inner.get('unit', '')}".strip()
        elif isinstance(inner, dict) and amd and name in AMD_PARTS:
            found |= _flat_part(inner)
        elif isinstance(inner, dict) and not prefix:
            found |= _flat(inner, f"{name}_")
        elif isinstance(inner, int | float | str):
            found[f"{prefix}{name}"] = inner
    return found


def _flat_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the readings of a part of amd-smi's objects, named as its CSV names them: ``gfx_0_clk``."""
    nested = {name: inner for name, inner in part.items() if isinstance(inner, dict) and "value" not in inner}
    plain = {name: inner for name, inner in part.items() if name not in nested}
    found = _flat(plain, "")
    for name, inner in nested.items():
        found |= _flat(inner, f"{name}_")
    return found
