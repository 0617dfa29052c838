"""Words of a shell script with variables, arithmetic and simple commands filled in."""

import re
from typing import Any

from charllm.spec.readers.shell.arithmetic import evaluate
from charllm.spec.readers.shell.script import Script, Value, is_known, items_of, plain
from charllm.spec.readers.shell.syntax import Node, text_of
from charllm.spec.readers.shell.values import sliced, special_value, transform

Piece = tuple[str, bool] | None
"""Text of a word and whether blanks in it separate words; None: one word ends here."""

EXPANSIONS = ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion", "process_substitution")
MAX_RANGE = 1000

_LEAD = re.compile(r"(?:\s|\\\n)*")
"""Blanks and continued lines, which the grammar counts to the expansion after them."""
_RANGE = re.compile(r"\{(-?\d{1,6})\.\.(-?\d{1,6})(?:\.\.(\d{1,4}))?\}", re.ASCII)
_PREFIX = re.compile(r"\$\{\s*(?P<sign>[!#]?)(?P<name>[A-Za-z_]\w*|\d+|[@*#?$!-])", re.ASCII)
_SUBSCRIPT = re.compile(r"\[([^\]]*)\]")
_OPERATOR = re.compile(r":?[-=+?]|##?|%%?|//?[#%]?|\^\^?|,,?|:|@", re.ASCII)


def fields(script: Script, nodes: list[Node]) -> list[str]:
    """Return the words that a shell would make of some nodes."""
    words: list[str] = []
    for group in _adjacent([node for node in nodes if node.type != "comment"]):
        if len(group) == 1:
            words += _split(script, pieces(script, group[0]))
        else:
            words.append(_loose(script, "".join(text_of(node) for node in group)))
    return words


def _adjacent(nodes: list[Node]) -> list[list[Node]]:
    """Group nodes without a blank between them: one word that the grammar takes apart, such as ``[0]*$N+[1]``."""
    groups: list[list[Node]] = []
    for node in nodes:
        if groups and groups[-1][-1].end_byte == node.start_byte and not text_of(node)[:1].isspace():
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def _loose(script: Script, source: str) -> str:
    bare = source.replace("'", "").replace('"', "")
    filled = re.sub(r"\$\{?(\w+)\}?", lambda match: special_value(script, match[1]), bare, flags=re.ASCII)
    return script.checked(_unescape(filled))


def text(script: Script, node: Node) -> str:
    """Return the one text that a shell would make of a node, as in an assignment."""
    parts = [" " if piece is None else piece[0] for piece in pieces(script, node)]
    return script.checked("".join(parts))


def _split(script: Script, parts: list[Piece]) -> list[str]:
    words: list[str] = []
    word: str | None = None
    for piece in parts:
        if piece is None:
            words += [word] if word is not None else []
            word = None
            continue
        content, splits = piece
        if not splits:
            word = (word or "") + content
            continue
        for index, part in enumerate(re.split(r"[ \t\n]+", content)):
            if index and word is not None:
                words.append(word)
                word = None
            if part:
                word = (word or "") + part
    words += [word] if word is not None else []
    for entry in words:
        script.checked(entry)
    return words


def pieces(script: Script, node: Node, quoted: bool = False) -> list[Piece]:
    """Expand one node."""
    kind = node.type
    if kind in EXPANSIONS:
        return _expand(script, node, quoted)
    if kind == "raw_string":
        return [(text_of(node)[1:-1], False)]
    if kind == "ansi_c_string":
        return [(_unescape_c(text_of(node)[2:-1]), False)]
    if kind in ("string", "translated_string"):
        start = node.start_byte + _lead(text_of(node)) + (2 if kind != "string" else 1)
        return [("", False), *_between(script, node, start, node.end_byte - 1, quoted=True)]
    if kind == "brace_expression":
        return _brace_range(text_of(node))
    if kind == "concatenation":
        return _concatenated(script, node, quoted)
    if node.child_count and kind not in ("word", "extglob_pattern", "regex"):
        return _between(script, node, node.start_byte, node.end_byte, quoted)
    literal = text_of(node)
    return [(_unescape_quoted(literal) if quoted else _unescape(literal), False)]


def _concatenated(script: Script, node: Node, quoted: bool) -> list[Piece]:
    parts: list[Piece] = []
    place = node.start_byte
    for child in node.children:
        if child.start_byte > place:
            parts.append((_unescape(_source(node, place, child.start_byte)), False))
        parts += pieces(script, child, quoted)
        place = child.end_byte
    return parts


def _between(script: Script, node: Node, start: int, end: int, quoted: bool) -> list[Piece]:
    """Expand the text from one byte to another: the expansions in it, and what stands between them as it is."""
    parts: list[Piece] = []
    place = start
    wanted = EXPANSIONS if quoted else (*EXPANSIONS, "string", "raw_string")
    for child in _topmost(node, wanted):
        if child.start_byte < place or child.end_byte > end:
            continue
        literal = _source(node, place, child.start_byte + _lead(text_of(child)))
        if literal:
            parts.append((_unescape_quoted(literal) if quoted else _unescape(literal), False))
        parts += pieces(script, child, quoted)
        place = child.end_byte
    rest = _source(node, place, end)
    if rest:
        parts.append((_unescape_quoted(rest) if quoted else _unescape(rest), False))
    return parts


