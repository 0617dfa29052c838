"""Which branches of a shell script's conditions are read: those its own variables do not rule out."""

import re
from collections.abc import Callable
from dataclasses import dataclass

MAX_WAIT = 8
MAX_DEPTH = 64

_UNSET = re.compile(r"\$(?:\w+|\{[^{}]*\})", re.ASCII)
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
_BRACKETS = {"[": "]", "[[": "]]"}
_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "=": lambda left, right: left == right,
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
}
_NUMBER_TESTS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
}


@dataclass(slots=True)
class Branch:
    """An open ``if`` or ``case``: what it compares, whether a branch was taken, whether this one is read."""

    subject: str | None = None
    taken: bool = False
    read: bool = False
    answer: bool | None = None
    waiting: int = 0


def decide(words: list[str]) -> bool | None:
    """Answer a test such as ``[ "$TP" -gt 1 ]``; None when it needs more than the script's variables."""
    if words[:1] == ["!"]:
        answer = decide(words[1:])
        return None if answer is None else not answer
    if words and words[-1] == _BRACKETS.get(words[0]):
        return _compare(words[1:-1])
    return _compare(words[1:]) if words[:1] == ["test"] else None


def _compare(words: list[str]) -> bool | None:
    if words[:1] == ["!"]:
        answer = _compare(words[1:])
        return None if answer is None else not answer
    # A variable that the script does not set is empty in its tests.
    values = [_UNSET.sub("", word) for word in words]
    if any(mark in value for value in values for mark in "$`*?"):
        return None
    match values:
        case ["-n", value] | [value]:
            return bool(value)
        case ["-z", value]:
            return not value
        case [left, test, right] if test in _TEXT_TESTS:
            return _TEXT_TESTS[test](left, right)
        case [left, test, right] if test in _NUMBER_TESTS and _WHOLE.fullmatch(left) and _WHOLE.fullmatch(right):
            return _NUMBER_TESTS[test](int(left), int(right))
    return None


def follow(branches: list[Branch], words: list[str]) -> int | None:
    """Follow the flow through one statement: how many words at its front steer it; None to skip it all."""
    for leading, word in enumerate([*words, ""]):
        if word in ("if", "elif", "case"):
            _open(branches, words[leading:])
            return None
        if branches and (word in ("fi", "esac") or branches[-1].waiting > MAX_WAIT):
            branches.pop()
            return None
        if branches and branches[-1].waiting and word != "then":
            # More tests before then: whether they hold together is left open.
            branches[-1].answer = None
            branches[-1].waiting += 1
            return None
        if not _steers(branches, word, alone=len(words) == 1):
            return leading if all(branch.read for branch in branches) else None
    return None


def _open(branches: list[Branch], words: list[str]) -> None:
    if len(branches) < MAX_DEPTH and words[0] == "case":
        branches.append(Branch(subject=_UNSET.sub("", "".join(words[1:2]))))
        return
    if len(branches) < MAX_DEPTH and (words[0] == "if" or not branches):
        branches.append(Branch())
    branches[-1].answer, branches[-1].waiting = decide(words[1:]), 1


def _steers(branches: list[Branch], word: str, alone: bool) -> bool:
    """Let a word that chooses a branch do so, and say whether it was one."""
    top = branches[-1] if branches else None
    if word == "do":
        return True
    if top is None or not word:
        return False
    if top.subject is not None:
        return _match(top, word, alone)
    if word == "then":
        top.read, top.waiting = not top.taken and top.answer is not False, 0
        top.taken = top.taken or top.answer is True
    elif word == "else":
        top.read = not top.taken
    return word in ("then", "else")


def _match(top: Branch, word: str, alone: bool) -> bool:
    if alone and word == top.subject:
        # One of several patterns, such as 7b in 7b|8b).
        top.answer = True
    if not word.endswith(")"):
        return False
    pattern = word.strip("()")
    sure = top.answer is True or pattern == top.subject
    top.read = not top.taken and (sure or any(mark in pattern for mark in "*?["))
    top.taken = top.taken or sure or pattern == "*"
    top.answer = None
    return True
