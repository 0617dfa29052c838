"""Compare two runs: the settings that differ, and every metric with its ratio."""

import argparse
from pathlib import Path

from charllm.cli.output import add_format_flags, print_as
from charllm.report.compare import render_comparison
from charllm.result.compare import compare_runs, spec_differences
from charllm.stored import load_one_run

EXAMPLES = (
    "charllm simulate --model llama3-8b --cluster h200x8 --tp 2 --out runs/a",
    "charllm simulate runs/a --tp 4 --out runs/b",
    "charllm compare runs/a runs/b",
    "charllm compare runs/a runs/b --csv",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("first", type=Path, metavar="RUN", help="a run folder or its result.json")
    parser.add_argument("second", type=Path, metavar="RUN", help="the run to compare it with")
    add_format_flags(parser, table="a row for each metric")


def run(arguments: argparse.Namespace) -> int:
    """Compare and print."""
    first, second = load_one_run(arguments.first), load_one_run(arguments.second)
    differences, settings = compare_runs(first, second), spec_differences(first, second)
    metrics = [{**difference._asdict(), "ratio": difference.ratio} for difference in differences]
    table = {"settings": {name: list(pair) for name, pair in settings.items()}, "metrics": metrics}
    print_as(arguments, table, lambda: render_comparison(differences, settings), lambda: metrics)
    return 0
