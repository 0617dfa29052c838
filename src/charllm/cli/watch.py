"""Show a run while it is recorded: power, temperature, clocks and steps of every GPU of every node.

RUN is the folder that `charllm measure --out` writes, opened from another terminal or another node. On a terminal a
table is redrawn every second; otherwise a block of lines is printed every five seconds. The command ends with the
run.
"""

import argparse
import sys
import threading
from dataclasses import asdict
from pathlib import Path

from charllm.cli import INTERRUPTED
from charllm.cli.output import add_format_flags, print_as
from charllm.report.tables import terminal_columns

EXAMPLES = (
    "charllm watch runs/mine",
    "charllm watch runs/mine --once --json",
    "charllm watch runs/mine --prometheus 9400",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run that is being recorded")
    parser.add_argument("--once", action="store_true", help="print the current state and exit")
    parser.add_argument(
        "--prometheus", metavar="[HOST:]PORT", help="serve metrics for Prometheus (default host 127.0.0.1)"
    )
    add_format_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the run until it has ended."""
    from charllm.measure.live.endpoint import serving
    from charllm.measure.live.show import show_run
    from charllm.measure.live.watcher import Watcher, check_run
    from charllm.report.live import render_live

    check_run(arguments.run)
    if arguments.once or arguments.json:
        snapshot = asdict(Watcher(arguments.run).look())
        print_as(arguments, snapshot, lambda: render_live(snapshot, terminal_columns()))
        return 0
    stop = threading.Event()
    try:
        if arguments.prometheus is None:
            show_run(arguments.run, sys.stdout, stop, until_ended=True)
        else:
            with serving(arguments.run, arguments.prometheus):
                show_run(arguments.run, sys.stdout, stop, until_ended=True)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0
