"""Add the flags of a settings class to a parser, and read back those that were given."""

import argparse
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from charllm.spec.flags import Flag, flags_of

TYPES: dict[str, type] = {"int": int, "float": float, "path": Path}


def add_flags(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, settings: type, without: Container[str] = ()
) -> None:
    """Add the flags of a settings class, less the keywords listed; a flag that is not given is None."""
    for keyword, flag in flags_of(settings).items():
        if keyword not in without:
            help_text = flag.help.replace("%", "%%")
            parser.add_argument(*flag.spellings, dest=keyword, default=None, help=help_text, **_takes(flag))


def _takes(flag: Flag) -> dict[str, Any]:
    kind, options = flag.rule.kind, flag.rule.options
    if kind == "bool":
        return {"action": "store_false" if flag.default else "store_true"}
    if kind in ("lines", "table"):
        return {"action": "append", "metavar": flag.metavar}
    if kind == "text" and options:
        return {"choices": list(options), "metavar": flag.metavar or None}
    return {"type": TYPES.get(kind, str), "metavar": flag.metavar}


def given(arguments: argparse.Namespace, *settings: type) -> dict[str, Any]:
    """Return the keywords of settings classes whose flags were given."""
    words = [word for cls in settings for word in flags_of(cls)]
    return {word: value for word in words if (value := getattr(arguments, word, None)) is not None}


def spell(words: Mapping[str, Any], *settings: type) -> list[str]:
    """Return the words of a command line that give these keywords."""
    line: list[str] = []
    for flag in (flag for cls in settings for flag in flags_of(cls).values()):
        value, spelled = words.get(flag.keyword), flag.spellings[-1]
        if flag.rule.kind == "bool":
            line += [spelled] if value not in (None, flag.default) else []
        elif value is not None:
            values = value if isinstance(value, list | tuple) else [value]
            line += [word for one in values for word in (spelled, str(one))]
    return line
