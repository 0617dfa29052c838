"""Settings of a command: flags, keywords of Python and checks follow from the fields of a settings class.

A field's flag is its name without the unit (``time_limit_s``: ``--time-limit S``) unless its declaration names
another; its keyword is its flag in Python's spelling. Errors name the flag.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from charllm.errors import unknown_name
from charllm.spec.fields import Rule, check_value, read_value

T = TypeVar("T")
UNITS = {"s": "S", "hz": "HZ", "w": "W"}
"""Unit at the end of a field's name: what its flag takes."""
TAKES = {"int": "N", "path": "DIR", "lines": "'TEXT'", "table": "NAME=VALUE", "shell": "'WORDS'"}
"""Kind of a field: what its flag takes."""


class Flag(NamedTuple):
    """How a field is given to a command."""

    field: str
    spellings: tuple[str, ...]
    metavar: str
    keyword: str
    rule: Rule
    default: Any

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"--{self.keyword.replace('_', '-')}"

    @property
    def help(self) -> str:
        """Its meaning, and its default where there is one."""
        if self.default in (None, "", ()) or isinstance(self.default, bool):
            return self.rule.doc
        if isinstance(self.default, tuple):
            return f"{self.rule.doc} (default {','.join(map(str, self.default))})"
        shown = f"{self.default:g}" if isinstance(self.default, float) else self.default
        return f"{self.rule.doc} (default {shown})"


def flags_of(settings: type) -> dict[str, Flag]:
    """Return the flags of a settings class by keyword, in order."""
    return _flags_of(settings)


@lru_cache(maxsize=64)
def _flags_of(settings: Any) -> dict[str, Flag]:
    found = (
        _flag(entry.name, entry.metadata["rule"], () if entry.default is MISSING else entry.default)
        for entry in fields(settings)
        if "rule" in entry.metadata
    )
    return {flag.keyword: flag for flag in found}


def _flag(name: str, rule: Rule, default: Any) -> Flag:
    stem, _underscore, unit = name.rpartition("_")
    word = (stem if unit in UNITS else name).replace("_", "-")
    spelled, _space, metavar = (rule.flag or f"--{word}").partition(" ")
    spellings = tuple(spelled.split("/"))
    keyword = spellings[-1].removeprefix("--").replace("-", "_")
    if rule.kind == "bool" and default is True:
        spellings = (f"--no-{spellings[-1].removeprefix('--')}",)
    return Flag(name, spellings, metavar or UNITS.get(unit) or TAKES.get(rule.kind, ""), keyword, rule, default)


def read_keywords(settings: type[T], words: Mapping[str, Any], /, **parts: Any) -> T:
    """Build a settings object from keywords; None counts as not given. `parts` are members without a flag."""
    known = flags_of(settings)
    values = dict(parts)
    for word, raw in words.items():
        if word not in known:
            raise unknown_name(word, word, known)
        if raw is not None:
            values[known[word].field] = read_value(known[word].rule, raw, known[word].name)
    return settings(**values)


def take(settings: type[T], words: MutableMapping[str, Any]) -> T:
    """Build a settings object from its keywords among others, which are left."""
    return read_keywords(settings, pop_keywords(settings, words))


def pop_keywords(settings: type, words: MutableMapping[str, Any]) -> dict[str, Any]:
    """Remove the keywords of a settings class from others, and return those that were given."""
    found = {word: words.pop(word, None) for word in flags_of(settings)}
    return {word: value for word, value in found.items() if value is not None}


def check_flags(settings: object) -> None:
    """Check every declared field of a settings object; call it from ``__post_init__``."""
    for flag in flags_of(type(settings)).values():
        check_value(flag.name, getattr(settings, flag.field), flag.rule)
