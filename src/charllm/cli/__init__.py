"""The command line: one file per command; results go to stdout, messages to stderr."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from charllm import __version__
from charllm.errors import CharllmError, unknown_name

GROUPS = {
    "Predict, without a GPU": {
        "simulate": "memory, step time, power and temperature of one run",
        "sweep": "the same for every case of a study",
        "compare": "settings and metrics of two runs side by side",
    },
    "Measure, on a GPU": {
        "measure": "run a command; record power, clocks and temperature of its GPUs",
        "train": "train a model of the catalog on one GPU",
        "emulate": "emulate one rank of a large job on one GPU",
        "bench": "time, power, clock and temperature of single ops",
    },
    "Look up and check": {
        "catalog": "models, GPUs, nodes, clusters, frameworks and studies with sources",
        "calibrate": "fit the constants of a GPU to measurements of it",
        "validate": "score predictions against measurements",
        "completion": "print a completion script for bash, zsh or fish",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
"""Name: what it does. The command itself is the module of the same name in this folder."""

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(words)
    except CharllmError as error:
        print(f"charllm: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("charllm: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): point stdout elsewhere so that closing it stays quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if words[0] in ("-V", "--version", "version"):
        print(__version__)
        return 0
    name = words[0]
    if name not in COMMANDS:
        raise unknown_name("command", name, COMMANDS)
    from charllm.cli.parser import build_parser

    parser = build_parser(name)
    arguments, unknown = parser.parse_known_args(words[1:])
    if unknown:
        flags = [flag for action in parser._actions for flag in action.option_strings]
        raise unknown_name(f"charllm {name}", unknown[0], flags)
    code: int = import_module(f"charllm.cli.{name}").run(arguments)
    return code


def _overview() -> str:
    width = max(len(name) for name in COMMANDS)
    lines = ["charllm: step time, power and temperature of distributed LLM training", ""]
    lines += ["usage: charllm COMMAND [flags]   (charllm COMMAND --help: flags and examples)"]
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {name.ljust(width)}  {text}" for name, text in commands.items())]
    lines += ["", "Start with:", "  charllm simulate --model llama3-70b --cluster h200x32 --tp 4 --pp 4 --gbs 128"]
    return "\n".join(lines)
