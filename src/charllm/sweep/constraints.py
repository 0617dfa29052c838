"""Constraints on the cases of a study: ``tp*pp <= 32``, ``mbs in (1, 2) and recompute != "full"``.

A constraint is parsed, and only the arithmetic, comparisons and names listed here are evaluated; it is never executed.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from charllm.errors import SpecError, unknown_name

LONGEST = 500
FIELD = "STUDY.where"
FORM = 'a comparison of axes and fields, such as "tp*pp <= 32"'
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda value, listed: value in listed,
    ast.NotIn: lambda value, listed: value not in listed,
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """A comparison that every case of a study meets."""

    text: str
    names: Mapping[str, str]
    """Name as written: the setting of a case that it stands for."""
    tree: ast.expr = field(compare=False, repr=False)

    def holds(self, settings: Mapping[str, Any]) -> bool:
        """Tell whether a case with these settings meets it."""
        try:
            return bool(self._value(self.tree, settings))
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise SpecError(FIELD, self.text, f"{FORM} ({error})") from None

    def _value(self, node: ast.expr, settings: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name() | ast.Attribute():
                return self._setting(dotted(node), settings)
            case ast.Tuple(items) | ast.List(items):
                return [self._value(item, settings) for item in items]
            case ast.BoolOp(op, parts):
                whole = all if isinstance(op, ast.And) else any
                return whole(self._value(part, settings) for part in parts)
            case ast.UnaryOp(op, operand):
                value = self._value(operand, settings)
                return not value if isinstance(op, ast.Not) else -_number(value)
            case ast.BinOp(left, op, right):
                first, second = (_number(self._value(side, settings)) for side in (left, right))
                return ARITHMETIC[type(op)](first, second)
            case ast.Compare(first, ops, others):
                values = [self._value(part, settings) for part in (first, *others)]
                return all(COMPARISONS[type(op)](*pair) for op, pair in zip(ops, pairwise(values), strict=True))
        raise SpecError(FIELD, self.text, FORM)

    def _setting(self, name: str, settings: Mapping[str, Any]) -> Any:
        value = settings.get(self.names[name])
        if value is None:
            raise SpecError(FIELD, self.text, f"{name} set in every case, by the request or by an axis")
        return value


def read_constraints(texts: Any, known: Mapping[str, str]) -> tuple[Constraint, ...]:
    """Read the list of constraints of a study; `known` are the names of its axes and settings."""
    listed = [texts] if isinstance(texts, str) else texts
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise SpecError(FIELD, texts, f"a list of texts, each {FORM}")
    return tuple(_read(text, known) for text in listed)


def _read(text: str, known: Mapping[str, str]) -> Constraint:
    try:
        tree = ast.parse(text.strip() if len(text) <= LONGEST else "", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpecError(FIELD, text, FORM) from None
    _check(tree, text)
    return Constraint(text, {name: _resolve(name, known) for name in _names(tree)}, tree)


def _check(tree: ast.expr, text: str) -> None:
    """Refuse everything but arithmetic, comparisons, names, numbers and texts."""
    allowed = (ast.Name, ast.Attribute, ast.Tuple, ast.List, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Load,
               ast.And, ast.Or, ast.Not, ast.USub, *ARITHMETIC, *COMPARISONS)  # fmt: skip
    for node in ast.walk(tree):
        plain = isinstance(node, ast.Constant) and isinstance(node.value, str | int | float)
        if not plain and (not isinstance(node, allowed) or (isinstance(node, ast.Attribute) and not dotted(node))):
            raise SpecError(FIELD, text, FORM)


def _names(tree: ast.expr) -> set[str]:
    """Return the names of a tree; of ``parallelism.tp`` the whole, not its first part."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner)
    return {dotted(node) for node in found}


def dotted(node: ast.expr) -> str:
    """Return a chain of attributes as a dotted name; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return before and f"{before}.{node.attr}"
    return ""


def _resolve(name: str, known: Mapping[str, str]) -> str:
    """Return the setting that a name stands for: an axis, a field, or the only field that ends in the name."""
    if name in known:
        return known[name]
    ending = {setting for setting in known.values() if setting.endswith(f".{name}")}
    if len(ending) == 1:
        return ending.pop()
    raise unknown_name(FIELD, name, ending or known)


def _number(value: Any) -> Any:
    if isinstance(value, int | float):
        return value
    raise TypeError(f"{value!r} is not a number")
