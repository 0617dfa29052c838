"""The flags a Megatron-LM script passes, and the value of each in its type."""

import re
from collections.abc import Mapping
from itertools import takewhile

from charllm.errors import SpecError
from charllm.spec.readers.megatron.expression import evaluate_list
from charllm.spec.readers.megatron.shell import Script, split_words
from charllm.spec.readers.values import read_count

Flags = Mapping[str, list[str]]

MARKS = ("--num-layers", "--hidden-size", "--micro-batch-size", "--tensor-model-parallel-size")
MAX_NUMBER = 40

_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)(e[-+]?\d{1,2})?", re.ASCII | re.IGNORECASE)
_LIST = re.compile(r"[\d\s+*,\[\]()]+", re.ASCII)


def find_flags(script: Script) -> Flags:
    """Find the flags that a script passes, each with the words after it; the last one of a name wins."""
    flags = _collect(script.words)
    if not any(mark in flags for mark in MARKS):
        # Arguments that no command uses yet: a file made to be sourced.
        flags = _collect([word for value in script.variables.values() for word in split_words(value)])
    if not any(mark in flags for mark in MARKS):
        raise SpecError("--from", script.path, f"Megatron-LM arguments, such as {', '.join(MARKS)}")
    return flags


def _collect(words: list[str]) -> dict[str, list[str]]:
    flags: dict[str, list[str]] = {}
    values: list[str] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            values = [value] if equals else []
            flags[name.replace("_", "-")] = values
        else:
            values.append(word)
    # Launchers on top of Megatron-LM write switches with a value.
    return {name: values for name, values in flags.items() if [value.lower() for value in values[:1]] != ["false"]}


def text_of(flags: Flags, flag: str) -> str | None:
    """Return the word after a flag; None when the flag is absent."""
    if flag not in flags:
        return None
    if not flags[flag]:
        raise SpecError(flag, "nothing", "a value after it")
    return flags[flag][0]


def count_of(flags: Flags, flag: str, low: int = 0) -> int | None:
    """Return the whole number after a flag; None when the flag is absent."""
    value = text_of(flags, flag)
    if value is None:
        return None
    if not re.fullmatch(r"\d{1,10}", value, re.ASCII):
        unset = "; the script does not set that variable" if "$" in value else ""
        raise SpecError(flag, value, f"a whole number{unset}")
    return read_count(flag, int(value), low)


def count_or(flags: Flags, flag: str, otherwise: int) -> int:
    """Return the whole number after a flag, or what Megatron-LM takes without it."""
    found = count_of(flags, flag, low=min(otherwise, 1))
    return otherwise if found is None else found


def number_of(flags: Flags, flag: str) -> float | None:
    """Return the number after a flag; None when the flag is absent."""
    value = text_of(flags, flag)
    if value is None:
        return None
    if len(value) > MAX_NUMBER or not _NUMBER.fullmatch(value):
        raise SpecError(flag, value, "a number")
    return float(value)


def list_of(flags: Flags, flag: str) -> list[int] | None:
    """Read a list of layers, which blanks may have split into several words."""
    pieces = takewhile(_LIST.fullmatch, flags.get(flag, []))
    return evaluate_list("".join(pieces))
