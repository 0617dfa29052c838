"""Simulate every case of a study: a name from `charllm catalog studies`, or a TOML file."""

import argparse
import json
import sys
from pathlib import Path

from charllm.cli.progress import track
from charllm.report.study import render_study
from charllm.sweep.local import run_study
from charllm.sweep.study import load_study

EXAMPLES = (
    "charllm catalog studies",
    "charllm sweep charllm-ppt-parallelism",
    "charllm sweep my_study.toml --workers 2 --out runs/my_study",
    "charllm sweep my_study.toml --out runs/my_study --resume",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("study", metavar="STUDY", help="name of a study in the catalog, or FILE.toml")
    parser.add_argument("--runner", choices=["local"], default="local", help="where the cases run")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes to use (default 1)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for every run and the outcome of each case")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted sweep in --out")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON, one case per line")


def run(arguments: argparse.Namespace) -> int:
    """Run the study and print the outcome of each case."""
    study = load_study(arguments.study)
    results = run_study(study, arguments.workers, arguments.out, resume=arguments.resume)
    outcomes = list(track(results, len(study.cases), study.name))
    if arguments.json:
        for outcome in outcomes:
            print(json.dumps(outcome._asdict(), allow_nan=False))
    else:
        print(render_study(study, outcomes))
    rejected = sum(outcome.exit_code != 0 for outcome in outcomes)
    print(f"charllm: {len(outcomes)} cases, {rejected} rejected", file=sys.stderr)
    return 0
