"""What to change in a command or file to get from one run to another, in charllm's words and in its program's."""

import tomllib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from charllm.catalog.command import strategy_flags, strategy_words
from charllm.errors import SpecError
from charllm.spec.programs import program_of
from charllm.spec.request import dotted_fields
from charllm.spec.run import RunSpec
from charllm.spec.writers.megatron import write_megatron
from charllm.spec.writers.nemo import write_nemo
from charllm.spec.writers.torchtitan import write_torchtitan

CHARLLM = "charllm"
ANY_STEPS = 1
"""Files state how many steps to train; the same on both sides."""


class FlagChange(NamedTuple):
    """One setting that differs."""

    program: str
    """charllm, megatron, nemo or torchtitan: whose word it is."""
    flag: str
    before: str | None
    """Its value; None where it is not there, an empty text where it stands alone."""
    after: str | None


def diff_flags(before: RunSpec, after: RunSpec) -> list[FlagChange]:
    """List the settings in which two runs differ: flags of charllm, then those of the program that runs the first.

    A program whose format cannot say one of the runs adds nothing (`program_settings` says why).
    """
    changes = _differences(CHARLLM, strategy_flags(before), strategy_flags(after))
    program = program_of(before)
    if program is None:
        return changes
    try:
        sides = program_settings(before, program), program_settings(after, program)
    except SpecError:
        return changes
    return changes + _differences(program, *sides)


def _differences(program: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[FlagChange]:
    names = dict.fromkeys((*before, *after))
    changes = (FlagChange(program, name, before.get(name), after.get(name)) for name in names)
    return [change for change in changes if change.before != change.after]


def flag_words(run: RunSpec) -> str:
    """Return the flags of a strategy as one would type them."""
    return " ".join(word.text for word in strategy_words(run))


def program_settings(run: RunSpec, program: str) -> dict[str, str]:
    """Return the settings of another program that describe a run; SpecError where its format cannot say it."""
    return SETTINGS[program](run)


def _megatron(run: RunSpec) -> dict[str, str]:
    settings: dict[str, str] = {}
    flag = ""
    for word in write_megatron(run):
        if word.startswith("--"):
            flag, settings[word] = word, ""
        else:
            settings[flag] = f"{settings[flag]} {word}".strip()
    return settings


def _nemo(run: RunSpec) -> dict[str, str]:
    import yaml

    return _written_fields(yaml.safe_load(write_nemo(run, ANY_STEPS)))


def _torchtitan(run: RunSpec) -> dict[str, str]:
    return _written_fields(tomllib.loads(write_torchtitan(run, ANY_STEPS)))


SETTINGS: dict[str, Callable[[RunSpec], dict[str, str]]] = {
    "megatron": _megatron, "nemo": _nemo, "torchtitan": _torchtitan,
}  # fmt: skip
"""Program: its settings for a run, by name."""


def _written_fields(table: Mapping[str, Any]) -> dict[str, str]:
    return {name: _written(value) for name, value in dotted_fields(table).items()}


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
