"""Predict memory, step time, power and temperature of one run, and the best single changes to it; needs no GPU.

A run is a SPEC file, flags, or both: flags win. Names come from `charllm catalog`; every field of a spec can also be
given as --set FIELD=VALUE. Exit codes: 0 done, 2 the request is wrong, 3 the run does not fit in memory.
"""

import argparse

from charllm.cli.flags import add_flags, given
from charllm.cli.output import add_format_flags, add_full_flag, cut, print_as, print_result
from charllm.cli.plots import add_plot_flags, draw_simulation, wants_plots
from charllm.cli.spec_flags import add_spec_flags, keywords_from, request_from
from charllm.errors import DoesNotFit
from charllm.simulate.settings import SimulateSettings
from charllm.spec.flags import read_keywords

EXAMPLES = (
    "charllm simulate --model llama3-70b --cluster h200x32 --tp 4 --pp 4 --gbs 128",
    "charllm simulate --model llama3-70b --cluster h200x32 --tp 4 --pp 4 --gbs 128 --uncertainty",
    "charllm simulate --model mixtral-8x7b --cluster h200x32 --ep 8 --power-cap 500 --inlet 32 --json",
    "charllm simulate --model llama3-8b --cluster h100x8 --tp 2 --plots",
    "charllm simulate --model llama3-8b --cluster h100x8 --fsdp --framework fsdp --csv",
    "charllm simulate --model llama3-8b --cluster h100x8 --tp 2 --explain",
    "charllm simulate --model llama3-8b --cluster h100x8 --tp 2 --set conditions.weak_gpus=[3] --report weak.html",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    add_flags(parser, SimulateSettings)
    add_format_flags(parser, table="a row for each GPU")
    add_full_flag(parser)
    parser.add_argument(
        "--explain",
        action="store_true",
        help="simulate nothing: list every setting and where it comes from (line of the file, flag, profile, default)",
    )
    add_plot_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Simulate, print, store; exit 3 when the run does not fit."""
    from charllm.api.simulation import run_simulation
    from charllm.report.run import render_answer, render_run
    from charllm.result.answers import ONLY_MEMORY

    if arguments.explain:
        return _explain(arguments)
    settings = read_keywords(SimulateSettings, given(arguments, SimulateSettings))
    _spec, found, messages = run_simulation(request_from(arguments), settings)
    result = found.result

    def render() -> str:
        if wants_plots(arguments):
            return f"{render_answer(result)}\n\n{draw_simulation(arguments, found)}"
        return render_run(result, full=arguments.full)

    known = [text for text in result.warnings if text != ONLY_MEMORY]
    print_result(arguments, result, render, cut(*messages, *known))
    return 0 if result.metrics.fits or settings.ignore_memory else DoesNotFit.exit_code


def _explain(arguments: argparse.Namespace) -> int:
    from charllm.api.explain import explain_settings
    from charllm.report.tables import render_table

    rows = explain_settings(arguments.spec, keywords_from(arguments))
    print_as(
        arguments,
        rows,
        lambda: render_table(
            "Where each setting comes from",
            ("setting", "value", "from"),
            [tuple(row.values()) for row in rows],
            drop=(),
        ),
        lambda: rows,
    )
    return 0
