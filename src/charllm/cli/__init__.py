"""The command line: one file per command; results go to stdout, messages to stderr."""

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TextIO

from charllm import __version__
from charllm.errors import LONGEST_SHOWN, CharllmError, unknown_name

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

FAILED, INTERRUPTED, CLOSED_PIPE = 1, 128 + signal.SIGINT, 128 + signal.SIGPIPE
"""Exit codes beside those of errors.py: as a shell reports a program that a signal ended."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        _prepare_streams()
        code = _dispatch(words)
        sys.stdout.flush()
    except CharllmError as error:
        code = _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        code = _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        code = _fail("the output was closed before all of it was written", CLOSED_PIPE)
    except MemoryError:
        code = _fail("out of memory", FAILED)
    except OSError as error:
        where = f"{str(error.filename)[:LONGEST_SHOWN]!r}: " if error.filename else ""
        code = _fail(f"{where}{error.strerror or error}", FAILED)
    return code


def _prepare_streams() -> None:
    """Let no message fail for its characters, nor for a stream that was closed before the program began."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _fail(message: str, code: int) -> int:
    """Say why the program ends; what can no longer be written is dropped, so that nothing complains at exit."""
    for stream, text in ((sys.stdout, ""), (sys.stderr, f"charllm: {message}\n")):
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError):
            _drop(stream)
    return code


def _drop(stream: TextIO) -> None:
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        return


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
    # Only now: an interrupt before this line could not be answered in one line.
    import argparse

    module = import_module(f"charllm.cli.{name}")
    parser = argparse.ArgumentParser(prog=f"charllm {name}", description=module.__doc__, allow_abbrev=False)
    module.add_arguments(parser)
    try:
        arguments, unknown = parser.parse_known_args(words[1:])
    except SystemExit as stop:
        return int(stop.code or 0)
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
