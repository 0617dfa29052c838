"""Small wrong changes to Python source, drawn evenly over files by their amount of code.

Changed are operators, signs, exponents, factors, constants and comparisons; min, max and mean; and, or, not; counts and
indices by one; terms, factors and bounds are dropped. Never changed: texts, type annotations, decorators, error
messages, `__slots__`, and constants that only keep a division from zero (below `GUARD`).
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

GUARD = 1e-8
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
REVERSED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
BY_ONE: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
EXTREMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "mean": "max", "argmin": "argmax",
    "argmax": "argmin",
}  # fmt: skip
TEXTS = (ast.JoinedStr, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom)


class Mutant(NamedTuple):
    """One change of one file."""

    file: str
    function: str
    """Qualified name of the function or class around it; empty at module level."""
    line: int
    start: int
    """Offset in the UTF-8 source, and its end."""
    end: int
    before: str
    after: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What stays the same when lines above it change."""
        return self.file, self.function, self.before, self.after


def draw_mutants(root: Path, folders: tuple[str, ...], count: int, seed: int) -> list[Mutant]:
    """Draw changes of the files below some folders: to each file its share by lines of code, then any place in it."""
    files = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    sites = {path: list(list_sites(path, str(path.relative_to(root)))) for path in files}
    lines = {path: len({site[0].line for site in sites[path]}) for path in files if sites[path]}
    random = Random(seed)
    quotas = share_out(count, list(lines.values()))
    drawn = []
    for path, quota in zip(lines, quotas, strict=True):
        drawn += [random.choice(options) for options in random.sample(sites[path], min(quota, len(sites[path])))]
    return sorted(drawn)


def share_out(count: int, weights: list[int]) -> list[int]:
    """Share a count out by weights: the largest remainders get what rounding down leaves."""
    exact = [count * weight / sum(weights) for weight in weights]
    shares = [int(share) for share in exact]
    for index in sorted(range(len(exact)), key=lambda index: shares[index] - exact[index])[: count - sum(shares)]:
        shares[index] += 1
    return shares


def list_sites(path: Path, file: str) -> Iterator[list[Mutant]]:
    """Yield, for each place of a file that can be changed, its changes."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, function in _places(ast.parse(source), ""):
        start, end = (
            starts[line - 1] + column
            for line, column in ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        )
        before = source[start:end].decode()
        options = [
            Mutant(file, function, node.lineno, start, end, before, f"({ast.unparse(change)})")
            for change in changes(node)
        ]
        if options:
            yield options


def apply_mutant(source: bytes, mutant: Mutant) -> bytes:
    """Return a file's source with the change."""
    if source[mutant.start : mutant.end].decode() != mutant.before:
        raise ValueError(f"{mutant.file} is not the source that the mutant was drawn from")
    return source[: mutant.start] + mutant.after.encode() + source[mutant.end :]


def _places(node: ast.AST, function: str) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(node, ast.expr):
        yield node, function
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, TEXTS) and not _sets_slots(child):
                yield from _places(child, function)


def _sets_slots(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(at, ast.Name) and at.id == "__slots__" for at in node.targets
    )


def changes(node: ast.expr) -> list[ast.expr]:
    """Return the changed forms of an expression."""
    change = CHANGES.get(type(node))
    return change(node) if change else []


def _binary(node: ast.BinOp) -> list[ast.expr]:
    if type(node.op) not in ARITHMETIC or any(_is_list_or_text(side) for side in (node.left, node.right)):
        return []
    other = ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    dropped = [node.left, node.right] if isinstance(node.op, ast.Add | ast.Mult) else [node.left]
    return [other, *dropped]


def _is_list_or_text(node: ast.expr) -> bool:
    """Such a side fails at once under another operator, which says nothing about tests."""
    return isinstance(node, ast.List | ast.Tuple | ast.ListComp | ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _unary(node: ast.UnaryOp) -> list[ast.expr]:
    return [node.operand] if isinstance(node.op, ast.USub | ast.Not | ast.Invert) else []


def _constant(node: ast.Constant) -> list[ast.expr]:
    value = node.value
    if type(value) is int:
        return [
            ast.Constant(value + 1),
            ast.UnaryOp(ast.USub(), ast.Constant(1)) if not value else ast.Constant(value - 1),
        ]
    if type(value) is float and (value == 0 or abs(value) >= GUARD):
        return [ast.Constant(1.0)] if value == 0 else [ast.Constant(value * 2), ast.Constant(value / 2)]
    return []


def _comparison(node: ast.Compare) -> list[ast.expr]:
    """A bound is moved by one where whole numbers are compared; elsewhere equal values hardly ever meet."""
    if len(node.ops) > 1:
        return []
    kind = type(node.ops[0])
    forms = [REVERSED[kind]]
    if kind in BY_ONE and any(_is_whole(side) for side in (node.left, *node.comparators)):
        forms.append(BY_ONE[kind])
    return [ast.Compare(node.left, [form()], node.comparators) for form in forms]


def _is_whole(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and type(node.value) is int) or (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"
    )


def _boolean(node: ast.BoolOp) -> list[ast.expr]:
    other: ast.boolop = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    return [ast.BoolOp(other, node.values), *node.values[:1]]


def _call(node: ast.Call) -> list[ast.expr]:
    called = node.func
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    found: list[ast.expr] = []
    if name in EXTREMES:
        other = (
            ast.Attribute(called.value, EXTREMES[name])
            if isinstance(called, ast.Attribute)
            else ast.Name(EXTREMES[name])
        )
        found.append(ast.Call(other, node.args, node.keywords))
    if name in ("min", "max", "minimum", "maximum") and len(node.args) > 1 and not node.keywords:
        found += [arg for arg in node.args if not isinstance(arg, ast.Starred | ast.Constant)]
    if name == "range" and isinstance(called, ast.Name):
        last = node.args[min(1, len(node.args) - 1)]
        for form in (ast.Add(), ast.Sub()):
            stop = ast.BinOp(last, form, ast.Constant(1))
            found.append(ast.Call(called, [stop if arg is last else arg for arg in node.args], []))
    return found


CHANGES: dict[type[ast.expr], Callable[[Any], list[ast.expr]]] = {
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.Constant: _constant,
    ast.Compare: _comparison,
    ast.BoolOp: _boolean,
    ast.Call: _call,
}
