"""The words a launch script passes to its commands, found by reading its variables and never by running it.

Statements are read top to bottom and the last assignment wins. Tests of the script's own variables choose
between branches; where a test needs more than these, every branch is read. Bodies of loops are read once.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from charllm.errors import SpecError
from charllm.spec.readers.megatron.branches import Branch, decide, follow
from charllm.spec.readers.megatron.expression import evaluate_sum
from charllm.units import format_bytes

MAX_SCRIPT = 2**20
MAX_TEST = 12
MAX_VALUE = 2**17
MAX_EXPANDED = 2**21

_BRACES = r"\$\{(?:\$\{[^{}]*\}|[^{}])*+\}"
_SUM = r"\$\(\((?:[^()]|\([^()]*\))*+\)\)"
_TOKEN = re.compile(
    rf"""
    (?P<space>(?:\\[ \t]*\n|[ \t\r\f\v])+)
  | (?P<comment>(?<![^\s;&|(])\#[^\n]*)
  | (?P<end>\n|;+|&&?|\|\|?)
  | (?P<redirect>[<>]+&?)
  | (?P<single>'[^']*')
  | (?P<double>"(?:\\.|{_BRACES}|[^"\\])*+")
  | (?P<bare>{_SUM}|\$\((?:[^()]|\([^()]*\))*+\)|{_BRACES}|\$\w+|`[^`]*`|\\.|[^\s'"\\`$;&|()\#<>]+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_EXPANSION = re.compile(
    rf"\\(?P<escaped>.)|(?P<sum>{_SUM})|(?P<braces>{_BRACES})|\$(?P<name>[A-Za-z_]\w*|\d)",
    re.DOTALL | re.ASCII,
)
_PARAMETER = re.compile(r"(?P<name>\w+)(?:\[[@*0]\])?(?:(?P<operator>:?[-=+])(?P<default>.*))?", re.DOTALL | re.ASCII)
_ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<append>\+?)=", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PRINTING = ("echo", "printf")
_TESTING = ("if", "elif", "case")
_SKIPS = {"&&": False, "||": True}
_PREFIXES = ("then", "else", "do", "{", "export", "declare", "local", "readonly", "typeset", "env")

Word = list[tuple[str, str]]
"""Pieces of a word: how each is quoted, and its text."""


class Statement(NamedTuple):
    """A command, or with a target the array that is assigned to it."""

    words: list[Word]
    target: str = ""
    end: str = "\n"


