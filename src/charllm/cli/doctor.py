"""Name the GPU, link, node or host that slows a run, with the cause, the cost and what to do about it.

Every GPU is compared with its peers in the same role; normal differences between healthy GPUs are allowed for. Tests
without readings are listed under "Not judged".
"""

import argparse
from pathlib import Path

from charllm.cli.output import add_format_flags, print_as

EXAMPLES = (
    "charllm simulate --model llama3-8b --cluster h200x32 --tp 2 --set conditions.weak_gpus=[9]"
    " --set conditions.weak_power_fraction=1.4 --out runs/weak",
    "charllm doctor runs/weak",
    "charllm doctor runs/weak --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder or its result.json")
    add_format_flags(parser, table="a row for each finding")


def run(arguments: argparse.Namespace) -> int:
    """Examine and print."""
    from charllm.api.doctor import doctor

    found = doctor(arguments.run)
    print_as(arguments, found.as_table(), lambda: str(found), lambda: found.findings)
    return 0
