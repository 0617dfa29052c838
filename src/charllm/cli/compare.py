"""Compare two runs: the settings that differ, and every metric with its ratio.

Differences of two simulated runs have their 90 % intervals, from measured pairs of runs that differ in the same kind of
setting; one that lies within its error is no measurable difference.

With --ops the kernels of a traced step are compared with those of another trace, or with those that `charllm
simulate` predicts. The second RUN is then a trace, a spec or a simulated run (default: the spec that `charllm train`
stores with a measured run).
"""

import argparse
from pathlib import Path

from charllm.cli.output import add_format_flags, print_as, show
from charllm.cli.plots import add_plot_flags, draw_comparison, wants_plots
from charllm.errors import SpecError
from charllm.report.tables import to_csv

EXAMPLES = (
    "charllm simulate --model llama3-8b --cluster h200x8 --tp 2 --out runs/a",
    "charllm simulate runs/a --tp 4 --out runs/b",
    "charllm compare runs/a runs/b",
    "charllm compare runs/a runs/b --plots",
    "charllm compare runs/a runs/b --csv",
    "charllm compare --ops runs/profiled --table traced_ops.csv",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("first", type=Path, metavar="RUN", help="a run folder or its result.json")
    parser.add_argument("second", type=Path, nargs="?", metavar="RUN", help="the run to compare it with")
    parser.add_argument(
        "--ops", action="store_true", help="compare kernel by kernel; RUN is a trace or a run with traces"
    )
    parser.add_argument("--rank", type=int, metavar="N", help="with --ops: the rank to compare (default the lowest)")
    parser.add_argument(
        "--table",
        type=Path,
        metavar="FILE.csv",
        help="with --ops: write traced ops with their shapes, for charllm calibrate",
    )
    add_format_flags(parser, table="a row for each metric")
    add_plot_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare and print."""
    if arguments.ops:
        from charllm.api.ops_comparison import compare_ops

        found = compare_ops(arguments.first, arguments.second, rank=arguments.rank, table=arguments.table)
        print_as(arguments, found.as_table(), lambda: str(found), found.kernels)
        return 0
    if arguments.second is None:
        raise SpecError("RUN", str(arguments.first), "two runs, or --ops with a trace")
    from charllm.api.stored import compare

    compared = compare(arguments.first, arguments.second)
    if arguments.json:
        print(compared.to_json())
    elif arguments.csv:
        print(to_csv([each.as_row() for each in compared.metrics]))
    else:
        if wants_plots(arguments):
            show(draw_comparison(arguments, [arguments.first, arguments.second]))
        else:
            show(str(compared))
    return 0
