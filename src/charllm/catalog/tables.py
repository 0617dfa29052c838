"""Read the catalog's TOML files and find entries by any spelling.

A file holds a `[sources]` table and one table per entry. A figure is written ``key = [value, "source"]`` where
the source is a key of `[sources]` or a text; its first word says what kind of knowledge it is
(``datasheet: ...``, ``published: ...``, ``measured: ...``, ``derived: ...``, ``assumed: ...``).
An entry may start from another with ``base = "name"``; a table inside an entry (``[h200.power]``) is read alike, over
the same table of the base.
"""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from charllm.errors import unknown_name
from charllm.spec.fields import normalise
from charllm.units import si_key

HERE = Path(__file__).parent
KINDS = ("gpus", "nodes", "fabrics", "machines", "clusters", "models", "frameworks", "studies")
PARTS = ("power", "governor", "kernels", "heat")
"""Tables inside an entry."""
SOURCE_KINDS = ("datasheet", "published", "measured", "derived", "assumed")


@dataclass(frozen=True, slots=True)
class Entry:
    """One catalog entry as written: values in SI spelling, and where each figure comes from."""

    name: str
    values: Mapping[str, Any]
    sources: Mapping[str, str] = field(default_factory=dict)


@lru_cache(maxsize=len(KINDS))
def entries(kind: str) -> Mapping[str, Entry]:
    """Load every entry of a kind."""
    found: dict[str, Entry] = {}
    for path in sorted((HERE / kind).glob("*.toml")):
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        citations = tables.pop("sources", {})
        for name, table in tables.items():
            found[name] = read_entry(name, table, citations, found)
    return MappingProxyType(found)


def read_entry(name: str, table: Mapping[str, Any], citations: Mapping[str, str], known: Mapping[str, Entry]) -> Entry:
    """Split one written table into values and sources, on top of its base."""
    own = dict(table)
    base = known[own.pop("base")] if own.get("base") in known else None
    values: dict[str, Any] = dict(base.values) if base else {}
    sources: dict[str, str] = dict(base.sources) if base else {}
    shared_source = citations.get(own.pop("source", ""), "")
    for key, written in own.items():
        if isinstance(written, Mapping) and key in PARTS:
            values[key], found = _read_part(key, written, citations, values.get(key, {}))
            sources.update(found)
            continue
        if isinstance(written, Mapping):
            # A node or fabric inside a cluster's file: whole, with sources of its own.
            values[key], found = _read_part(key, written, citations, {})
            sources.update(found)
            continue
        value, source = written, shared_source
        if isinstance(written, list) and len(written) == 2 and isinstance(written[1], str) and _is_figure(written[0]):
            value, source = written[0], citations.get(written[1], written[1])
        values.update(normalise({key: value}))
        if source:
            sources[si_key(key)[0]] = source
    values["name"] = name
    return Entry(name, MappingProxyType(values), MappingProxyType(sources))


def _read_part(
    part: str, table: Mapping[str, Any], citations: Mapping[str, str], under: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Read a table inside an entry, over that of its base; sources are named ``part.field``."""
    read = read_entry(part, table, citations, {})
    values = {**under, **{key: value for key, value in read.values.items() if key != "name"}}
    return values, {f"{part}.{key}": source for key, source in read.sources.items()}


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float | list)


@lru_cache(maxsize=1)
def aliases() -> Mapping[str, Mapping[str, str]]:
    """Load the other spellings of names, by kind."""
    tables = tomllib.loads((HERE / "aliases.toml").read_text(encoding="utf-8"))
    return {kind: {spell(key): name for key, name in table.items()} for kind, table in tables.items()}


def spell(name: str) -> str:
    """Fold the ways people write one name: case, spaces, underscores."""
    return "-".join(name.lower().replace("_", " ").replace("-", " ").split())


@lru_cache(maxsize=1024)
def find_name(kind: str, asked: str) -> str | None:
    """Return the catalog's own name for any known spelling of it."""
    spelled = spell(asked)
    if spelled in entries(kind):
        return spelled
    if asked in entries(kind):
        return asked
    known = aliases().get(kind, {})
    if spelled in known:
        return known[spelled]
    return next((name for pattern, name in known.items() if "*" in pattern and fnmatchcase(spelled, pattern)), None)


_TUNED = re.compile(
    r"[-_](?:instruct|chat|base|it|pt|hf|bnb-4bit|v[01]\.\d|\d{4}|unsloth|think(?:ing)?|reasoning|preview|fp8|bf16|4k|128k)"
    r"(?=[-_]|$).*",
    re.IGNORECASE,
)
"""What the name of a repository says of tuning, dates and packing, and not of sizes."""


@lru_cache(maxsize=1024)
def find_model(asked: str) -> str | None:
    """Return the model behind any spelling, or behind a repository of the Hugging Face hub: its maker and its name."""
    name = asked.rstrip("/").rpartition("/")[2]
    plain = _TUNED.sub("", name)
    known = _joined_names()
    return (
        find_name("models", name) or known.get(_joined(name)) or find_name("models", plain) or known.get(_joined(plain))
    )


@lru_cache(maxsize=1)
def _joined_names() -> Mapping[str, str]:
    return {_joined(name): name for name in entries("models")}


def _joined(name: str) -> str:
    """Fold a name further: ``gemma-2-9b`` is ``gemma2-9b``."""
    return spell(name).replace("-", "")


def find(kind: str, asked: str, field_name: str) -> Entry:
    """Return the entry behind any known spelling, or say which names there are."""
    name = find_model(asked) if kind == "models" else find_name(kind, asked)
    if name is None:
        raise unknown_name(field_name, asked, entries(kind))
    return entries(kind)[name]


@lru_cache(maxsize=1)
def catalog_hash() -> str:
    """Return a short fingerprint of every catalog file, for provenance."""
    digest = hashlib.sha256()
    for path in sorted(HERE.rglob("*.toml")):
        digest.update(path.relative_to(HERE).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
