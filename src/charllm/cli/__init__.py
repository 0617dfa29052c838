"""The command line: one file per command; results go to stdout, messages to stderr."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from charllm import __version__
from charllm.errors import CharllmError, unknown_name

COMMANDS = {
    "simulate": "predict memory, step time, power and temperature of one run",
    "measure": "run a command and record power, clocks and temperature of its GPUs",
    "sweep": "simulate every case of a study",
    "train": "train a model from the catalog on one GPU",
    "emulate": "emulate one rank of a large job on one GPU",
    "bench": "measure time, power, clock and temperature of single ops on this GPU",
    "calibrate": "fit the constants of a GPU to measurements of it",
    "show": "print a stored run or study; finish a record that was killed",
    "compare": "compare two runs",
    "catalog": "show models, GPUs, nodes, clusters, frameworks and studies, with sources",
    "validate": "score predictions against measurements",
}
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
    module = import_module(f"charllm.cli.{name}")
    parser = argparse.ArgumentParser(prog=f"charllm {name}", description=module.__doc__, allow_abbrev=False)
    module.add_arguments(parser)
    arguments, unknown = parser.parse_known_args(words[1:])
    if unknown:
        flags = [flag for action in parser._actions for flag in action.option_strings]
        raise unknown_name(f"charllm {name}", unknown[0], flags)
    code: int = module.run(arguments)
    return code


def _overview() -> str:
    width = max(len(name) for name in COMMANDS)
    lines = [f"  {name.ljust(width)}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "charllm: step time, power and temperature of distributed LLM training",
            "",
            "usage: charllm COMMAND ... (see charllm COMMAND --help)",
            "",
            *lines,
            "",
            "try: charllm simulate --model gpt3-175b --cluster h200x32 --tp 8 --pp 4 --gbs 128",
        ]
    )
