"""Declare the fields of a settings class once, with bounds and meaning; read and check them everywhere."""

import math
import shlex
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from charllm.errors import SpecError, unknown_name
from charllm.units import si_key

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rule:
    """What one field may hold."""

    kind: str
    doc: str
    low: float = -math.inf
    high: float = math.inf
    options: tuple[str, ...] = ()
    optional: bool = False
    flag: str = ""
    """Its flags on a command line and what they take, such as ``-o/--out DIR``; by default as the field's name."""

    def possible(self) -> str:
        """Say in words what the field may hold."""
        if self.options:
            words = ", ".join(self.options)
            return f"any of {words}, separated by commas" if self.kind == "words" else f"one of {words}"
        words = {
            "int": "a whole number",
            "float": "a number",
            "bool": "true or false",
            "text": "a text of up to 200 printable characters",
            "ints": "whole numbers separated by commas",
            "floats": "a number, or a list with one for each,",
            "words": "words separated by commas",
            "line": "a text",
            "lines": "a list of texts",
            "shell": "words as of a shell",
            "path": "a path",
            "numbers": "numbers separated by commas",
            "table": "NAME=VALUE, or a table of names and values",
        }[self.kind]
        if self.kind in ("int", "float", "ints", "floats"):
            words += f" from {_plain(self.low)} to {_plain(self.high)}"
        return words


def _declare(rule: Rule, default: Any) -> Any:
    if default is MISSING:
        return field(metadata={"rule": rule})
    return field(default=default, metadata={"rule": rule})


def count(doc: str, low: int, high: int, default: Any = MISSING, flag: str = "") -> Any:
    """Declare a whole number; a default of None makes it optional."""
    return _declare(Rule("int", doc, low, high, optional=default is None, flag=flag), default)


def number(doc: str, low: float, high: float, default: Any = MISSING, flag: str = "") -> Any:
    """Declare a real number; a default of None makes it optional."""
    return _declare(Rule("float", doc, low, high, optional=default is None, flag=flag), default)


def number_or_list(doc: str, low: float, high: float, default: Any = MISSING) -> Any:
    """Declare a real number that holds for all, or a list with one for each; a default of None makes it optional."""
    return _declare(Rule("floats", doc, low, high, optional=default is None), default)


def flag(doc: str, default: Any = MISSING) -> Any:
    """Declare a yes or no; a default of None makes it optional."""
    return _declare(Rule("bool", doc, optional=default is None), default)


def line(doc: str, default: Any = MISSING, flag: str = "") -> Any:
    """Declare a text of any length, or a number that is read as one; a default of None makes it optional."""
    return _declare(Rule("line", doc, optional=default is None, flag=flag), default)


def lines(doc: str, flag: str = "") -> Any:
    """Declare a list of texts, empty by default; its flag may be repeated."""
    return _declare(Rule("lines", doc, flag=flag), ())


def shell_words(doc: str, flag: str = "") -> Any:
    """Declare words that are written as one text for a shell, none by default."""
    return _declare(Rule("shell", doc, flag=flag), ())


def path(doc: str, default: Any = None, flag: str = "") -> Any:
    """Declare a file or folder; a default of None makes it optional."""
    return _declare(Rule("path", doc, optional=default is None, flag=flag), default)


def text(doc: str, default: Any = MISSING) -> Any:
    """Declare a free text."""
    return _declare(Rule("text", doc, optional=default is None), default)


def choice(doc: str, options: tuple[str, ...], default: Any = MISSING, flag: str = "") -> Any:
    """Declare one word out of a list."""
    return _declare(Rule("text", doc, options=options, optional=default is None, flag=flag), default)


def counts(doc: str, low: int, high: int, default: tuple[int, ...] = ()) -> Any:
    """Declare a row of whole numbers."""
    return _declare(Rule("ints", doc, low, high), default)


def words(doc: str, options: tuple[str, ...], default: tuple[str, ...] = (), flag: str = "") -> Any:
    """Declare a set of words out of a list."""
    return _declare(Rule("words", doc, options=options, flag=flag), default)


