"""Commands that a shell carries out itself."""

import re
from collections.abc import Callable

from charllm.spec.readers.shell import conditions
from charllm.spec.readers.shell.script import Script
from charllm.spec.readers.shell.values import assign_arithmetic


class Exit(Exception):
    """The script ends."""


class Return(Exception):
    """A function ends."""


class Break(Exception):
    """A loop ends."""


class Continue(Exception):
    """A turn of a loop ends."""


def _shift(script: Script, words: list[str], _line: int) -> bool:
    count = int(words[0]) if words and words[0].isdigit() and len(words[0]) < 4 else 1
    enough = count <= len(script.arguments)
    script.arguments = script.arguments[count:] if enough else script.arguments
    return enough


def _set(script: Script, words: list[str], _line: int) -> bool:
    if "--" in words:
        script.arguments = words[words.index("--") + 1 :]
        script.arguments_known = True
    return True


def _unset(script: Script, words: list[str], _line: int) -> bool:
    for name in words:
        script.variables.pop(name, None)
    return True


def _read(script: Script, words: list[str], _line: int) -> bool | None:
    for name in words:
        if name.isidentifier():
            script.variables[name] = script.unknown(f"${name}", "command")
    return None


def _let(script: Script, words: list[str], _line: int) -> bool:
    for word in words:
        assign_arithmetic(script, word)
    return True


def _exit(script: Script, _words: list[str], line: int) -> bool:
    script.exited = line
    raise Exit


def _return(_script: Script, _words: list[str], _line: int) -> bool:
    raise Return


def _break(_script: Script, _words: list[str], _line: int) -> bool:
    raise Break


def _continue(_script: Script, _words: list[str], _line: int) -> bool:
    raise Continue


def _pass(_script: Script, _words: list[str], _line: int) -> bool:
    return True


def _fail(_script: Script, _words: list[str], _line: int) -> bool:
    return False


def _test(script: Script, words: list[str], line: int) -> bool | None:
    return conditions.answer_words(script, [word for word in words if word != "]"], line)


def print_words(script: Script, words: list[str]) -> bool:
    """Keep what ``printf -v NAME`` assigns; other text goes to the screen."""
    if words[:2] == ["printf", "-v"] and len(words) > 3 and words[2].isidentifier():
        filled = words[3]
        for value in words[4:]:
            filled = re.sub(r"%[sd]", value.replace("\\", r"\\"), filled, count=1)
        script.variables[words[2]] = script.checked(filled)
    return True


BUILTINS: dict[str, Callable[[Script, list[str], int], bool | None]] = {
    "shift": _shift,
    "set": _set,
    "unset": _unset,
    "read": _read,
    "let": _let,
    "exit": _exit,
    "return": _return,
    "break": _break,
    "continue": _continue,
    "test": _test,
    "[": _test,
    "true": _pass,
    ":": _pass,
    "false": _fail,
    "cd": _pass,
    "mkdir": _pass,
}
