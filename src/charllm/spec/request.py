"""A request before names are looked up: plain nested tables from TOML, flags and ``--set``, merged in that order."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from charllm.errors import SpecError
from charllm.spec.fields import normalise
from charllm.units import MIB, format_bytes

Table = dict[str, Any]

MAX_FILE_BYTES = int(8 * MIB)
MAX_SETTINGS = 10_000


def read_text(path: str | Path, field: str) -> str:
    """Read a text file, or say what is wrong with it."""
    file = Path(path)
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise SpecError(field, str(path), f"a file of at most {format_bytes(MAX_FILE_BYTES)}")
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SpecError(field, str(path), "a text file in UTF-8") from None
    except OSError as error:
        raise SpecError(field, str(path), f"a readable file ({error.strerror or error})") from None


def read_toml(path: str | Path, field: str) -> Table:
    """Read a TOML file into a plain table."""
    text = read_text(path, field)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpecError(field, str(path), f"valid TOML ({error or 'nested too deeply'})") from None


def read_json(path: str | Path, field: str) -> Table:
    """Read a JSON object into a plain table."""
    table = parse_json(read_text(path, field), str(path), field)
    if not isinstance(table, dict):
        raise SpecError(field, str(path), "a JSON object")
    return table


def parse_json(text: str, path: str, field: str) -> Any:
    """Read JSON text, or say where it is wrong."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(field, path, f"valid JSON ({error or 'nested too deeply'})") from None


def merge(under: Any, over: Any) -> Any:
    """Lay one request over another: tables merge, names become the base of a table, anything else replaces."""
    if not isinstance(over, Mapping):
        return over
    if isinstance(under, str):
        under = {"base": under}
    merged = normalise(under) if isinstance(under, Mapping) else {}
    for key, value in normalise(over).items():
        merged[key] = merge(merged.get(key), value)
    return merged


def parse_settings(settings: Iterable[str]) -> Table:
    """Turn ``--set a.b=value`` entries into a request; a value is TOML, or a bare word."""
    request: Table = {}
    entries = list(settings)
    if len(entries) > MAX_SETTINGS:
        raise SpecError("--set", f"{len(entries)} settings", f"at most {MAX_SETTINGS}")
    for entry in entries:
        path, equals, raw = entry.partition("=")
        keys = [key.strip() for key in path.split(".")]
        if not equals or not all(keys) or len(keys) > 8:
            raise SpecError("--set", entry, "field.name=value, e.g. cluster.nodes=8")
        request = merge(request, nest(".".join(keys), parse_value(raw.strip())))
    return request


def nest(path: str, value: Any) -> Table:
    """Return a request that sets one dotted field."""
    keys = path.split(".")
    nested: Table = {keys[-1]: value}
    for key in reversed(keys[:-1]):
        nested = {key: nested}
    return nested


def parse_value(raw: str) -> Any:
    """Read one TOML value; what is no TOML value is a bare word."""
    if "\n" in raw or len(raw) > 100_000:
        raise SpecError("--set", raw, "one value on one line")
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return raw


def parse_layer_split(raw: str) -> list[int]:
    """Read ``7,8x14,7`` as 7, fourteen times 8, and 7."""
    split: list[int] = []
    for piece in raw.split(","):
        layers, times, repeat = piece.strip().partition("x")
        if not layers.isdigit() or (times and not repeat.isdigit()) or len(piece) > 16:
            raise SpecError("parallelism.layers_per_stage", raw, "layers of each stage, e.g. 7,8x14,7")
        repeats = int(repeat) if times else 1
        if repeats > 100_000 - len(split):
            raise SpecError("parallelism.layers_per_stage", raw, "at most 100000 entries")
        split.extend([int(layers)] * repeats)
    return split


def parse_recompute(raw: str) -> Table:
    """Read ``none``, ``selective``, ``selective:layernorm,moe_act``, ``full`` or ``full:12``."""
    kind, colon, detail = raw.partition(":")
    table: Table = {"recompute": kind}
    if not colon:
        return table
    if kind == "full" and detail.isdigit() and len(detail) < 10:
        table["recompute_layers"] = int(detail)
    elif kind == "selective" and detail:
        table["recompute_modules"] = detail.split(",")
    else:
        raise SpecError("training.recompute", raw, "none, selective[:module,...] or full[:layers]")
    return table
