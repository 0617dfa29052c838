"""Build the parser of a command from its file: description, flags, and examples that the tests run."""

import argparse
import re
import sys
import textwrap
from importlib import import_module
from typing import Any, NoReturn

from charllm.errors import SpecError

EXAMPLE_WIDTH = 76
KINDS = {"int": "a whole number", "float": "a number", "Path": "a path"}


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors read like all others: what was got, what is expected.

    A command that declares a default for `behind` gets the words behind -- there: a command of its own to run.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Set the words behind -- apart before flags are read, which they may look like."""
        words = sys.argv[1:] if args is None else list(args)
        if self.get_default("behind") is None or "--" not in words:
            return super().parse_known_args(words, namespace)
        at = words.index("--")
        found, unknown = super().parse_known_args(words[:at], namespace)
        found.behind = words[at + 1 :]
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the words of a command."""
        for pattern, expected in MISTAKES:
            found = re.fullmatch(pattern, message, flags=re.DOTALL)
            if found:
                parts = found.groupdict()
                kind = KINDS.get(parts.get("kind", ""), "another value")
                raise SpecError(
                    f"{self.prog}: {parts['field']}", parts.get("got"), expected.format(**{**parts, "kind": kind})
                )
        raise SpecError(self.prog, message, str(self.usage))


ARGUMENT = r"argument (?P<field>\S+?)(/\S+)?: "
MISTAKES = (
    (ARGUMENT + r"invalid (?P<kind>\w+) value: '(?P<got>.*)'", "{kind}"),
    (ARGUMENT + r"invalid choice: '(?P<got>.*)' \(choose from (?P<options>.*)\)", "one of {options}"),
    (ARGUMENT + r"not allowed with argument (?P<got>\S+)", "{field} alone, not allowed with {got}"),
    (ARGUMENT + r"expected (one|at least one) argument", "a value"),
    (r"the following arguments are required: (?P<field>.*)", "a value"),
)
"""What argparse says: the values expected there."""


class HelpFormatter(argparse.HelpFormatter):
    """Wraps descriptions paragraph by paragraph, and leaves examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n")]
        return "\n\n".join(
            textwrap.fill(part, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
            for part in paragraphs
        )


def build_parser(name: str) -> CommandParser:
    """Return the parser of one command."""
    module = import_module(f"charllm.cli.{name}")
    parser = CommandParser(
        prog=f"charllm {name}",
        description=module.__doc__,
        epilog="\n".join(["examples:", *(line for example in module.EXAMPLES for line in _folded(example))]),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    words = [_positional(action) for action in parser._actions if not action.option_strings]
    words += [] if parser.get_default("behind") is None else ["[-- COMMAND]"]
    parser.usage = " ".join([f"charllm {name} [flags]", *words])
    # What a command is about comes first; its output and --help come last.
    parser._action_groups.append(parser._action_groups.pop(1))
    return parser


def all_actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """List the arguments of a command, those of the kinds that it has (`bench ops`) included, each flag once."""
    found: dict[tuple[str, ...], argparse.Action] = {}
    for action in parser._actions:
        found.setdefault((*action.option_strings, "" if action.option_strings else action.dest), action)
        if isinstance(action, argparse._SubParsersAction):
            for kind in action.choices.values():
                for own in all_actions(kind):
                    found.setdefault((*own.option_strings, "" if own.option_strings else own.dest), own)
    return list(found.values())


def _folded(example: str) -> list[str]:
    """Break a long example before a flag."""
    lines = [" "]
    for part in re.split(r" (?=--)", example):
        if len(lines[-1]) + 1 + len(part) > EXAMPLE_WIDTH:
            lines.append("     ")
        lines[-1] += f" {part}"
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _positional(action: argparse.Action) -> str:
    name = str(action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper()))
    if action.nargs == "?":
        return f"[{name}]"
    return f"{name} ..." if action.nargs in ("+", argparse.REMAINDER) else name
