"""Assignments of a shell script to variables, arrays and their elements."""

from charllm.spec.readers.shell.script import Script, Value, items_of, plain
from charllm.spec.readers.shell.syntax import Node, text_of
from charllm.spec.readers.shell.words import array_value, text


def assignment(script: Script, node: Node) -> bool:
    """Follow ``A=1``, ``A+=1``, ``A=(1 2)`` and ``A[k]=1``."""
    target, value = node.children[0], node.children[-1]
    appends = any(child.type == "+=" for child in node.children)
    subscript = target.type == "subscript"
    name = text_of(target.children[0] if subscript else target).strip()
    if value.type in ("=", "+="):
        found: Value = ""
    elif value.type == "array":
        found = array_value(script, value)
    else:
        found = text(script, value)
    if subscript:
        _assign_element(script, name, text_of(target), found)
    else:
        script.variables[name] = _appended(script, script.variables.get(name), found) if appends else found
    return True


def _assign_element(script: Script, name: str, target: str, value: Value) -> None:
    key = target[target.find("[") + 1 : target.rfind("]")].strip("\"'")
    if key.startswith("$"):
        key = plain(script.lookup(key.strip("${}")))
    held = script.variables.get(name, {})
    entries = {str(index): item for index, item in enumerate(held)} if isinstance(held, list) else held
    script.variables[name] = {**(entries if isinstance(entries, dict) else {}), key: plain(value)}


def _appended(script: Script, under: Value | None, over: Value) -> Value:
    if under is None:
        return over
    if isinstance(under, str) and isinstance(over, str):
        return script.checked(under + over)
    if isinstance(under, dict) and isinstance(over, dict):
        return {**under, **over}
    return [*items_of(under), *items_of(over)]


def declaration(script: Script, node: Node) -> bool:
    """Follow ``export``, ``local``, ``declare`` and the like."""
    for child in node.children:
        if child.type == "variable_assignment":
            assignment(script, child)
        elif child.type in ("word", "concatenation", "string") and "=" in text_of(child):
            name, _, value = text(script, child).partition("=")
            if name.isidentifier():
                script.variables[name] = value
    return True
