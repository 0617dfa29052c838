"""Values of variables: looked up, calculated, cut, replaced and matched."""

import re
from fnmatch import fnmatchcase

from charllm.spec.readers.shell.arithmetic import evaluate
from charllm.spec.readers.shell.script import Script, plain


def special_value(script: Script, name: str) -> str:
    """Return the value of a variable or of a special parameter."""
    if name == "#":
        script.guesses += not script.arguments_known
        return str(len(script.arguments))
    if name == "0":
        return script.path
    if re.fullmatch(r"\w+", name, re.ASCII):
        return script.checked(plain(script.lookup(name)))
    return "0" if name == "?" else script.unknown(f"${name}", "command")


def bare(expression: str) -> str:
    """Write the variables of an arithmetic expression without their dollar signs."""
    return re.sub(r"\$\{?(\w+)\}?", r"\1", expression, flags=re.ASCII)


def assign_arithmetic(script: Script, statement: str) -> int | None:
    """Work out ``x = y * 2`` or ``i++`` of ``((...))`` and ``let``, and keep what it assigns."""
    step = re.fullmatch(r"\s*(\w+)\s*(\+\+|--)\s*|\s*(\+\+|--)\s*(\w+)\s*", statement, re.ASCII)
    if step:
        name, sign = step[1] or step[4], (step[2] or step[3])[0]
        statement = f"{name} = {name} {sign} 1"
    match = re.fullmatch(r"\s*(\w+)\s*([-+*/%]?)=(?!=)(.*)", statement, re.ASCII | re.DOTALL)
    if match is None:
        return evaluate(statement, lambda name: special_value(script, name))
    name, operator, right = match[1], match[2], match[3]
    value = evaluate(f"{name} {operator} ({right})" if operator else right, lambda name: special_value(script, name))
    script.variables[name] = script.unknown(f"$(({statement.strip()}))", "command") if value is None else str(value)
    return value


def transform(script: Script, value: str, operator: str, given: str) -> str:
    """Change a value as ``${A%x}``, ``${A^^}``, ``${A/x/y}`` and ``${A:0:1}`` do."""
    if operator == ":":
        return _slice(script, value, given)
    if operator[0] in "#%":
        return _trim(value, operator, given)
    if operator[0] in "^,":
        change = str.upper if operator[0] == "^" else str.lower
        return change(value) if len(operator) == 2 else change(value[:1]) + value[1:]
    if operator[0] == "/":
        pattern, _, replacement = given.partition("/")
        return value.replace(pattern, replacement, -1 if operator.startswith("//") else 1) if pattern else value
    return value


def _slice(script: Script, value: str, given: str) -> str:
    first, _, length = given.partition(":")
    start = evaluate(first, lambda name: special_value(script, name))
    count = evaluate(length, lambda name: special_value(script, name)) if length else len(value)
    if start is None or count is None:
        return script.unknown(f"${{...:{given}}}", "command")
    return value[start:][:count] if count >= 0 else value[start:count]


def sliced(script: Script, items: list[str], arguments: bool, given: str) -> list[str]:
    """Return some elements of an array; arguments are counted from 1."""
    first, _, length = given.partition(":")
    start = evaluate(first, lambda name: special_value(script, name)) or 0
    count = evaluate(length, lambda name: special_value(script, name)) if length else None
    start = max(start - 1, 0) if arguments and start >= 0 else start
    return items[start:] if count is None else items[start:][: max(count, 0)]


def _trim(value: str, operator: str, pattern: str) -> str:
    """Cut the shortest or longest start (#, ##) or end (%, %%) that a pattern matches."""
    if len(value) > 4096 or len(pattern) > 256:
        return value
    lengths = range(len(value) + 1) if len(operator) == 1 else range(len(value), -1, -1)
    for length in lengths:
        start = operator[0] == "#"
        part = value[:length] if start else value[len(value) - length :]
        if matches(part, pattern):
            return value[length:] if start else value[: len(value) - length]
    return value


def matches(value: str, pattern: str) -> bool:
    """Say whether a shell pattern matches a whole value."""
    if len(pattern) > 256 or pattern.count("*") > 8:
        return value == pattern
    return fnmatchcase(value, pattern)
