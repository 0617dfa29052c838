"""Check GPUs, links, network and hosts before a measurement, on this machine or the nodes of a Slurm allocation.

With a run (--model, --cluster ...) the GPUs and nodes are compared with it. Exit code 1 means that a check failed.
"""

import argparse

from charllm.cli.flags import add_flags, given
from charllm.cli.output import add_format_flags, print_as
from charllm.cli.spec_flags import add_spec_flags, given_keywords
from charllm.measure.command_settings import PreflightSettings

EXAMPLES = (
    "charllm preflight",
    "charllm preflight --model llama3-70b --cluster h200x32 --tp 4 --pp 4 --nodes 4 --json",
    "charllm preflight --telemetry none --no-reach",
)
FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser, own_nodes=True)
    add_flags(parser, PreflightSettings)
    add_format_flags(parser, table="the checks")


def run(arguments: argparse.Namespace) -> int:
    """Check, print, and tell by the exit code whether a check failed."""
    from charllm.api.preflight import preflight
    from charllm.report.preflight import render_preflight

    found = preflight(arguments.spec, **given(arguments, PreflightSettings), **given_keywords(arguments))
    rows = [check._asdict() for check in found.checks]
    answer = {"failed": found.failed, "checks": rows, "nodes": found.nodes}
    print_as(arguments, answer, lambda: render_preflight(rows), lambda: rows)
    return FAILED if found.failed else 0
