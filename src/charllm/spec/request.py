"""A request before names are looked up: plain nested tables from TOML, flags and ``--set``, merged in that order."""

import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from charllm.errors import SpecError, Words
from charllm.spec.fields import normalise
from charllm.units import MIB, format_bytes

Table = dict[str, Any]

MAX_FILE_BYTES = int(8 * MIB)
MAX_TOML_BYTES = int(2 * MIB)
MAX_SETTINGS = 10_000
MAX_DEPTH = 32
"""Tables and lists inside each other; a spec has 6."""
LONG_KEY = re.compile(rf"""(?<![\w.'"-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}""")
"""A dotted key that the parser of TOML would need minutes for."""
MAX_INTEGER = 2**63
STANDARD_INPUT = "-"
FILE_KINDS = {
    stat.S_ISDIR: "a folder",
    stat.S_ISFIFO: "a named pipe",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISSOCK: "a socket",
}
"""What is not a regular file, by its test."""


FREE_BYTES, MOST_EXPANSION = int(64 * MIB), 250
"""A packed file may unpack to so much, or to so many times its own size; logs reach about 100, bombs 1,000."""


def unpacked_limit(packed_bytes: int) -> int:
    """Return how many bytes a packed file may unpack to."""
    return max(FREE_BYTES, MOST_EXPANSION * packed_bytes)


def read_text(path: str | Path, field: str, max_bytes: int = MAX_FILE_BYTES) -> str:
    """Read a text in UTF-8, or say what is wrong with it; a byte order mark is dropped, line ends are newlines."""
    try:
        text = read_bytes(path, field, max_bytes).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SpecError(field, str(path), "a text file in UTF-8") from None
    if "\0" in text:
        raise SpecError(field, str(path), "a text file (this one holds NUL characters)")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(path: str | Path, field: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Read a regular file, or standard input for ``-``; anything else may never end, and is refused."""
    try:
        if str(path) == STANDARD_INPUT:
            raw = sys.stdin.buffer.read(max_bytes + 1) if sys.stdin is not None else b""
        else:
            raw = _read_regular(path, field, max_bytes)
    except OSError as error:
        raise SpecError(field, str(path), f"a readable file ({error.strerror or error})") from None
    if len(raw) > max_bytes:
        raise SpecError(field, str(path), f"a file of at most {format_bytes(max_bytes)}")
    return raw


def _read_regular(path: str | Path, field: str, max_bytes: int) -> bytes:
    try:
        mode = os.stat(path).st_mode
    except ValueError as error:
        # A NUL, or a character that no file name can hold.
        raise SpecError(field, str(path), f"a file name ({error})") from None
    for is_kind, kind in FILE_KINDS.items():
        if is_kind(mode):
            shown = Words(f"{str(path)!r}, {kind}")
            raise SpecError(field, shown, "a readable file: a regular one, or - for standard input")
    with open(path, "rb", opener=_open_at_once) as file:
        return file.read(max_bytes + 1)


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting, should a pipe have taken the file's place meanwhile."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_toml(path: str | Path, field: str) -> Table:
    """Read a TOML file into a plain table."""
    return parse_toml(read_text(path, field, MAX_TOML_BYTES), str(path), field)


def parse_toml(text: str, path: str, field: str) -> Table:
    """Read TOML text, or say what is wrong with it."""
    if len(text) > MAX_TOML_BYTES:
        raise SpecError(field, path, f"a file of at most {format_bytes(MAX_TOML_BYTES)}")
    if path.lower().endswith((".yaml", ".yml", ".sh", ".py")):
        raise SpecError(field, path, f"a file in TOML; settings of another program are read by --from {path}")
    if LONG_KEY.search(text):
        raise SpecError(field, path, f"keys of at most {MAX_DEPTH} parts")
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(field, path, f"valid TOML ({_reason(error)})") from None
    check_plain(table, field)
    return table


def read_json(path: str | Path, field: str) -> Table:
    """Read a JSON object into a plain table."""
    table = parse_json(read_text(path, field), str(path), field)
    if not isinstance(table, dict):
        raise SpecError(field, str(path), "a JSON object")
    return table


def parse_json(text: str, path: str, field: str) -> Any:
    """Read JSON text, or say where it is wrong."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(field, path, f"valid JSON ({_reason(error)})") from None
    check_plain(value, field)
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return "a number of too many digits" if "digits" in str(error) else str(error)


def as_table(value: Any, field: str) -> Table:
    """Return a table of settings, or say that something else was given."""
    if not isinstance(value, Mapping):
        raise SpecError(field, value, "a table of settings")
    return dict(value)


def dotted_fields(table: Mapping[str, Any], above: str = "") -> Table:
    """Return the fields of a table in one level, by dotted name."""
    found: Table = {}
    for key, value in table.items():
        found |= dotted_fields(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return found


def check_plain(value: Any, field: str) -> None:
    """Refuse values nested too deeply and whole numbers of more than 64 bits, before anything works on them."""
    level, depth = [value], 0
    while level:
        if depth > MAX_DEPTH:
            raise SpecError(field, Words("deeper tables or lists"), f"at most {MAX_DEPTH} inside each other")
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is float or kind is str:
                continue
            if isinstance(item, Mapping):
                below.extend(item.values())
            elif isinstance(item, list | tuple):
                below.extend(item)
            elif isinstance(item, int) and not -MAX_INTEGER <= item < MAX_INTEGER:
                raise SpecError(field, item, "whole numbers of at most 64 bits")
        level, depth = below, depth + 1


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
        value = tomllib.loads(f"value = {raw}")["value"]
    except (ValueError, RecursionError):
        return raw
    check_plain(value, "--set")
    return value


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
