"""The command line: one file per command; results go to stdout, messages to stderr."""

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TextIO

from charllm import __version__
from charllm.errors import LONGEST_SHOWN, CharllmError, unknown_name

GROUPS = {
    "Predict, without a GPU": {
        "simulate": "memory, step time, power and temperature of one run",
        "generate": "predict prefill and decode of a static batch, by engine",
        "rl": "predict an RL step: rollouts, updates, transfer of weights",
        "sweep": "simulate or measure every case of a study",
        "reproduce": "repeat a paper: runs, figures, a verdict on each finding",
        "plan": "the best strategy under limits, why it is the best, and its flags",
        "caps": "step time, energy and cost against power or clock caps",
        "place": "optimise ranks on slots, layers per stage and power limits",
        "export": "write a run for Megatron-LM, NeMo, torchtitan or Slurm",
        "show": "print a stored run or study; complete an interrupted recording",
        "query": "SQL over stored runs and studies",
        "compare": "settings and metrics of two runs side by side",
        "report": "a run, a study, a plan or several runs as one HTML file",
        "messages": "collectives and sends of each rank; compare with traces",
        "doctor": "the GPU, link, node or host that slows a run, and what to do",
        "serve": "the explorer: predict, plan, browse and watch in a browser",
    },
    "Measure, on a GPU": {
        "preflight": "check GPUs, links, network and hosts before a run is measured",
        "smoke": "run every kind of measurement once, in ten minutes",
        "measure": "run a command; record power, clocks and temperature of its GPUs",
        "apply": "run a command under power or clock limits, put back at its end",
        "trace": "break down the step time of profiler traces by kernel",
        "replay": "step time of a profiler trace with one thing changed",
        "watch": "show a run while it is recorded; serve its metrics for Prometheus",
        "train": "train a model of the catalog on one GPU, or on many under torchrun",
        "emulate": "emulate one rank of a large job on one GPU",
        "convert": "turn logs of nvidia-smi, DCGM, Prometheus, trainers into runs",
        "bench": "time and power of single ops; latency and bandwidth of collectives",
    },
    "Look up and check": {
        "catalog": "models, GPUs, nodes, clusters, frameworks and studies with sources",
        "calibrate": "fit the constants of a GPU or network to your measurements",
        "validate": "score predictions against measurements",
        "completion": "print a completion script for bash, zsh or fish",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
"""Name: summary. The command itself is the module of the same name in this folder."""

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
    from charllm.cli.parser import all_actions, build_parser

    parser = build_parser(name)
    try:
        arguments, unknown = parser.parse_known_args(words[1:])
    except SystemExit as stop:
        return int(stop.code or 0)
    if unknown:
        flags = [flag for action in all_actions(parser) for flag in action.option_strings]
        raise unknown_name(f"charllm {name}", unknown[0], flags)
    code: int = import_module(f"charllm.cli.{name}").run(arguments)
    jit = sys.modules.get("charllm.jit")
    if jit is not None and jit.runs_uncompiled():
        print("charllm: slow without numba: pip install 'charllm[fast]'", file=sys.stderr)
    return code


def _overview() -> str:
    width = max(len(name) for name in COMMANDS)
    lines = ["charllm: step time, power and temperature of distributed LLM training", ""]
    lines += ["usage: charllm COMMAND [flags]   (charllm COMMAND --help: flags and examples)"]
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {name.ljust(width)}  {text}" for name, text in commands.items())]
    lines += ["", "Start with:", "  charllm simulate --model llama3-70b --cluster h200x32 --tp 4 --pp 4 --gbs 128"]
    return "\n".join(lines)
