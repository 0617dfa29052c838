"""Predict memory, step time, power and temperature of one run, and the best single changes to it; needs no GPU.

A run is a SPEC file, flags, or both: flags win. Names come from `charllm catalog`; every field of a spec can also be
given as --set FIELD=VALUE. Exit codes: 0 done, 2 the request is wrong, 3 the run does not fit in memory.
"""

import argparse
import math
import sys
from pathlib import Path
from textwrap import shorten
from typing import Any

from charllm.analysis.advice import best_changes
from charllm.analysis.explain import explain_run
from charllm.catalog.resolve import resolve_run
from charllm.cli.output import add_format_flags, show
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.errors import DoesNotFit, SpecError
from charllm.report.perfetto import Signals, trace_step
from charllm.report.run import render_run
from charllm.report.tables import to_csv
from charllm.result.result import to_json
from charllm.result.store import save_run, write_text
from charllm.simulate.predict import NOT_KNOWN, Simulation, predict
from charllm.simulate.rank_timeline import rank_timeline
from charllm.simulate.signals import stage_series, tabulate_cluster, tabulate_signals
from charllm.simulate.work import LONGEST_S
from charllm.spec.request import merge
from charllm.timeline.play import to_text
from charllm.workload.table import tabulate_step

EXAMPLES = (
    "charllm simulate --model llama3-70b --cluster h200x32 --tp 4 --pp 4 --gbs 128",
    "charllm simulate --model mixtral-8x7b --cluster h200x32 --ep 8 --power-cap 500 --inlet 32 --json",
    "charllm simulate --model llama3-8b --cluster h100x8 --fsdp --framework fsdp --csv",
    "charllm simulate --model llama3-8b --cluster h100x8 --tp 2 --set conditions.weak_gpus=[3] --seconds 60",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    group = parser.add_argument_group("length of the run (default: thermal steady state)")
    length = group.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, metavar="N", help="N steps from a cold start")
    length.add_argument("--seconds", type=float, metavar="S", help="S seconds from a cold start")
    parser.add_argument("--ignore-memory", action="store_true", help="continue even if the run does not fit in memory")
    parser.add_argument(
        "--allow-long", action="store_true", help="simulate even if that is estimated to take minutes or hours"
    )
    add_format_flags(parser, table="a row for each GPU")
    parser.add_argument("--out", type=Path, metavar="DIR", help="store the run in this new folder")
    parser.add_argument("--perfetto", type=Path, metavar="FILE", help="write the step as a trace for ui.perfetto.dev")
    parser.add_argument("--timeline", type=Path, metavar="FILE", help="write one rank's step for `charllm emulate`")
    parser.add_argument("--rank", type=int, default=0, metavar="N", help="the rank that --timeline writes (default 0)")


def run(arguments: argparse.Namespace) -> int:
    """Simulate, print, store; exit 3 when the run does not fit."""
    request = request_from(arguments)
    length = {"steps": arguments.steps, "seconds_s": arguments.seconds}
    given = {name: value for name, value in length.items() if value is not None}
    spec = resolve_run(merge(request, {"conditions": given}) if given else request)
    longest_s = math.inf if arguments.allow_long else LONGEST_S
    whole = arguments.timeline is not None
    found = predict(spec, ignore_memory=arguments.ignore_memory, longest_s=longest_s, whole=whole)
    result = found.result
    talk = _write_files(arguments, found)
    if arguments.out:
        save_run(result, arguments.out, {**tabulate_step(found.step), **_signals(found)})
    if arguments.json:
        print(to_json(result))
    elif arguments.csv:
        print(to_csv(result.gpus))
    else:
        gains = best_changes(spec, found.timed.step_time_s) if found.timed is not None else []
        show(render_run(found.step, result, found.timed, gains, explain_run(found)))
    sys.stdout.flush()
    # That a run which does not fit has no step time goes without saying.
    known = [text for text in result.warnings if result.metrics["fits"] or not text.startswith(NOT_KNOWN)]
    for warning in (*talk, *known):
        print(f"charllm: {shorten(warning, 400, placeholder=' ...')}", file=sys.stderr)
    if not result.metrics["fits"] and not arguments.ignore_memory:
        return DoesNotFit.exit_code
    return 0


def _signals(found: Simulation) -> dict[str, dict[str, list[Any]]]:
    """Return the time series of a run, where it has any."""
    if found.machine is None or found.played is None:
        return {}
    return {"signals": tabulate_signals(found.machine, found.played), "cluster": tabulate_cluster(found.played)}


def _write_files(arguments: argparse.Namespace, found: Simulation) -> list[str]:
    """Write the files that were asked for; returns what to say about them."""
    asked = {
        flag: path for flag, path in (("--perfetto", arguments.perfetto), ("--timeline", arguments.timeline)) if path
    }
    simulated = found.simulated
    if simulated is None:
        return [
            f"{flag}: not written: a run that does not fit in memory has no step time (see --ignore-memory)"
            for flag in asked
        ]
    talk = []
    for flag, path in asked.items():
        if flag == "--perfetto":
            signals = Signals(stage_series(simulated.machine, simulated.played), simulated.played.box_s)
            trace = trace_step(simulated.step, simulated.timed, signals=signals)
            text = trace.to_text()
            talk += [f"{flag}: {trace.left_out}"] if trace.left_out else []
        else:
            text = to_text(rank_timeline(found, arguments.rank))
        _write(flag, path, text)
    return talk


def _write(flag: str, path: Path, text: str) -> None:
    try:
        write_text(text, path)
    except OSError as error:
        raise SpecError(flag, str(path), f"a file that can be written ({error.strerror or error})") from None