@dataclass(slots=True)
class Script:
    """What reading a script has found so far."""

    path: str
    variables: dict[str, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    expanded: int = 0


def read_script(text: str, path: str) -> Script:
    """Read a script's variables and the words of all its commands, variables filled in."""
    if len(text) > MAX_SCRIPT:
        raise SpecError("--from", path, f"a script of at most {format_bytes(MAX_SCRIPT)}")
    script = Script(path)
    branches: list[Branch] = []
    skipping = ""
    for statement in _statements(text.replace("\r\n", "\n")):
        leading = follow(branches, _flow_words(script, statement))
        if leading is None or skipping:
            skipping = skipping if statement.end == skipping else ""
        elif statement.target:
            _assign_array(script, statement)
        else:
            _read_command(script, statement.words[leading:])
            skipping = statement.end if _skips_next(script, statement, leading) else ""
    return script


def _flow_words(script: Script, statement: Statement) -> list[str]:
    """Return the words that may steer the flow; variables are filled in only where they are tested."""
    if statement.target:
        return []
    words = statement.words[:MAX_TEST]
    plain = [_plain_text(word) for word in words]
    return [_expand(script, word) for word in words] if any(word in _TESTING for word in plain[:3]) else plain


def _plain_text(word: Word) -> str:
    pieces = (piece[1:-1] if kind in ("single", "double") else piece for kind, piece in word)
    return "".join(piece for piece in pieces if not piece.startswith(("$(", "`")))


def _skips_next(script: Script, statement: Statement, leading: int) -> bool:
    """Say whether a test before ``&&`` or ``||`` keeps the next command from running."""
    if statement.end not in _SKIPS:
        return False
    words = [_expand(script, word) for word in statement.words[leading : leading + MAX_TEST]]
    return decide(words) is _SKIPS[statement.end]


def split_words(text: str) -> list[str]:
    """Split a text as a shell would, or at blanks when its quotes do not match."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _statements(text: str) -> Iterator[Statement]:
    words: list[Word] = []
    word: Word = []
    target, depth = "", 0
    for match in _TOKEN.finditer(text):
        kind, piece = str(match.lastgroup), match.group()
        if kind in ("single", "double", "bare"):
            depth += {"(": 1, ")": -1}.get(piece, 0)
            if piece == "(" and not target and _is_target(word):
                words, word, target, depth = [], [], word[0][1], 0
            elif piece == ")" and target and depth < 0:
                yield Statement([*words, word] if word else words, target)
                words, word, target = [], [], ""
            else:
                word.append((kind, piece))
            continue
        if word:
            words.append(word)
            word = []
        if kind == "end" and not target:
            yield Statement(words, end=piece)
            words, depth = [], 0
    yield Statement([*words, word] if word else words, target)


def _is_target(word: Word) -> bool:
    return len(word) == 1 and word[0][0] == "bare" and _ASSIGNED.fullmatch(word[0][1]) is not None


def _assign_array(script: Script, statement: Statement) -> None:
    words = [part for word in statement.words for part in _expand_word(script, word)]
    _assign(script, statement.target, shlex.join(words), " ")


def _assign(script: Script, target: str, value: str, glue: str) -> None:
    match = _ASSIGNED.match(target)
    assert match is not None
    name = match["name"]
    if match["append"] and name in script.variables:
        value = f"{script.variables[name]}{glue}{value}"
    script.variables[name] = _checked(script, value)


def _read_command(script: Script, words: list[Word]) -> None:
    if words and _plain_text(words[0]) in _PRINTING:
        return
    assigning = True
    for word in words:
        kind, text = word[0]
        match = _ASSIGNED.match(text) if kind == "bare" and assigning else None
        if match:
            rest: Word = [("bare", text[match.end() :]), *word[1:]]
            _assign(script, match.group(), _expand(script, rest), "")
        elif text not in _PREFIXES and not text.startswith("-") and not text.endswith(")"):
            assigning = False
        if not match:
            script.words.extend(_expand_word(script, word))


def _expand_word(script: Script, word: Word) -> list[str]:
    """Fill in the variables of a word; unquoted ones, arrays and whole command lines become several words."""
    text = _expand(script, word)
    loose = any("$" in piece and (kind == "bare" or "[@]" in piece) for kind, piece in word if kind != "single")
    return split_words(text) if loose or ("--" in text and re.search(r"\s", text)) else [text]


def _expand(script: Script, word: Word) -> str:
    parts = []
    for kind, piece in word:
        text = piece[1:-1] if kind in ("single", "double") else piece
        parts.append(text if kind == "single" else _fill(script, text, quoted=kind == "double"))
    return _checked(script, "".join(parts))


def _checked(script: Script, value: str) -> str:
    """Count what has been expanded, so that variables that double each other cannot fill the memory."""
    script.expanded += len(value)
    if len(value) > MAX_VALUE or script.expanded > MAX_EXPANDED:
        raise SpecError("--from", script.path, f"variables that expand to at most {MAX_EXPANDED:,} characters in all")
    return value


def _fill(script: Script, text: str, quoted: bool) -> str:
    def replace(match: re.Match[str]) -> str:
        if match["escaped"] is not None:
            return _unescape(match["escaped"], quoted)
        if match["name"] is not None:
            return _checked(script, script.variables.get(match["name"], match.group()))
        if match["sum"] is not None:
            return _fill_sum(script, match["sum"])
        return _checked(script, _fill_parameter(script, match["braces"]))

    return _EXPANSION.sub(replace, text)


def _unescape(character: str, quoted: bool) -> str:
    if character == "\n":
        return " "
    return f"\\{character}" if quoted and character not in '"\\$`' else character


def _fill_sum(script: Script, text: str) -> str:
    """Work out ``$((A * B))``; what cannot be worked out stays as it is written."""
    inner = _fill(script, text[3:-2], quoted=False)
    inner = _NAME.sub(lambda match: script.variables.get(match.group(), match.group()), inner)
    value = evaluate_sum(inner)
    return text if value is None else str(value)


def _fill_parameter(script: Script, text: str) -> str:
    """Fill in ``${A}``, ``${A[@]}`` and ``${A:-default}``; what is unknown stays as it is written."""
    match = _PARAMETER.fullmatch(text[2:-1])
    if match is None:
        return text
    name, operator = match["name"], match["operator"] or ""
    value = script.variables.get(name)
    # A value that holds an unknown variable, such as $1, may well be empty when the script runs.
    known = value is not None and "$" not in value and (bool(value) or not operator.startswith(":"))
    if operator.endswith("+"):
        return _fill(script, match["default"], quoted=False) if known else ""
    if not operator:
        return text if value is None else value
    if known and value is not None:
        return value
    default = " ".join(split_words(_fill(script, match["default"], quoted=False)))
    if operator.endswith("="):
        script.variables[name] = default
    return default
