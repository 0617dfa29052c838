"""Compare two runs: the settings that differ, and every metric with its ratio."""

import argparse
import json
from pathlib import Path

from charllm.report.compare import render_comparison
from charllm.result.compare import compare_runs, spec_differences
from charllm.stored import load_one_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("first", type=Path, metavar="RUN", help="a run folder or its result.json")
    parser.add_argument("second", type=Path, metavar="RUN", help="the run to compare it with")
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Compare and print."""
    first, second = load_one_run(arguments.first), load_one_run(arguments.second)
    differences, settings = compare_runs(first, second), spec_differences(first, second)
    if arguments.json:
        metrics = [{**difference._asdict(), "ratio": difference.ratio} for difference in differences]
        table = {"settings": {name: list(pair) for name, pair in settings.items()}, "metrics": metrics}
        print(json.dumps(table, indent=2, allow_nan=False))
    else:
        print(render_comparison(differences, settings))
    return 0