def _topmost(node: Node, kinds: tuple[str, ...]) -> list[Node]:
    """List the outermost nodes of some kinds inside a node."""
    found: list[Node] = []
    for child in node.children:
        found += [child] if child.type in kinds else _topmost(child, kinds)
    return found


def heredoc(script: Script, body: Node) -> str:
    """Return the text of a here-document with its variables filled in."""
    parts = _between(script, body, body.start_byte, body.end_byte, quoted=True)
    return script.checked("".join(piece[0] for piece in parts if piece))


def _lead(source: str) -> int:
    match = _LEAD.match(source)
    return match.end() if match else 0


def _source(node: Node, start: int, end: int) -> str:
    offset = node.start_byte
    return str(node.text[start - offset : end - offset].decode("utf-8", "replace"))


def _unescape(literal: str) -> str:
    return re.sub(r"\\(\n|.)", lambda match: "" if match[1] == "\n" else match[1], literal, flags=re.DOTALL)


def _unescape_quoted(literal: str) -> str:
    return re.sub(r'\\([$`"\\\n])', lambda match: "" if match[1] == "\n" else match[1], literal)


def _unescape_c(literal: str) -> str:
    return literal.replace("\\n", "\n").replace("\\t", "\t").replace("\\'", "'").replace("\\\\", "\\")


def _brace_range(literal: str) -> list[Piece]:
    match = _RANGE.fullmatch(literal)
    if match is None:
        return [(literal, False)]
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1) or 1
    numbers = list(range(first, last + 1, step) if last >= first else range(first, last - 1, -step))[:MAX_RANGE]
    parts: list[Piece] = []
    for number in numbers:
        parts += [(str(number), False), None]
    return parts[:-1]


def _expand(script: Script, node: Node, quoted: bool) -> list[Piece]:
    if node.type == "simple_expansion":
        return _variable(script, text_of(node)[_lead(text_of(node)) :].strip().lstrip("$"), quoted)
    if node.type == "arithmetic_expansion":
        return [(_arithmetic(script, node), False)]
    if node.type == "expansion":
        return _parameter(script, node, quoted)
    return [(_command_output(script, node), not quoted)]


def _variable(script: Script, name: str, quoted: bool) -> list[Piece]:
    if name in ("@", "*"):
        return _listed(script.arguments, quoted and name == "@")
    return [(special_value(script, name), not quoted)]


def _listed(items: list[str], apart: bool) -> list[Piece]:
    if not apart:
        return [(" ".join(items), True)]
    parts: list[Piece] = []
    for item in items:
        parts += [(item, False), None]
    return parts[:-1]


def _arithmetic(script: Script, node: Node) -> str:
    parts = _between(script, node, node.start_byte, node.end_byte, quoted=True)
    inner = "".join(piece[0] for piece in parts if piece)
    inner = inner[_lead(inner) :].strip().removeprefix("$((").removesuffix("))").removeprefix("$[").removesuffix("]")
    value = evaluate(inner, lambda name: special_value(script, name))
    return _unknown_sum(script, text_of(node)[_lead(text_of(node)) :].strip(), inner) if value is None else str(value)


def _unknown_sum(script: Script, source: str, inner: str) -> str:
    """Return a mark for a sum that needs something unknown, which remembers what that is."""
    values = inner + "".join(special_value(script, name) for name in re.findall(r"\b[A-Za-z_]\w*", inner, re.ASCII))
    roots = script.unknowns_in(values)
    return script.unknown(source, roots[0].kind, roots[0].root) if roots else script.unknown(source, "command")


def _parameter(script: Script, node: Node, quoted: bool) -> list[Piece]:
    """Expand ``${A}``, ``${A[@]}``, ``${A:-default}``, ``${#A}``, ``${A%x}``, ``${A/x/y}`` and the like."""
    blank = _lead(text_of(node))
    source = text_of(node)[blank:]
    match = _PREFIX.match(source)
    if match is None:
        return [(script.unknown(source, "command"), not quoted)]
    name, sign, place = match["name"], match["sign"], match.end()
    subscript = _SUBSCRIPT.match(source, place) if source[place : place + 1] == "[" else None
    place = subscript.end() if subscript else place
    value = _subscripted(script, name, _expanded(script, subscript)) if subscript else None
    if value is None:
        value = script.arguments if name in ("@", "*") else _value(script, name)
    if sign == "#":
        return [(str(len(value)), False)]
    if sign == "!":
        return [(special_value(script, plain(value)) if is_known(plain(value)) else plain(value), not quoted)]
    operator = _OPERATOR.match(source, place)
    if operator is None or source[place:] == "}":
        every = (subscript is not None and subscript[1] in ("@", "*")) or name in ("@", "*")
        if every and is_known("".join(items_of(value))):
            return _listed(items_of(value), quoted and "*" not in (name, subscript[1] if subscript else ""))
        return _listed(items_of(value), quoted) if every else [(script.checked(plain(value)), not quoted)]
    start = node.start_byte + blank + len(source[: operator.end()].encode())
    argument = _between(script, node, start, node.end_byte - 1, quoted)
    if operator.group() == ":" and isinstance(value, list):
        return _listed(sliced(script, value, name in ("@", "*"), "".join(part[0] for part in argument if part)), quoted)
    return _operate(script, name, value, operator.group(), argument, quoted)


