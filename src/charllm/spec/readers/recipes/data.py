"""What a Python recipe says, as far as it is data: nothing of it is run.

Followed are assignments of literals, calls that build a table from keyword arguments (``run.Config(Cls, a=1)``,
``TrainingConfig(a=1)``), functions of the same file with their defaults, and conditions that these decide. Whatever
else is assigned to a setting is kept as its text, with its line.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from charllm.errors import SpecError
from charllm.spec.request import read_text

MAX_SOURCE = 2**19
MAX_CALLS = 200
MAX_DEPTH = 12
MAX_STEPS = 20_000
MAX_NUMBER = 10**15
MAX_ITEMS = 4096
MAX_PARENTS, MAX_FILES = 12, 24
"""Folders above a recipe in which an import is looked for, and files that are read for one recipe."""


class Traced(dict[str, Any]):
    """A table of settings that knows the line of each."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lines: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something that is not data: its source text and its line."""

    text: str
    line: int


@dataclass(slots=True)
class Scope:
    """Names of a function that is followed."""

    names: dict[str, Any] = field(default_factory=dict)
    returned: Any = None
    done: bool = False


def is_followed(name: str) -> bool:
    """Tell whether a function of another file says what a recipe sets; others have names that are known."""
    known = name.startswith(("get_", "default_peft"))
    return not known and (name.endswith(("_config", "_recipe", "_annealing")) or "_common" in name)


