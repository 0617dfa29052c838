"""Run a command and record power, clocks and temperature of every GPU it may use.

The command's output, signals and exit code pass through.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from charllm.errors import SpecError
from charllm.measure.finish import stopped_early
from charllm.measure.job import Job, measure_job
from charllm.measure.launch import AFTER_S
from charllm.result.result import RunResult

EXAMPLES = (
    "charllm measure --out runs/mine -- torchrun train.py",
    "charllm measure --repeats 3 --watch -- python train.py --steps 100",
    "charllm measure --telemetry none --idle 0 -- sleep 1",
)
LONGEST_WAIT_S = 86_400.0


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
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command to run")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print what was found to stderr, and return the command's own exit code."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise SpecError("COMMAND", "nothing", "charllm measure [flags] -- COMMAND ...")
    for flag, seconds_s in (("--idle", arguments.idle), ("--cooldown", arguments.cooldown)):
        if not 0 <= seconds_s <= LONGEST_WAIT_S:
            raise SpecError(flag, seconds_s, f"0 to {LONGEST_WAIT_S:g} seconds")
    if not 0.1 <= arguments.rate <= 1000:
        raise SpecError("--rate", arguments.rate, "0.1 to 1000 readings per second")
    if not 1 <= arguments.repeats <= 1000:
        raise SpecError("--repeats", arguments.repeats, "1 to 1000")
    folder = arguments.out or Path("charllm-runs") / time.strftime("%Y%m%d-%H%M%S")
    job = Job(
        command=tuple(command),
        folder=folder,
        rate_hz=arguments.rate,
        telemetry=arguments.telemetry,
        idle_s=arguments.idle,
        cooldown_s=arguments.cooldown,
        repeats=arguments.repeats,
        watch=arguments.watch,
    )
    result, code = measure_job(job, os.environ)
    for warning in stopped_early(result.warnings):
        print(f"charllm: {warning}", file=sys.stderr)
    print(_headline(result, folder), file=sys.stderr)
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