def _expanded(script: Script, subscript: re.Match[str]) -> str:
    if "$" not in subscript[1]:
        return subscript[1]
    inner = re.fullmatch(r"\$\{?(\w+)\}?", subscript[1], re.ASCII)
    return special_value(script, inner[1]) if inner else script.unknown(subscript[1], "command")


def _value(script: Script, name: str) -> Value:
    return script.lookup(name) if re.fullmatch(r"\w+", name, re.ASCII) else special_value(script, name)


def _subscripted(script: Script, name: str, index: str) -> Value | None:
    if index in ("@", "*"):
        return items_of(script.lookup(name))
    value = script.lookup(name)
    if isinstance(value, dict):
        return value.get(index.strip("\"'"), "")
    number = evaluate(index, lambda word: special_value(script, word)) if is_known(index) else None
    if number is None:
        return script.unknown(f"${{{name}[{index}]}}", "command")
    items = items_of(value)
    return items[number] if -len(items) <= number < len(items) else ""


def _operate(
    script: Script, name: str, value: Value, operator: str, argument: list[Piece], quoted: bool
) -> list[Piece]:
    current = " ".join(items_of(value)) if isinstance(value, list) else plain(value)
    unset = not is_known(current) and all(entry.kind != "command" for entry in script.unknowns_in(current))
    empty = unset or not current
    if operator in ("-", "=", "+"):
        empty = unset
    if operator in (":-", "-", ":=", "=", ":?", "?"):
        if not empty or "?" in operator:
            return [(current, not quoted)]
        if operator.endswith("="):
            script.variables[name] = "".join(piece[0] for piece in argument if piece)
        return argument
    if operator in (":+", "+"):
        return [("", False)] if empty and quoted else [] if empty else argument
    if not is_known(current):
        return [(current, not quoted)]
    given = "".join(piece[0] for piece in argument if piece)
    return [(script.checked(transform(script, current, operator, given)), not quoted)]


def _command_output(script: Script, node: Node) -> str:
    """Return the output of the few commands that only print what they are given; of others a mark."""
    inner = [child for child in node.children if child.is_named and child.type != "comment"]
    unknown = script.unknown(" ".join(text_of(node)[_lead(text_of(node)) :].split()), "command")
    if not inner or node.type != "command_substitution":
        return unknown
    separator = re.fullmatch(r"IFS=[\"']?(.).*", text_of(inner[0]).strip(), re.DOTALL)
    if len(inner) == 2 and separator and "[*]" in text_of(inner[1]):
        # The first character of IFS joins the elements of an array.
        return _output(script, inner[1]).replace(" ", separator[1]) or unknown
    return _output(script, inner[0]) or unknown if len(inner) == 1 else unknown


def _output(script: Script, node: Node) -> str:
    if node.type == "pipeline":
        stages = [child for child in node.children if child.is_named]
        last = fields(script, [child for child in stages[-1].children if child.is_named]) if stages else []
        if len(stages) == 2 and last[:1] == ["bc"]:
            value = evaluate(_output(script, stages[0]), lambda name: special_value(script, name))
            return "" if value is None else str(value)
        if len(stages) == 2 and last[:1] == ["tr"] and len(last) == 3:
            case = {"[:lower:]": str.lower, "a-z": str.lower, "[:upper:]": str.upper, "A-Z": str.upper}.get(last[2])
            return case(_output(script, stages[0])) if case else ""
        return ""
    if node.type != "command":
        return ""
    words = fields(script, [child for child in node.children if child.is_named])
    if not words or not all(is_known(word) for word in words):
        return ""
    if words[0] == "echo":
        return " ".join(word for word in words[1:] if word not in ("-n", "-e"))
    if words[0] == "expr":
        value = evaluate(" ".join(words[1:]), lambda name: special_value(script, name))
        return "" if value is None else str(value)
    if words[0] == "basename" and len(words) > 1:
        return words[1].rstrip("/").rpartition("/")[2].removesuffix(words[2] if len(words) > 2 else "")
    return ""


def array_value(script: Script, node: Node) -> Value:
    """Return the value of ``( ... )``; of ``([a]=1 [b]=2)`` the array by name."""
    entries = [child for child in node.children if child.is_named]
    named = [_named_entry(script, child) for child in entries]
    if entries and all(named):
        return dict(entry for entry in named if entry)
    return fields(script, entries)


def _named_entry(script: Script, node: Any) -> tuple[str, str] | None:
    match = re.match(r"\[([^\]]+)\]=", text_of(node)) if node.type == "concatenation" else None
    if match is None:
        return None
    value = text(script, node)
    return match[1].strip("\"'"), value[value.index("=") + 1 :] if "=" in value else ""