class Module:
    """A parsed recipe file: its functions, its constants, and statements that could not be followed."""

    def __init__(self, text: str, path: str, siblings: "dict[Path, Module | None] | None" = None) -> None:
        if len(text) > MAX_SOURCE:
            raise SpecError("--from", path, f"a recipe of at most {MAX_SOURCE:,} characters")
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise SpecError("--from", path, f"valid Python ({error})") from None
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.imports = {
            item.asname or item.name: (node.module, item.name)
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
            for item in node.names
        }
        self._path = Path(path)
        self._siblings: dict[Path, Module | None] = {} if siblings is None else siblings
        self.skipped: list[Opaque] = []
        self._calls = self._steps = 0
        self.globals = Scope()
        self._run([node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)], self.globals, MAX_DEPTH)
        self.skipped.clear()

    def call(self, name: str) -> Any:
        """Follow one function with the defaults of its parameters."""
        found = self.find(name)
        return None if found is None else found[0]._follow(found[1], {}, MAX_DEPTH)

    def find(self, name: str) -> "tuple[Module, ast.FunctionDef] | None":
        """Return a function of this file, or of the file of its checkout that this one imports it from."""
        if name in self.functions:
            return self, self.functions[name]
        other = self._imported(name)
        return other.find(self.imports[name][1]) if other is not None and other is not self else None

    def _imported(self, name: str) -> "Module | None":
        """Return the file that a name is imported from, where it lies in the checkout around this one."""
        if name not in self.imports:
            return None
        parts = self.imports[name][0].split(".")
        for folder in list(self._path.resolve().parents)[:MAX_PARENTS]:
            file = folder.joinpath(*parts).with_suffix(".py")
            if file in self._siblings:
                return self._siblings[file]
            if file.is_file() and len(self._siblings) < MAX_FILES:
                self._siblings[file] = None
                try:
                    self._siblings[file] = Module(read_text(file, "--from"), str(file), self._siblings)
                except SpecError:
                    return None
                return self._siblings[file]
        return None

    def _follow(self, function: ast.FunctionDef, given: dict[str, Any], depth: int) -> Any:
        self._calls += 1
        if depth <= 0 or self._calls > MAX_CALLS:
            return Opaque(f"{function.name}(...)", function.lineno)
        scope = Scope(dict(self._defaults(function, depth)))
        positional = [parameter.arg for parameter in function.args.args]
        for key, value in given.items():
            place = int(key[1:]) if key.startswith("#") else -1
            scope.names[positional[place] if 0 <= place < len(positional) else key] = value
        self._run(function.body, scope, depth - 1)
        return scope.returned

    def _defaults(self, function: ast.FunctionDef, depth: int) -> dict[str, Any]:
        plain, only = function.args, function.args
        values = [*[None] * (len(plain.args) - len(plain.defaults)), *plain.defaults]
        pairs = [*zip(plain.args, values, strict=True), *zip(only.kwonlyargs, only.kw_defaults, strict=True)]
        return {
            parameter.arg: self._value(default, self.globals, depth) if default is not None else None
            for parameter, default in pairs
        }

    def _run(self, body: list[Any], scope: Scope, depth: int) -> None:
        for node in body:
            self._steps += 1
            if scope.done or self._steps > MAX_STEPS:
                return
            self._statement(node, scope, depth)

    def _statement(self, node: ast.stmt, scope: Scope, depth: int) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                found = self._value(value, scope, depth)
                for target in targets:
                    self._assign(target, found, scope, depth)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._assign(target, self._value(value, scope, depth), scope, depth)
            case ast.Return(value=value):
                scope.returned = None if value is None else self._value(value, scope, depth)
                scope.done = True
            case ast.If(test=test, body=body, orelse=orelse):
                self._branch(self._value(test, scope, depth), body, orelse, scope, depth)
            case ast.Expr(value=ast.Call() as call):
                found = self._value(call, scope, depth)
                if isinstance(found, Opaque) or (isinstance(found, Traced) and "_base_" in found):
                    self._skip(call)
            case ast.For() | ast.While() | ast.With() | ast.Try() | ast.AugAssign() | ast.Delete():
                self._skip(node)
            case _:
                pass

    def _branch(self, test: Any, body: list[Any], orelse: list[Any], scope: Scope, depth: int) -> None:
        if isinstance(test, Opaque) or (isinstance(test, Traced) and "_base_" in test):
            if body:
                self._skip(body[0])
            return
        self._run(body if test else orelse, scope, depth)

    def _skip(self, node: ast.AST) -> None:
        self.skipped.append(Opaque(_text(node), getattr(node, "lineno", 0)))

    def _assign(self, target: ast.expr, value: Any, scope: Scope, depth: int) -> None:
        match target:
            case ast.Name(id=name):
                scope.names[name] = value
            case ast.Attribute(value=owner, attr=name):
                self._put(self._table(owner, scope, depth), name, value, target.lineno)
            case ast.Tuple(elts=targets):
                known = isinstance(value, list) and len(value) == len(targets)
                for place, item in enumerate(targets):
                    self._assign(item, value[place] if known else value, scope, depth)
            case ast.Subscript(value=owner, slice=ast.Constant(value=str(name))):
                self._put(self._table(owner, scope, depth), name, value, target.lineno)
            case _:
                self._skip(target)

    def _put(self, table: Traced | None, name: str, value: Any, line: int) -> None:
        if table is not None:
            table[name] = value
            table.lines[name] = line

    def _table(self, node: ast.expr, scope: Scope, depth: int) -> Traced | None:
        """Return the table behind ``cfg.model``, made where the recipe leaves it to code that is not followed."""
        if isinstance(node, ast.Name):
            found = scope.names.get(node.id)
            if not isinstance(found, Traced):
                found = scope.names[node.id] = Traced(_base_=found) if found is not None else Traced()
            return found
        if isinstance(node, ast.Attribute):
            owner = self._table(node.value, scope, depth)
            if owner is None:
                return None
            below = owner.get(node.attr)
            if not isinstance(below, Traced):
                below = owner[node.attr] = Traced()
                owner.lines[node.attr] = node.lineno
            return below
        return None

    def _value(self, node: ast.expr, scope: Scope, depth: int) -> Any:
        self._steps += 1
        if depth <= 0 or self._steps > MAX_STEPS:
            return Opaque(_text(node), node.lineno)
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._name(node, name, scope)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(node, owner, name, scope, depth)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item, scope, depth) for item in items[:MAX_ITEMS]]
            case ast.Dict(keys=keys, values=values):
                return self._dict(keys, values, scope, depth)
            case ast.UnaryOp() | ast.BinOp() | ast.Compare() | ast.BoolOp() | ast.IfExp():
                return self._computed(node, scope, depth)
            case ast.Call():
                return self._called(node, scope, depth)
        return Opaque(_text(node), node.lineno)

    def _name(self, node: ast.expr, name: str, scope: Scope) -> Any:
        for names in (scope.names, self.globals.names):
            if name in names:
                return names[name]
        if name.isupper() and (other := self._imported(name)) is not None:
            return other.globals.names.get(self.imports[name][1], Opaque(name, node.lineno))
        return Opaque(name, node.lineno)

    def _attribute(self, node: ast.expr, owner: ast.expr, name: str, scope: Scope, depth: int) -> Any:
        found = self._value(owner, scope, depth - 1)
        if isinstance(found, Traced):
            return found.get(name, Opaque(_text(node), node.lineno) if "_base_" in found else None)
        return Opaque(_text(node), node.lineno)

    def _dict(self, keys: list[Any], values: list[Any], scope: Scope, depth: int) -> Traced:
        table = Traced()
        for key, value in zip(keys, values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                self._put(table, key.value, self._value(value, scope, depth - 1), key.lineno)
        return table

    def _computed(self, node: ast.expr, scope: Scope, depth: int) -> Any:
        """Work out arithmetic and conditions of values that are known."""
        work: Callable[..., Any]
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                parts, work = [operand], lambda value: not value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                parts, work = [operand], lambda value: -value
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC:
                parts, work = [left, right], ARITHMETIC[type(operator)]
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARISONS:
                parts, work = [left, right], COMPARISONS[type(operator)]
            case ast.BoolOp(op=operator, values=values):
                chosen = any if isinstance(operator, ast.Or) else all
                parts, work = values, lambda *found: chosen(found)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                decided = self._value(test, scope, depth - 1)
                known = not isinstance(decided, Opaque | Traced)
                return self._value(body if decided else orelse, scope, depth - 1) if known else self._opaque(node)
            case _:
                return self._opaque(node)
        found = [self._value(part, scope, depth - 1) for part in parts]
        if any(isinstance(value, Opaque | Traced) for value in found):
            return self._opaque(node)
        try:
            value = work(*found)
        except (TypeError, ValueError, ArithmeticError):
            return self._opaque(node)
        too_large = isinstance(value, int | float) and not abs(value) <= MAX_NUMBER
        too_long = isinstance(value, list | str) and len(value) > MAX_ITEMS
        return self._opaque(node) if too_large or too_long else value

    def _opaque(self, node: ast.expr) -> Opaque:
        return Opaque(_text(node), node.lineno)

    def _called(self, node: ast.Call, scope: Scope, depth: int) -> Any:
        """Follow a call: a function of this file, a table built from keywords, or something unknown."""
        name = _text(node.func)
        last = name.rpartition(".")[2]
        keywords = {key.arg: key for key in node.keywords if key.arg}
        if name in self.functions:
            given = {f"#{place}": self._value(item, scope, depth - 1) for place, item in enumerate(node.args)}
            given |= {key: self._value(item.value, scope, depth - 1) for key, item in keywords.items()}
            return self._follow(self.functions[name], given, depth - 1)
        found = self.find(name) if is_followed(name) else None
        if found is not None and self._calls < MAX_CALLS:
            self._calls += 1
            given = {f"#{place}": self._value(item, scope, depth - 1) for place, item in enumerate(node.args)}
            given |= {key: self._value(item.value, scope, depth - 1) for key, item in keywords.items()}
            return found[0]._follow(found[1], given, depth - 1)
        table = Traced()
        for key, item in keywords.items():
            self._put(table, key, self._value(item.value, scope, depth - 1), item.value.lineno)
        if last in ("Config", "Partial") and node.args:
            table["_target_"] = _text(node.args[0]).rpartition(".")[2]
            return table
        if last[:1].isupper() and not node.args:
            table["_target_"] = name
            return table
        if last in ("extend", "append", "update"):
            return None
        if last == "default_peft_config":
            table["scheme"] = (
                self._value(node.args[0], scope, depth - 1) if node.args else table.pop("peft_scheme", None)
            )
        table["_base_"] = Opaque(self._filled(node, scope), node.lineno)
        return table

    def _filled(self, node: ast.expr, scope: Scope) -> str:
        """Return the text of a call with the words that its names stand for."""
        text = _text(node)
        for name in {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}:
            value = self._name(node, name, scope)
            if isinstance(value, str):
                text = re.sub(rf"(?<=[(, ]){re.escape(name)}(?=[,)])", lambda _match, word=value: repr(word), text)  # type: ignore[misc]
        return text[:400]


ARITHMETIC: dict[type, Any] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: _product(left, right),
    ast.FloorDiv: lambda left, right: left // right,
    ast.Div: lambda left, right: left / right,
    ast.Mod: lambda left, right: left % right if isinstance(left, int) else None,
}
COMPARISONS: dict[type, Any] = {
    ast.Eq: lambda left, right: left == right,
    ast.NotEq: lambda left, right: left != right,
    ast.Is: lambda left, right: left is right,
    ast.IsNot: lambda left, right: left is not right,
    ast.Lt: lambda left, right: left < right,
    ast.LtE: lambda left, right: left <= right,
    ast.Gt: lambda left, right: left > right,
    ast.GtE: lambda left, right: left >= right,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}


def _product(left: Any, right: Any) -> Any:
    """Multiply numbers, or repeat a list a bounded number of times."""
    if isinstance(left, list) and isinstance(right, int) and len(left) * right > MAX_ITEMS:
        raise ValueError
    if isinstance(left, str) or isinstance(right, str | list):
        raise TypeError
    return left * right


def _text(node: ast.AST) -> str:
    try:
        return ast.unparse(node)[:200]
    except (ValueError, RecursionError):
        return "an expression"
