"""Predict a run without a GPU: what it needs, sends and computes."""

import argparse
import sys
from pathlib import Path
from textwrap import shorten

from charllm.catalog.resolve import resolve_run
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.errors import DoesNotFit
from charllm.report.run import render_run
from charllm.result.result import to_json
from charllm.result.store import save_run
from charllm.simulate import simulate
from charllm.spec.request import merge
from charllm.workload.step import build_step
from charllm.workload.table import tabulate_step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, metavar="N", help="steps from a cold start instead of the steady state")
    length.add_argument(
        "--seconds", type=float, metavar="S", help="seconds from a cold start instead of the steady state"
    )
    parser.add_argument("--ignore-memory", action="store_true", help="go on when the run does not fit")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--out", type=Path, metavar="DIR", help="store the run in a new folder")


def run(arguments: argparse.Namespace) -> int:
    """Simulate, print, store; exit 3 when the run does not fit."""
    request = request_from(arguments)
    length = {"steps": arguments.steps, "seconds_s": arguments.seconds}
    given = {name: value for name, value in length.items() if value is not None}
    spec = resolve_run(merge(request, {"conditions": given}) if given else request)
    result = simulate(spec, ignore_memory=arguments.ignore_memory)
    step = build_step(spec)
    if arguments.out:
        save_run(result, arguments.out, tabulate_step(step))
    print(to_json(result) if arguments.json else render_run(step, result))
    sys.stdout.flush()
    for warning in result.warnings:
        print(f"charllm: {shorten(warning, 400, placeholder=' ...')}", file=sys.stderr)
    if not result.metrics["fits"] and not arguments.ignore_memory:
        return DoesNotFit.exit_code
    return 0