def numbers(doc: str, low: float = -math.inf, high: float = math.inf, flag: str = "") -> Any:
    """Declare a row of numbers, empty by default."""
    return _declare(Rule("numbers", doc, low, high, flag=flag), ())


def table(doc: str, flag: str = "") -> Any:
    """Declare names with values, none by default; each may be given as a text NAME=VALUE."""
    return field(default_factory=dict, metadata={"rule": Rule("table", doc, flag=flag)})


def rules(cls: Any) -> dict[str, Rule]:
    """Return the rule of each declared field of a settings class, in order."""
    return _rules(cls)


@lru_cache(maxsize=64)
def _rules(cls: Any) -> dict[str, Rule]:
    return {entry.name: entry.metadata["rule"] for entry in fields(cls) if "rule" in entry.metadata}


def _required(cls: Any) -> tuple[str, ...]:
    return _required_names(cls)


@lru_cache(maxsize=64)
def _required_names(cls: Any) -> tuple[str, ...]:
    return tuple(entry.name for entry in fields(cls) if entry.default is MISSING and entry.default_factory is MISSING)


def read(cls: type[T], table: Mapping[str, Any], where: str, **parts: Any) -> T:
    """Build a settings object from a plain table, in any unit; `parts` are already built members."""
    values = dict(parts)
    known = rules(cls)
    for key, raw in table.items():
        # A field's own name is in its own unit, whatever it ends in: a price of a kWh.
        name, factor = (key, 1.0) if key in known else si_key(key)
        if name not in known:
            raise unknown_name(f"{where}.{key}", key, (*known, *parts))
        value = _convert(raw, known[name], f"{where}.{key}", factor)
        if name in values:
            raise SpecError(f"{where}.{key}", raw, f"{name} once, not in two units")
        values[name] = value
    for name in _required(cls):
        if name not in values:
            raise SpecError(f"{where}.{name}", None, f"{known[name].possible()}: required ({known[name].doc})")
    try:
        return cls(**values)
    except SpecError as error:
        raise SpecError(f"{where}.{error.field}", error.asked, error.possible) from None


def check_path(cls: Any, path: str, where: str) -> None:
    """Check that a dotted path, in any unit, names a field of nested settings classes; a table may have a base."""
    for key in path.split("."):
        members = get_type_hints(cls) if is_dataclass(cls) else {}
        if members and key not in (*members, "base") and si_key(key)[0] not in members:
            raise unknown_name(where, path, (path.replace(key, name) for name in members))
        cls = members.get(key)


def normalise(table: Mapping[str, Any]) -> dict[str, Any]:
    """Spell the keys of a plain table in SI, so that two tables in different units can be merged."""
    result: dict[str, Any] = {}
    for key, raw in table.items():
        si_name, factor = si_key(key)
        convertible = factor != 1.0 and isinstance(raw, int | float) and not isinstance(raw, bool)
        result[si_name if convertible else key] = raw * factor if convertible else raw
    return result


def check_fields(settings: object) -> None:
    """Check every declared field of a settings object against its rule; call it from ``__post_init__``."""
    for name, rule in rules(type(settings)).items():
        check_value(name, getattr(settings, name), rule)


def read_field(cls: type, name: str, raw: Any, where: str) -> Any:
    """Read and check one field alone, for defaults that depend on it."""
    return read_value(rules(cls)[name], raw, f"{where}.{name}")


def read_value(rule: Rule, raw: Any, where: str) -> Any:
    """Read and check one value by its rule; `where` is what errors call it."""
    value = _convert(raw, rule, where, 1.0)
    check_value(where, value, rule)
    return value


def check_kind(rule: Rule, raw: Any, where: str) -> None:
    """Refuse a value that is of another type than a rule's, whatever its bounds."""
    _convert(raw, rule, where, 1.0)


def check_value(name: str, value: Any, rule: Rule) -> None:
    """Refuse a value outside its rule; `name` is what errors call it."""
    if value is None:
        if not rule.optional:
            raise SpecError(name, None, rule.possible())
    elif rule.kind in ("int", "float"):
        if not rule.low <= value <= rule.high:
            raise SpecError(name, value, rule.possible())
    elif rule.kind in ("ints", "floats", "numbers"):
        value = (value,) if isinstance(value, float | int) else value
        if value and not rule.low <= min(value) <= max(value) <= rule.high:
            raise SpecError(name, value[0] if len(value) == 1 else value, rule.possible())
    elif rule.options:
        for word in value if rule.kind == "words" else (value,):
            if word not in rule.options:
                raise unknown_name(name, str(word), rule.options)


