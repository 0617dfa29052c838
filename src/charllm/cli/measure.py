"""Run a command and record power, clocks and temperature of every GPU it may use.

The command's output, signals and exit code pass through.
"""

import argparse
import sys
from pathlib import Path

from charllm.api.measurement import build_job, run_folder, run_job
from charllm.api.programs import build_program
from charllm.cli.program_flags import add_program_flags, program_keywords
from charllm.measure.adapters.programs import as_ranks_here
from charllm.measure.finish import stopped_early
from charllm.measure.launch import AFTER_S
from charllm.result.result import RunResult

EXAMPLES = (
    "charllm measure --out runs/mine -- torchrun train.py",
    "charllm measure --repeats 3 --watch -- python train.py --steps 100",
    "charllm measure --telemetry none --idle 0 -- sleep 1",
    "charllm measure --adapter megatron --script Megatron-LM/pretrain_gpt.py --model llama3-8b --cluster h100x8 --tp 2",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the recording (default charllm-runs/TIME)")
    parser.add_argument("--rate", type=float, default=100.0, metavar="HZ", help="readings per second (default 100)")
    sources = "auto|nvml|replay:FOLDER|none"
    parser.add_argument("--telemetry", default="auto", metavar=sources, help="source of the readings")
    parser.add_argument(
        "--idle", type=float, default=2.0, metavar="S", help="idle seconds recorded before the command (default 2)"
    )
    parser.add_argument(
        "--cooldown",
        type=float,
        default=AFTER_S,
        metavar="S",
        help=f"seconds recorded after the command (default {AFTER_S:g})",
    )
    parser.add_argument(
        "--repeats", type=int, default=1, metavar="N", help="number of times to run the command (default 1)"
    )
    parser.add_argument("--watch", action="store_true", help="show power, clock and temperature while it runs")
    add_program_flags(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command to run")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print what was found to stderr, and return the command's own exit code."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    out = run_folder(arguments.out)
    program = build_program(command, out, **program_keywords(arguments))
    settings = {
        name: getattr(arguments, name) for name in ("rate", "telemetry", "idle", "cooldown", "repeats", "watch")
    }
    words = as_ranks_here(program) if getattr(arguments, "launcher", "local") == "local" else program.command
    job = build_job(words, out, **settings, program=program)
    result, code = run_job(job)
    for warning in stopped_early(result.warnings):
        print(f"charllm: {warning}", file=sys.stderr)
    print(_headline(result, job.folder), file=sys.stderr)
    return code


def _headline(result: RunResult, folder: Path) -> str:
    metrics = result.metrics
    parts = [
        f"{metrics[name]:.4g} {unit}"
        for name, unit in (
            ("step_time_s", "s per step"),
            ("power_mean_w", "W"),
            ("temperature_peak_c", "C peak"),
            ("tokens_per_j", "tokens per joule"),
        )
        if metrics[name] is not None
    ]
    return f"charllm: {', '.join(parts) or 'nothing was read'}; recorded in {folder}"
