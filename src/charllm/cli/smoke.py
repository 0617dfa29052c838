"""Run preflight, collectives, training, measurement, prediction and doctor once, on this machine or a cluster.

It takes about ten minutes; on several nodes, start it inside a Slurm allocation. Exit code 1 means that a part
failed.
"""

import argparse
import sys
from pathlib import Path

from charllm.cli.output import add_format_flags, print_as
from charllm.cli.spec_flags import add_spec_flags, given_keywords

EXAMPLES = (
    "charllm smoke --out runs/smoke",
    "charllm smoke --nodes 2 --cluster h100x16 --tp 2",
    "charllm smoke --device cpu --telemetry none --quick",
)
FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="nodes of the Slurm allocation (default 1)")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="device to train on")
    parser.add_argument(
        "--telemetry", default="auto", metavar="auto|nvml|amdsmi|replay:FOLDER|none", help="source of GPU readings"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few steps and short benchmarks: seconds instead of minutes"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for all results (default charllm-runs/smoke-TIME)"
    )
    add_format_flags(parser, table="a row for each part")


def run(arguments: argparse.Namespace) -> int:
    """Try everything, telling progress on stderr, and print the summary."""
    from charllm.api.smoke import smoke
    from charllm.report.smoke import render_smoke

    summary = smoke(
        arguments.spec,
        nodes=arguments.nodes,
        device=arguments.device,
        telemetry=arguments.telemetry,
        quick=arguments.quick,
        out=arguments.out,
        tell=lambda told: print(f"charllm: {told}", file=sys.stderr, flush=True),
        **given_keywords(arguments),
    )
    print_as(arguments, summary, lambda: render_smoke(summary), lambda: summary["steps"])
    return 0 if summary["passed"] else FAILED
