"""The shape that the data of a stored file must have, declared as types of Python, and the check of it on load.

A damaged or foreign file is refused by name, with the field and what was found there, before anything works on it.
Shapes are plain types, `Literal`, `list[X]`, `dict[str, X]`, TypedDicts (other keys may stand beside their own), unions
of these with at most one list and one table, and `Any`: whatever JSON may hold. No number is infinite or not a number.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from functools import cache
from itertools import chain
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from charllm.errors import SpecError, Words
from charllm.spec.fields import check_kind, rules

Cell = float | str | bool | None
"""What a cell of a table may hold."""
Number = float | None
PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", NoneType: "nothing"}
SHOWN_FIELDS = 12


def check_shape(value: Any, shape: Any, file: object, field: str = "") -> None:
    """Refuse a value of another shape; `file` and `field` name it in the error."""
    if not _accepts([value], shape):
        place, found, expected = _locate(value, shape, field)
        raise SpecError(f"{file}, {place}" if place else str(file), found, expected)


def check_settings(cls: Any, table: Any, file: object, field: str) -> None:
    """Refuse a table whose values are of other types than those of a settings class.

    What a table of another version lacks, holds besides, or bounds otherwise is no damage.
    """
    if not isinstance(table, dict):
        raise SpecError(f"{file}, {field}", table, "a table of settings")
    members: dict[str, Any] = get_type_hints(cls)
    known = rules(cls)
    for name, value in table.items():
        where = f"{field}.{name}"
        if name in known:
            check_kind(known[name], value, f"{file}, {where}")
        elif is_dataclass(members.get(name)):
            check_settings(members[name], value, file, where)
        elif is_dataclass(one := _if_given(members.get(name))):
            check_settings(one, value, file, where)
        elif is_dataclass(several := next(iter(get_args(members.get(name))), None)):
            check_shape(value, list[Any], file, where)
            for place, item in enumerate(value):
                check_settings(several, item, file, f"{where}[{place}]")


def _if_given(kind: Any) -> Any:
    """Return the kind of a member that may be None; None where it may not."""
    parts = get_args(kind)
    return parts[0] if type(None) in parts else None


def _accepts(values: Sequence[Any], shape: Any) -> bool:
    """Tell whether all values have a shape; they are checked together, for a table may have a million rows."""
    parts = _alternatives(shape)
    kinds = {type(value) for value in values}
    plain = {part for part in parts if part in PLAIN}
    if float in kinds and not all(math.isfinite(value) for value in values if type(value) is float):
        return False
    kinds -= plain | ({int} if float in plain else set())
    for part in [part for part in parts if part not in plain] if kinds else ():
        if part is Any:
            return _is_finite(values)
        container = _container(part)
        if container in kinds:
            if not _accepts_inside([value for value in values if type(value) is container], part):
                return False
            kinds.discard(container)
    return not kinds


def _accepts_inside(values: Sequence[Any], shape: Any) -> bool:
    inside = get_args(shape)
    if get_origin(shape) is Literal:
        return {*values} <= {*inside}
    if is_typeddict(shape):
        required = _required(shape)
        return all(required.issubset(value) for value in values) and all(
            _accepts([value[name] for value in values if name in value], member)
            for name, member in _members(shape).items()
        )
    every: Iterable[Iterable[Any]] = values if get_origin(shape) is list else (value.values() for value in values)
    return _accepts(list(chain.from_iterable(every)), inside[-1])


def _locate(value: Any, shape: Any, field: str) -> tuple[str, Any, str]:
    """Return the first part of a value that has another shape: its field, what was found, what was expected."""
    for part in _alternatives(shape):
        if part in PLAIN or get_origin(part) is Literal or not isinstance(value, _container(part)):
            continue
        for name, below, member in _children(value, part):
            if not _accepts([below], member):
                joined = f"{field}{name}" if name.startswith("[") else f"{field}.{name}".removeprefix(".")
                return _locate(below, member, joined)
        if is_typeddict(part):
            absent = next(iter(_required(part).difference(value)))
            return f"{field}.{absent}".removeprefix("."), None, describe(_members(part)[absent])
    return field, Words(value) if isinstance(value, float) else value, describe(shape)


def _children(value: Any, shape: Any) -> Iterator[tuple[str, Any, Any]]:
    if shape is Any:
        shape = list[Any] if isinstance(value, list) else dict[str, Any]
    if is_typeddict(shape):
        yield from ((name, value[name], member) for name, member in _members(shape).items() if name in value)
    elif get_origin(shape) is list:
        yield from ((f"[{place}]", item, get_args(shape)[0]) for place, item in enumerate(value))
    else:
        yield from ((str(key), item, get_args(shape)[1]) for key, item in value.items())


def _alternatives(shape: Any) -> tuple[Any, ...]:
    return get_args(shape) if get_origin(shape) in (Union, UnionType) else (shape,)


def _container(shape: Any) -> Any:
    if get_origin(shape) is Literal:
        return type(get_args(shape)[0])
    if shape is Any:
        return (list, dict)
    return list if get_origin(shape) is list else dict


def _is_finite(values: Sequence[Any]) -> bool:
    level = list(values)
    while level:
        below: list[Any] = []
        for item in level:
            if type(item) is float and not math.isfinite(item):
                return False
            if type(item) is dict:
                below.extend(item.values())
            elif type(item) is list:
                below.extend(item)
        level = below
    return True


@cache
def _required(shape: Any) -> frozenset[str]:
    required: frozenset[str] = shape.__required_keys__
    return required


@cache
def _members(shape: Any) -> dict[str, Any]:
    return get_type_hints(shape)


def describe(shape: Any) -> str:
    """Say in words what a value may be."""
    kind, inside = get_origin(shape), get_args(shape)
    if shape in PLAIN:
        return PLAIN[shape]
    if kind in (Union, UnionType):
        return " or ".join(describe(part) for part in inside)
    if kind is Literal:
        return f"one of {', '.join(map(str, inside))}" if len(inside) > 1 else str(inside[0])
    if is_typeddict(shape):
        names = list(_members(shape))
        return f"a table of {', '.join(names[:SHOWN_FIELDS])}{', ...' if len(names) > SHOWN_FIELDS else ''}"
    if kind is list:
        return f"a list, each {describe(inside[0])}"
    return "a table" if kind is dict else "what JSON can hold: numbers are finite"
