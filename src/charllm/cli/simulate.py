"""Predict memory, step time, power and temperature of one run, and the best single changes to it; needs no GPU.

A run is a SPEC file, flags, or both: flags win. Names come from `charllm catalog`; every field of a spec can also be
given as --set FIELD=VALUE. Exit codes: 0 done, 2 the request is wrong, 3 the run does not fit in memory.
"""

import argparse
import sys
from pathlib import Path
from textwrap import shorten

from charllm.cli.output import add_format_flags, add_full_flag, show
from charllm.cli.plots import add_plot_flags, draw_simulation, wants_plots
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.errors import DoesNotFit
from charllm.report.tables import to_csv

EXAMPLES = (
    "charllm simulate --model llama3-70b --cluster h200x32 --tp 4 --pp 4 --gbs 128",
    "charllm simulate --model llama3-70b --cluster h200x32 --tp 4 --pp 4 --gbs 128 --uncertainty",
    "charllm simulate --model mixtral-8x7b --cluster h200x32 --ep 8 --power-cap 500 --inlet 32 --json",
    "charllm simulate --model llama3-8b --cluster h100x8 --tp 2 --plots",
    "charllm simulate --model llama3-8b --cluster h100x8 --fsdp --framework fsdp --csv",
    "charllm simulate --model llama3-8b --cluster h100x8 --tp 2 --set conditions.weak_gpus=[3] --report weak.html",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    group = parser.add_argument_group("length of the run (default: thermal steady state)")
    length = group.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, metavar="N", help="simulate N steps from a cold start")
    length.add_argument("--seconds", type=float, metavar="S", help="simulate S seconds from a cold start")
    parser.add_argument(
        "--uncertainty", action="store_true", help="add a 90 %% interval to each figure whose error is known"
    )
    parser.add_argument("--ignore-memory", action="store_true", help="continue even if the run does not fit in memory")
    parser.add_argument("--allow-long", action="store_true", help="simulate even if the estimate is minutes or hours")
    add_format_flags(parser, table="a row for each GPU")
    add_full_flag(parser)
    add_plot_flags(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="store the run in this new folder")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write everything as one HTML file")
    parser.add_argument("--perfetto", type=Path, metavar="FILE", help="write the step as a trace for ui.perfetto.dev")
    parser.add_argument("--timeline", type=Path, metavar="FILE", help="write one rank's step for `charllm emulate`")
    parser.add_argument(
        "--chakra", type=Path, metavar="DIR", help="write every rank's step as Chakra traces (rank-N.et, rank-N.json)"
    )
    parser.add_argument("--rank", type=int, default=0, metavar="N", help="the rank that --timeline writes (default 0)")


def run(arguments: argparse.Namespace) -> int:
    """Simulate, print, store; exit 3 when the run does not fit."""
    from charllm.api.simulation import length_request, run_simulation
    from charllm.report.run import render_answer, render_run
    from charllm.simulate.predict import NOT_KNOWN

    request = length_request(request_from(arguments), arguments.steps, arguments.seconds)
    files = {name: getattr(arguments, name) for name in ("out", "perfetto", "timeline", "rank", "report", "chakra")}
    allowed = {name: getattr(arguments, name) for name in ("uncertainty", "ignore_memory", "allow_long")}
    _spec, found, messages = run_simulation(request, **allowed, **files)
    result = found.result
    if arguments.json:
        print(result.to_json())
    elif arguments.csv:
        print(to_csv(result.gpus))
    else:
        if wants_plots(arguments):
            show(f"{render_answer(result)}\n\n{draw_simulation(arguments, found)}")
        else:
            show(render_run(result, full=arguments.full))
    sys.stdout.flush()
    # That a run which does not fit has no step time goes without saying.
    known = [text for text in result.warnings if result.metrics["fits"] or not text.startswith(NOT_KNOWN)]
    for warning in (*messages, *known):
        print(f"charllm: {shorten(warning, 400, placeholder=' ...')}", file=sys.stderr)
    if not result.metrics.fits and not arguments.ignore_memory:
        return DoesNotFit.exit_code
    return 0
