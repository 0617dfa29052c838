"""Print a script that completes commands, flags, choices and names of the catalog in a shell.

The script contains all names: print it again after an update or a change of the catalog.
"""

import argparse
import shlex
from collections.abc import Iterable
from typing import NamedTuple

from charllm.catalog.tables import KINDS, entries
from charllm.cli import COMMANDS
from charllm.cli.parser import all_actions, build_parser

EXAMPLES = (
    "charllm completion bash >> ~/.bash_completion",
    "charllm completion zsh >> ~/.zshrc",
    "charllm completion fish > ~/.config/fish/completions/charllm.fish",
)
NAMED = {"model": "models", "cluster": "clusters", "framework": "frameworks", "gpu": "gpus", "study": "studies"}
"""What an argument is called: the kind of entries it may name."""


class Word(NamedTuple):
    """A flag or positional argument that can be completed."""

    flags: tuple[str, ...]
    """Empty for a positional one."""
    values: tuple[str, ...]
    """What may follow it; empty: a file, or anything."""
    takes_value: bool
    help: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("shell", choices=list(SCRIPTS), help="the shell to write for")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(SCRIPTS[arguments.shell]({name: read_words(name) for name in COMMANDS}))
    return 0


def read_words(command: str) -> list[Word]:
    """List what can be completed after a command."""
    found = []
    for action in all_actions(build_parser(command)):
        values = tuple(map(str, action.choices or ())) or _names(action)
        takes = action.nargs != 0
        found.append(Word(tuple(action.option_strings), values, takes, (action.help or "").partition(". ")[0]))
    if command == "catalog":
        found.append(Word((), tuple(sorted({name for kind in KINDS for name in entries(kind)})), True, "entry"))
    return found


def _names(action: argparse.Action) -> tuple[str, ...]:
    """Return the entries of the catalog that an argument may name, or the options that its metavar lists."""
    if action.dest in NAMED:
        return tuple(entries(NAMED[action.dest]))
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    options = tuple(word for word in metavar.split("|") if word.replace("-", "").isalnum() and word.islower())
    return options if len(options) > 1 else ()


def bash_script(words: dict[str, list[Word]]) -> str:
    """Write a function that looks at the command, the word before and the word so far."""
    return "\n".join(
        [
            "# Completion of charllm for bash; written by `charllm completion bash`.",
            "_charllm() {",
            '  local current="$2" before="$3" command="" word',
            '  for word in "${COMP_WORDS[@]}"; do',
            f'    case "$word" in {"|".join(words)}) command="$word"; break ;; esac',
            "  done",
            '  [ "$current" = "$command" ] && command=""',
            '  local choices=""',
            '  case "$command $before" in',
            *_bash_values(words),
            "    *)",
            '      case "$command" in',
            f'        "") choices={_quoted(words)} ;;',
            *(f"        {name}) choices={_quoted(_first_words(listed))} ;;" for name, listed in words.items()),
            "      esac ;;",
            "  esac",
            '  COMPREPLY=( $(compgen -W "$choices" -- "$current") )',
            "}",
            "complete -o default -F _charllm charllm",
        ]
    )


def _bash_values(words: dict[str, list[Word]]) -> Iterable[str]:
    """Write a case for each flag that takes a value: its values, or none, so that files are offered."""
    for name, listed in words.items():
        for word in listed:
            if word.flags and word.takes_value:
                patterns = "|".join(f'"{name} {flag}"' for flag in word.flags)
                yield f"    {patterns}) choices={_quoted(word.values)} ;;"


def _quoted(words: Iterable[str]) -> str:
    return shlex.quote(" ".join(words))


def _first_words(listed: list[Word]) -> list[str]:
    """Return what may stand where no flag waits for its value: flags, and values of positional arguments."""
    return [text for word in listed for text in (word.flags or word.values)]


def zsh_script(words: dict[str, list[Word]]) -> str:
    """Use zsh's own support for completion functions of bash."""
    return "\n".join(
        [
            "# Completion of charllm for zsh; written by `charllm completion zsh`. Part of ~/.zshrc.",
            "autoload -Uz compinit bashcompinit && compinit && bashcompinit",
            *bash_script(words).splitlines()[1:],
        ]
    )


def fish_script(words: dict[str, list[Word]]) -> str:
    """Write one line for each command, flag and positional argument."""
    lines = ["# Completion of charllm for fish; written by `charllm completion fish`."]
    for name, text in COMMANDS.items():
        lines.append(f"complete -c charllm -n __fish_use_subcommand -f -a {name} -d {shlex.quote(text)}")
    for name, listed in words.items():
        seen = f"complete -c charllm -n '__fish_seen_subcommand_from {name}'"
        for word in listed:
            values = f" -a {_quoted(word.values)}" if word.values else ""
            if word.flags:
                spelled = "".join(
                    f" -l {flag[2:]}" if flag.startswith("--") else f" -s {flag[1:]}" for flag in word.flags
                )
                needs = " -x" if word.values else " -r" if word.takes_value else ""
                lines.append(f"{seen}{spelled}{needs}{values} -d {shlex.quote(word.help)}")
            elif values:
                lines.append(f"{seen}{values}")
    return "\n".join(lines)


SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
"""Shell: how its script is written."""
