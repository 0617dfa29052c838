"""Compare two runs: the settings that differ, and every metric with its ratio."""

import argparse
from pathlib import Path

from charllm.api.stored import compare


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("first", type=Path, metavar="RUN", help="a run folder or its result.json")
    parser.add_argument("second", type=Path, metavar="RUN", help="the run to compare it with")
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Compare and print."""
    compared = compare(arguments.first, arguments.second)
    print(compared.to_json() if arguments.json else compared)
    return 0
