"""Tests of a shell script, answered from its variables alone."""

import re
from collections.abc import Callable

from charllm.spec.readers.shell.arithmetic import evaluate
from charllm.spec.readers.shell.script import OPEN, Script, is_known
from charllm.spec.readers.shell.syntax import Node, line_of, text_of
from charllm.spec.readers.shell.values import bare, matches, special_value
from charllm.spec.readers.shell.words import fields, text

_NUMBER = re.compile(r"\s*-?\d{1,18}\s*", re.ASCII)
_MARK = re.compile(f"{OPEN}\\d+\ue001")
_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
}
_TEXTS = ("=", "==", "!=", "=~", "<", ">")
JOINS = {"&&": "and", "-a": "and", "||": "or", "-o": "or"}


def answer(script: Script, node: Node) -> bool | None:
    """Answer a test in brackets; None when only running the script would tell."""
    source = text_of(node).strip()
    if source.startswith("(("):
        return _arithmetic_holds(script, source[2:-2])
    tokens = _tokens(node)
    found, rest = _either(script, tokens, 0)
    return found if rest == len(tokens) else None


Token = str | Node
"""An operator as text, or the node of an operand."""


def _tokens(node: Node) -> list[Token]:
    """List operators and operands in the order of the script: the grammar's own nesting of tests is not relied on."""
    tokens: list[Token] = []
    for child in node.children:
        if child.type in ("binary_expression", "unary_expression", "parenthesized_expression"):
            tokens += _tokens(child)
        elif child.type == "test_operator" or not child.is_named:
            tokens += [] if child.type in ("[", "]", "[[", "]]") else [text_of(child).strip()]
        else:
            tokens.append(child)
    return tokens


def _either(script: Script, tokens: list[Token], place: int) -> tuple[bool | None, int]:
    found, place = _both(script, tokens, place)
    while place < len(tokens) and tokens[place] in ("||", "-o"):
        right, place = _both(script, tokens, place + 1)
        found = join("or", found, right)
    return found, place


def _both(script: Script, tokens: list[Token], place: int) -> tuple[bool | None, int]:
    found, place = _single(script, tokens, place)
    while place < len(tokens) and tokens[place] in ("&&", "-a"):
        right, place = _single(script, tokens, place + 1)
        found = join("and", found, right)
    return found, place


def _single(script: Script, tokens: list[Token], place: int) -> tuple[bool | None, int]:
    """Answer one comparison, one test such as ``-z``, or what stands in parentheses."""
    token = tokens[place] if place < len(tokens) else ""
    if token == "!":
        found, place = _single(script, tokens, place + 1)
        return (None if found is None else not found), place
    if token == "(":
        found, place = _either(script, tokens, place + 1)
        return found, place + (tokens[place : place + 1] == [")"])
    if isinstance(token, str):
        operand = tokens[place + 1] if place + 1 < len(tokens) else ""
        if not token.startswith("-") or isinstance(operand, str):
            return None, min(place + 1, len(tokens))
        return _tested(script, token, text(script, operand)), place + 2
    operator = tokens[place + 1] if place + 1 < len(tokens) else ""
    right = tokens[place + 2] if place + 2 < len(tokens) else ""
    if isinstance(operator, str) and (operator in _NUMBERS or operator in _TEXTS) and not isinstance(right, str):
        line = line_of(token)
        return compare(script, text(script, token), operator, text(script, right), line), place + 3
    return _is_set(script, text(script, token)), place + 1


def answer_words(script: Script, words: list[str], line: int) -> bool | None:
    """Answer ``test`` or ``[`` given as words."""
    if words[:1] == ["!"]:
        found = answer_words(script, words[1:], line)
        return None if found is None else not found
    for index, word in enumerate(words):
        if word in ("-a", "-o") and 0 < index < len(words) - 1:
            before, after = words[:index], words[index + 1 :]
            return join(JOINS[word], answer_words(script, before, line), answer_words(script, after, line))
    match words:
        case []:
            return False
        case [operator, value] if operator.startswith("-"):
            return _tested(script, operator, value)
        case [value]:
            return _is_set(script, value)
        case [left, operator, right]:
            return compare(script, left, operator, right, line)
    return None


def join(kind: str, left: bool | None, right: bool | None) -> bool | None:
    """Combine two answers, either of which may be unknown."""
    if kind == "and":
        return False if left is False or right is False else None if left is None or right is None else True
    return True if left is True or right is True else None if left is None or right is None else False


def _tested(script: Script, operator: str, value: str) -> bool | None:
    if operator in ("-z", "-n"):
        found = _is_set(script, value)
        return None if found is None else found == (operator == "-n")
    if operator == "-v":
        return value in script.variables
    return None


def _is_set(script: Script, value: str) -> bool | None:
    """Say whether a value has any text; a variable that nobody sets is empty, output of a command is not."""
    if is_known(value):
        return bool(value)
    script.guesses += 1
    return bool(_MARK.sub("", value) or any(entry.kind == "command" for entry in script.unknowns_in(value)))


def compare(script: Script, left: str, operator: str, right: str, line: int) -> bool | None:
    """Compare two values; an unset variable is empty, which is noted where it decides."""
    for value in (left, right):
        for entry in script.unknowns_in(value):
            script.guesses += 1
            if entry.kind == "argument":
                script.asked_arguments.setdefault(entry.root, line)
            elif entry.kind == "unset":
                script.assumed_empty.setdefault(entry.root, line)
            else:
                return None
    left, right = _MARK.sub("", left), _MARK.sub("", right)
    if operator in _NUMBERS:
        if not (_NUMBER.fullmatch(left) and _NUMBER.fullmatch(right)):
            return False
        return _NUMBERS[operator](int(left), int(right))
    if operator in ("=", "=="):
        return left == right or matches(left, right)
    if operator == "!=":
        return not (left == right or matches(left, right))
    if operator in ("<", ">"):
        return left < right if operator == "<" else left > right
    return _searches(left, right) if operator == "=~" else None


def _searches(value: str, pattern: str) -> bool | None:
    """Search a simple regular expression; one that could take long is left undecided."""
    if len(value) > 1000 or len(pattern) > 200 or len(re.findall(r"[*+{]", pattern)) > 3:
        return None
    try:
        return re.search(pattern, value) is not None
    except (re.error, RecursionError, OverflowError):
        return None


def _arithmetic_holds(script: Script, expression: str) -> bool | None:
    value = evaluate(bare(expression), lambda name: special_value(script, name))
    return None if value is None else value != 0


def words_of(script: Script, node: Node) -> list[str]:
    """Return the words of a command that is used as a test."""
    return fields(script, [child for child in node.children if child.is_named])
