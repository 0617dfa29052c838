"""Which fields of a request a setting of a foreign file decides: it is read again as if it said something else."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

MOST_SETTINGS = 400
HIDDEN = object()
"""Stands for a setting that is not there."""


class Other(str):
    """A word that is to be read as another of the words that are possible in its place."""

    __slots__ = ()

    def lower(self) -> "Other":
        """Keep the mark where readers compare words without case."""
        return Other(super().lower())


@dataclass
class Probe:
    """One reading: the settings that it takes, and the one of them that it finds changed."""

    seen: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    value: Any = None


_CURRENT: ContextVar[Probe | None] = ContextVar("probe", default=None)


@contextmanager
def probing(name: str = "", value: Any = None) -> Iterator[Probe]:
    """Note the settings that are read meanwhile; the one of that name is found to have that value."""
    probe = Probe(name=name, value=value)
    token = _CURRENT.set(probe)
    try:
        yield probe
    finally:
        _CURRENT.reset(token)


def told(name: str, value: Any) -> Any:
    """Return what a reader is to find under a setting: the value that the file states, unless it is probed."""
    probe = _CURRENT.get()
    if probe is None:
        return value
    probe.seen.setdefault(name, value)
    return probe.value if probe.name == name else value


def told_flags(values: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the words after each flag as `told` does."""
    found = {name: told(name, words) for name, words in values.items()}
    return {name: words for name, words in found.items() if words is not HIDDEN}


def alternatives(value: Any) -> list[Any]:
    """List what a file might say instead, the likeliest to be valid first."""
    if isinstance(value, bool):
        return [not value, HIDDEN]
    if isinstance(value, int | float):
        return [value * 2 if value else 1, value + 1, value // 2, HIDDEN]
    if isinstance(value, str):
        number = value.isdecimal() and len(value) < 12
        return [*((str(2 * int(value)), str(int(value) + 1)) if number else (Other(value),)), HIDDEN]
    if isinstance(value, list):
        first = alternatives(value[0]) if len(value) == 1 else [HIDDEN]
        return [*([each] for each in first if each is not HIDDEN), HIDDEN, value[:-1]]
    return [HIDDEN]