def _convert(raw: Any, rule: Rule, where: str, factor: float) -> Any:
    """Turn what a file, flag or JSON gave into the type of the field."""
    if raw is None and rule.optional:
        return None
    try:
        return _CONVERTERS[rule.kind](raw, factor)
    except (TypeError, ValueError, OverflowError):
        one = rule.kind in ("lines", "table") and isinstance(raw, list) and len(raw) == 1
        raise SpecError(where, raw[0] if one else raw, rule.possible()) from None


def _to_float(raw: Any, factor: float) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
        raise ValueError
    return float(raw) * factor


def _to_int(raw: Any, factor: float) -> int:
    value = _to_float(raw, factor)
    if value != int(value):
        raise ValueError
    return raw if isinstance(raw, int) and factor == 1.0 else int(value)


def _to_bool(raw: Any, _factor: float) -> bool:
    if not isinstance(raw, bool):
        raise ValueError
    return raw


def _to_text(raw: Any, _factor: float) -> str:
    if not isinstance(raw, str) or len(raw) > 200 or not raw.isprintable():
        raise ValueError
    return raw


def _to_ints(raw: Any, _factor: float) -> tuple[int, ...]:
    items = [raw] if isinstance(raw, int) else raw
    if isinstance(items, str) or len(items) > 100_000:
        raise ValueError
    return tuple(_to_int(item, 1.0) for item in items)


def _to_floats(raw: Any, factor: float) -> float | tuple[float, ...]:
    if not isinstance(raw, list | tuple):
        return _to_float(raw, factor)
    if not 0 < len(raw) <= 1_048_576:
        raise ValueError
    return tuple(_to_float(item, factor) for item in raw)


def _to_words(raw: Any, _factor: float) -> tuple[str, ...]:
    items = [word for word in raw.split(",") if word] if isinstance(raw, str) else raw
    return tuple(dict.fromkeys(_to_text(item, 1.0) for item in items))


def _to_line(raw: Any, _factor: float) -> str:
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        raise ValueError
    return str(raw)


def _to_lines(raw: Any, _factor: float) -> tuple[str, ...]:
    items = [raw] if isinstance(raw, str) else raw
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError
    return tuple(items)


def _to_shell_words(raw: Any, _factor: float) -> tuple[str, ...]:
    return tuple(shlex.split(raw)) if isinstance(raw, str) else _to_lines(raw, 1.0)


def _to_path(raw: Any, _factor: float) -> Path:
    if not isinstance(raw, str | PathLike):
        raise TypeError
    return Path(raw)


def _to_numbers(raw: Any, _factor: float) -> tuple[float, ...]:
    items = [float(item) for item in raw.split(",")] if isinstance(raw, str) else raw
    if not isinstance(items, list | tuple):
        raise TypeError
    return tuple(_to_float(item, 1.0) for item in items)


def _to_table(raw: Any, _factor: float) -> dict[str, Any]:
    if isinstance(raw, Mapping):
        return dict(raw)
    pairs = [item.partition("=") for item in _to_lines(raw, 1.0)]
    if not all(name.strip() and equals and value.strip() for name, equals, value in pairs):
        raise ValueError
    return {name.strip(): value.strip() for name, _equals, value in pairs}


_CONVERTERS = {
    "int": _to_int,
    "float": _to_float,
    "bool": _to_bool,
    "text": _to_text,
    "ints": _to_ints,
    "floats": _to_floats,
    "words": _to_words,
    "line": _to_line,
    "lines": _to_lines,
    "shell": _to_shell_words,
    "path": _to_path,
    "numbers": _to_numbers,
    "table": _to_table,
}


def _plain(bound: float) -> str:
    return f"{bound:,.0f}" if abs(bound) >= 1 and bound == int(bound) and abs(bound) < 1e9 else f"{bound:g}"
