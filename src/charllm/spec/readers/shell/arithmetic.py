"""Integer arithmetic as a shell does it, worked out without running anything."""

import re
from collections.abc import Callable

MAX_TEXT = 2000
MAX_MAGNITUDE = 2**63
MAX_DEPTH = 60

_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|\d+)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<operator>\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>()!?:&|^~]))",
    re.ASCII,
)
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"), ("**",),
)  # fmt: skip
_APPLY: dict[str, Callable[[int, int], int]] = {
    "||": lambda left, right: int(bool(left or right)),
    "&&": lambda left, right: int(bool(left and right)),
    "|": lambda left, right: left | right,
    "^": lambda left, right: left ^ right,
    "&": lambda left, right: left & right,
    "==": lambda left, right: int(left == right),
    "!=": lambda left, right: int(left != right),
    "<": lambda left, right: int(left < right),
    ">": lambda left, right: int(left > right),
    "<=": lambda left, right: int(left <= right),
    ">=": lambda left, right: int(left >= right),
    "<<": lambda left, right: left << min(max(right, 0), 64),
    ">>": lambda left, right: left >> min(max(right, 0), 64),
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1),
    "%": lambda left, right: abs(left) % abs(right) * (-1 if left < 0 else 1),
    "**": lambda left, right: left ** min(max(right, 0), 64),
}


class _Unclear(Exception):
    """The text is no arithmetic, or needs something unknown."""


def evaluate(text: str, value_of: Callable[[str], str]) -> int | None:
    """Work out ``(A + 2) * B > 3 ? 1 : 0``; None when a part is unknown or it is no arithmetic."""
    try:
        tokens = _tokens(text, value_of)
        value, rest = _ternary(tokens, 0)
        return value if rest == len(tokens) else None
    except (_Unclear, ZeroDivisionError, RecursionError):
        return None


def _tokens(text: str, value_of: Callable[[str], str]) -> list[str]:
    if len(text) > MAX_TEXT:
        raise _Unclear
    tokens, place, text = [], 0, text.strip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _Unclear
        place = match.end()
        if match["name"]:
            value = value_of(match["name"]).strip()
            if not re.fullmatch(r"-?\d{1,19}", value, re.ASCII):
                raise _Unclear
            tokens += ["(", "0", "-", value[1:], ")"] if value.startswith("-") else [value]
        else:
            tokens.append(match["number"] or match["operator"])
    if tokens.count("(") > MAX_DEPTH:
        raise _Unclear
    return tokens


def _ternary(tokens: list[str], place: int) -> tuple[int, int]:
    value, place = _level(tokens, place, 0)
    if tokens[place : place + 1] == ["?"]:
        first, place = _ternary(tokens, place + 1)
        if tokens[place : place + 1] != [":"]:
            raise _Unclear
        second, place = _ternary(tokens, place + 1)
        value = first if value else second
    return value, place


def _level(tokens: list[str], place: int, level: int) -> tuple[int, int]:
    if level == len(_LEVELS):
        return _single(tokens, place)
    value, place = _level(tokens, place, level + 1)
    while place < len(tokens) and tokens[place] in _LEVELS[level]:
        right, after = _level(tokens, place + 1, level + 1)
        value, place = _APPLY[tokens[place]](value, right), after
        if abs(value) > MAX_MAGNITUDE:
            raise _Unclear
    return value, place


def _single(tokens: list[str], place: int) -> tuple[int, int]:
    if place >= len(tokens):
        raise _Unclear
    token = tokens[place]
    if token in ("-", "+", "!", "~"):
        value, place = _single(tokens, place + 1)
        return {"-": -value, "+": value, "!": int(not value), "~": ~value}[token], place
    if token == "(":
        value, place = _ternary(tokens, place + 1)
        if tokens[place : place + 1] != [")"]:
            raise _Unclear
        return value, place + 1
    if not token[0].isdigit():
        raise _Unclear
    return int(token, 16 if token[:2] in ("0x", "0X") else 10), place + 1
