"""Compare two runs: the settings that differ, and every metric with its ratio."""

import argparse
from pathlib import Path

from charllm.api.stored import compare
from charllm.cli.output import add_format_flags, show
from charllm.report.tables import to_csv

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
    compared = compare(arguments.first, arguments.second)
    if arguments.json:
        print(compared.to_json())
    elif arguments.csv:
        print(to_csv([{**each._asdict(), "ratio": each.ratio} for each in compared.metrics]))
    else:
        show(str(compared))
    return 0
