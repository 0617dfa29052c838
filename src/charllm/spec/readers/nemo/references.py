"""OmegaConf references and resolvers, worked out without running anything: ``${multiply:4, ${.hidden_size}}``."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from charllm.errors import SpecError
from charllm.spec.readers.values import MAX_COUNT, MAX_TEXT, shown

MAX_REFERENCES = 64
MAX_DEPTH = 16

_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
_NUMBER = re.compile(r"[+-]?(\d{1,15}|\d{0,15}\.\d{1,15}|\d{1,15}\.\d{0,15})([eE][+-]?\d{1,3})?", re.ASCII)


_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


class Source(NamedTuple):
    """What references are worked out from."""

    raw: Callable[[str], tuple[bool, Any]]
    """Tells whether something stands at a dotted path, and what, as it is written."""
    mounts: tuple[str, ...] = ()
    """Names under which the file may be mounted, which references then begin with."""
    environment: Mapping[str, str] = {}


def _divided(left: float, right: float) -> float:
    return left / right


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "multiply": lambda *values: math.prod(values),
    "mult": lambda *values: math.prod(values),
    "mul": lambda *values: math.prod(values),
    "prod": lambda *values: math.prod(values),
    "add": lambda *values: sum(values),
    "sum": lambda *values: sum(values),
    "subtract": lambda left, right: left - right,
    "sub": lambda left, right: left - right,
    "divide": _divided,
    "div": _divided,
    "divide_ceil": lambda left, right: math.ceil(left / right),
    "ceil_div": lambda left, right: math.ceil(left / right),
    "divide_floor": lambda left, right: math.floor(left / right),
    "int_div": lambda left, right: math.floor(left / right),
    "floor_div": lambda left, right: math.floor(left / right),
    "max": max,
    "min": min,
    "int": int,
}
"""Resolver of numbers: what it works out. NeMo, its launcher and its aligner register these."""
LOGIC: dict[str, Callable[..., Any]] = {
    "not": lambda value: not value,
    "eq": lambda left, right: left == right,
    "neq": lambda left, right: left != right,
    "lt": lambda left, right: left < right,
    "gt": lambda left, right: left > right,
    "if": lambda condition, then, otherwise: then if condition else otherwise,
    "or": lambda *values: any(values),
    "and": lambda *values: all(values),
    "oc.decode": lambda value: value,
}


def resolve(source: Source, path: str, depth: int = MAX_DEPTH) -> Any:
    """Return the value at a dotted path with all its references worked out; None when there is nothing."""
    _, value = source.raw(path)
    return value if not isinstance(value, str) or "${" not in value else _fill(source, path, value, depth)


def _fill(source: Source, path: str, text: str, depth: int) -> Any:
    """Replace the innermost reference of a text by its value, until none is left."""
    if depth <= 0:
        raise SpecError(path, text[:MAX_TEXT], "a reference that ends in a value")
    written = text = text.strip()
    for _ in range(MAX_REFERENCES):
        match = _INNERMOST.search(text)
        if match is None:
            break
        value = _evaluate(source, path, match[1].strip(), depth)
        if match.span() == (0, len(text)) and not (isinstance(value, str) and "${" in value):
            return value
        text = f"{text[: match.start()]}{'null' if value is None else value}{text[match.end() :]}"
        if len(text) > 10_000:
            break
    if "${" in text:
        possible = "a plain value, or a reference such as ${model.encoder_seq_length}"
        raise SpecError(path, written[:MAX_TEXT], possible)
    return text


def _evaluate(source: Source, path: str, inner: str, depth: int) -> Any:
    """Work out what stands between ``${`` and ``}``: a path, or a resolver and its arguments."""
    name, colon, rest = inner.partition(":")
    if not colon:
        return _follow(source, path, inner, depth)
    arguments = [_scalar(part) for part in rest.split(",")] if rest.strip() else []
    if name in ("oc.env", "env"):
        return _variable(source, path, inner, arguments)
    if name == "oc.select":
        found = _follow(source, path, str(arguments[0]) if arguments else "", depth, required=False)
        return arguments[1] if found is None and len(arguments) > 1 else found
    if name in ARITHMETIC and not all(_is_number(value) for value in arguments):
        raise SpecError(path, f"${{{inner}}}"[:MAX_TEXT], "numbers to work with")
    if _VARIABLE.fullmatch(name):
        # Primus writes ${NAME:default}.
        return _scalar(source.environment.get(name, rest))
    function = ARITHMETIC.get(name) or LOGIC.get(name)
    if function is None:
        raise SpecError(path, f"${{{inner}}}"[:MAX_TEXT], f"one of {', '.join([*ARITHMETIC, *LOGIC, 'oc.env'])}")
    try:
        value = function(*arguments)
    except (TypeError, ValueError, ArithmeticError):
        raise SpecError(path, f"${{{inner}}}"[:MAX_TEXT], f"arguments that {name} takes") from None
    if _is_number(value) and not abs(value) <= MAX_COUNT**2:
        raise SpecError(path, f"${{{inner}}}"[:MAX_TEXT], "a number within bounds")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _variable(source: Source, path: str, inner: str, arguments: list[Any]) -> Any:
    """Return a variable that the user gives, else its default: the environment of this process is not read."""
    name = str(arguments[0]) if arguments else ""
    if name in source.environment:
        return _scalar(source.environment[name])
    if len(arguments) < 2:
        raise SpecError(path, f"${{{inner}}}"[:MAX_TEXT], f"a default, or --env {name}=VALUE")
    return arguments[1]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _follow(source: Source, path: str, target: str, depth: int, *, required: bool = True) -> Any:
    """Follow a path from the root, or, with n dots before it, from n levels above the key it stands at."""
    name = target.lstrip(".")
    dots = len(target) - len(name)
    full = ".".join([*(path.split(".")[:-dots] if dots else []), name])
    there, value = source.raw(full)
    if not there and not dots:
        first, _, rest = full.partition(".")
        others = [rest] if first in source.mounts and rest else [f"{mount}.{full}" for mount in source.mounts]
        full = next((other for other in others if source.raw(other)[0]), full)
        there, value = source.raw(full)
    if not there:
        if not required:
            return None
        raise SpecError(path, f"${{{target}}}"[:MAX_TEXT], "a reference to a value of this file")
    return _fill(source, full, value, depth - 1) if isinstance(value, str) and "${" in value else value


def _scalar(text: str) -> Any:
    """Read an argument: a number, a yes or no, or a word."""
    word = text.strip().strip("'\"")
    if _NUMBER.fullmatch(word):
        number = float(word)
        return int(word) if re.fullmatch(r"[+-]?\d+", word) else number
    return {"true": True, "false": False, "null": None, "none": None}.get(word.lower(), shown(word))
