"""Predict memory, step time, power and temperature of one run, and the best single changes to it; needs no GPU."""

import argparse
import sys
from pathlib import Path
from textwrap import shorten

from charllm.analysis.advice import best_changes
from charllm.api.simulation import length_request, run_simulation
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.errors import DoesNotFit
from charllm.report.run import render_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--steps", type=int, metavar="N", help="simulate N steps from a cold start instead of the steady state"
    )
    length.add_argument(
        "--seconds", type=float, metavar="S", help="simulate S seconds from a cold start instead of the steady state"
    )
    parser.add_argument("--ignore-memory", action="store_true", help="continue even if the run does not fit in memory")
    parser.add_argument(
        "--allow-long", action="store_true", help="simulate even if that is estimated to take minutes or hours"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--out", type=Path, metavar="DIR", help="store the run in this new folder")
    parser.add_argument("--perfetto", type=Path, metavar="FILE", help="write the step as a trace for ui.perfetto.dev")
    parser.add_argument("--timeline", type=Path, metavar="FILE", help="write one rank's step for `charllm emulate`")
    parser.add_argument("--rank", type=int, default=0, metavar="N", help="the rank that --timeline writes (default 0)")


def run(arguments: argparse.Namespace) -> int:
    """Simulate, print, store; exit 3 when the run does not fit."""
    request = length_request(request_from(arguments), arguments.steps, arguments.seconds)
    files = {name: getattr(arguments, name) for name in ("out", "perfetto", "timeline", "rank")}
    allowed = {name: getattr(arguments, name) for name in ("ignore_memory", "allow_long")}
    spec, found, messages = run_simulation(request, **allowed, **files)
    result = found.result
    if arguments.json:
        print(result.to_json())
    else:
        gains = best_changes(spec, found.timed.step_time_s) if found.timed is not None else []
        print(render_run(found.step, result, found.timed, gains))
    sys.stdout.flush()
    for warning in (*messages, *result.warnings):
        print(f"charllm: {shorten(warning, 400, placeholder=' ...')}", file=sys.stderr)
    if not result.metrics.fits and not arguments.ignore_memory:
        return DoesNotFit.exit_code
    return 0
