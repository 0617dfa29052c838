"""Run preflight, collectives, training, measurement, prediction and doctor once, on this machine or a cluster.

It takes about ten minutes; on several nodes, start it inside a Slurm allocation. Exit code 1 means that a part
failed.
"""

import argparse
import sys

from charllm.cli.flags import add_flags, given
from charllm.cli.output import add_format_flags, print_as
from charllm.cli.spec_flags import add_spec_flags, given_keywords
from charllm.measure.command_settings import SmokeSettings

EXAMPLES = (
    "charllm smoke --out runs/smoke",
    "charllm smoke --nodes 2 --cluster h100x16 --tp 2",
    "charllm smoke --device cpu --telemetry none --quick",
)
FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser, own_nodes=True)
    add_flags(parser, SmokeSettings)
    add_format_flags(parser, table="a row for each part")


def run(arguments: argparse.Namespace) -> int:
    """Try everything, telling progress on stderr, and print the summary."""
    from charllm.api.smoke import smoke
    from charllm.report.smoke import render_smoke

    summary = smoke(
        arguments.spec,
        tell=lambda told: print(f"charllm: {told}", file=sys.stderr, flush=True),
        **given(arguments, SmokeSettings),
        **given_keywords(arguments),
    )
    print_as(arguments, summary, lambda: render_smoke(summary), lambda: summary["steps"])
    return 0 if summary["passed"] else FAILED
