"""A table of a foreign file that remembers which of its settings were read, so that none is dropped without a word."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fnmatch import translate
from functools import lru_cache
from typing import Any, NamedTuple

from charllm.errors import SpecError
from charllm.spec.readers.probe import HIDDEN, told
from charllm.spec.readers.reading import NOT_UNDERSTOOD, Setting, names_size
from charllm.spec.readers.values import MAX_TEXT, shown

MAX_DEPTH = 32
OFF: tuple[Any, ...] = (None, False, 0, 0.0, "", "none", "None", "null", "false", "False", "off", [])
"""Values with which a setting is switched off, wherever nothing else is said."""


class Ledger(Mapping[str, Any]):
    """A nested table; reading a setting notes that it was read. A setting without a value is not there."""

    def __init__(self, values: Mapping[Any, Any], depth: int = MAX_DEPTH, above: str = "") -> None:
        if depth <= 0:
            raise SpecError("--from", "deeper tables", f"at most {MAX_DEPTH} tables in each other")
        self._values = {
            str(key): Ledger(value, depth - 1, f"{above}{key}.") if isinstance(value, Mapping) else value
            for key, value in values.items()
        }
        self._above = above
        self._defaults: Mapping[str, Any] = {}
        self._seen: set[str] = set()

    def over(self, defaults: Mapping[str, Any]) -> "Ledger":
        """Let settings that are not there have these values."""
        self._defaults = defaults
        return self

    def __getitem__(self, key: str) -> Any:
        value = self._told(key)
        if value is None:
            return self._defaults[key]
        self._seen.add(key)
        return value

    def _told(self, key: object) -> Any:
        value = self._values.get(key) if isinstance(key, str) else None
        if value is None or isinstance(value, Ledger):
            return value
        found = told(f"{self._above}{key}", value)
        return None if found is HIDDEN else found

    def __contains__(self, key: object) -> bool:
        return self._told(key) is not None or key in self._defaults

    def __iter__(self) -> Iterator[str]:
        return (key for key in {**self._values, **self._defaults} if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def names(self, key: str) -> bool:
        """Tell whether the file has a key, with a value or without."""
        return key in self._values

    def take(self, key: str) -> "Ledger | None":
        """Take a table out, to be accounted for on its own."""
        return self._values.pop(key) if isinstance(self._values.get(key), Ledger) else None

    def unread(self, above: str = "") -> Iterator[tuple[str, Any]]:
        """List settings that no one read, as dotted paths with their values."""
        for key, value in self._values.items():
            if key in self._seen and not isinstance(value, Ledger):
                continue
            if isinstance(value, Ledger):
                yield from value.unread(f"{above}{key}.")
            elif value is not None:
                yield f"{above}{key}", value


class Unmodelled(NamedTuple):
    """A setting that changes the result in a way that is not modelled."""

    reason: str
    neutral: tuple[Any, ...] = OFF
    """Values with which it changes nothing."""


class Known(NamedTuple):
    """What a format's reader knows of settings that it does not use, by dotted path; * stands for anything."""

    no_effect: tuple[str, ...]
    unmodelled: Mapping[str, Unmodelled]
    small: Mapping[str, Unmodelled] = {}
    """Exact paths that change the result a little in a way that is not modelled."""


class Unread(NamedTuple):
    """Settings that no one read, but for those without effect."""

    not_understood: tuple[Setting, ...]
    unmodelled: tuple[Setting, ...]
    small: tuple[Setting, ...]


def list_names(text: str) -> tuple[str, ...]:
    """Split a text into the names it holds."""
    return tuple(text.split())


def sort_unread(
    ledger: Ledger,
    known: Known,
    lines: Mapping[str, int],
    above: str = "",
    resolved: Callable[[str], Any] | None = None,
) -> Unread:
    """Sort the settings that no one read; those without effect are left out. `resolved` follows a setting's references.

    Of settings that are unmodelled for one reason, such as those of a vision tower, the first is listed.
    """
    not_understood: list[Setting] = []
    unmodelled: dict[str, Setting] = {}
    small: dict[str, Setting] = {}
    for path, written in list(ledger.unread()):
        pattern = _pattern_of(path, known)
        value = resolved(path) if resolved and pattern and isinstance(written, str) and "${" in written else written
        if pattern is None and names_size(path) and not any(value is off or value == off for off in OFF):
            # Each such setting counts: the reason does not make two of them one.
            unmodelled[path] = replace(_setting(above + path, value, lines), reason=NOT_UNDERSTOOD)
        elif pattern is None:
            not_understood.append(_setting(above + path, value, lines))
        if not pattern:
            continue
        found, effect = (small, known.small) if pattern in known.small else (unmodelled, known.unmodelled)
        reason, neutral = effect[pattern]
        if any(value is off or value == off for off in neutral):
            continue
        # A whole table that is not modelled is named as one.
        whole = path if "." in pattern or "." not in path else path.partition(".")[0]
        setting = _setting(above + whole, value if whole == path else {}, lines)
        found.setdefault(reason, replace(setting, reason=reason))
    return Unread(tuple(not_understood), tuple(unmodelled.values()), tuple(small.values()))


def _setting(name: str, value: Any, lines: Mapping[str, int]) -> Setting:
    return Setting(name, f"{name}: {shown(value)[:MAX_TEXT]}", lines.get(name))


def _pattern_of(path: str, known: Known) -> str | None:
    """Return the entry of `unmodelled` that a setting falls under, empty when it has no effect, None when unknown.

    An exact path says more than a pattern.
    """
    if path in known.unmodelled or path in known.small:
        return path
    if _any_of(known.no_effect).match(path):
        return ""
    patterns = (pattern for pattern in known.unmodelled if "*" in pattern and _any_of((pattern,)).match(path))
    return next(patterns, None)


@lru_cache(maxsize=1024)
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(translate(pattern) for pattern in patterns) or r"(?!)")
