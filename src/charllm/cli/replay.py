"""Predict the step time of profiler traces with one thing changed: faster NICs, a full clock, a hidden collective.

PATH is a trace, or a folder with one trace per rank. Kernels keep their order, launches and dependencies; later
kernels shift with the change. Without a change the replay gives the traced step time.
"""

import argparse
from pathlib import Path

from charllm.cli.output import add_format_flags, print_as
from charllm.errors import SpecError

EXAMPLES = (
    "charllm replay runs/profiled --scale gemm=0.8 --launch 0.5",
    "charllm replay runs/profiled --clock-full 0 --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    from charllm.trace.settings import GPUS_PER_NODE

    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="trace files, or folders with them")
    parser.add_argument(
        "--nic", type=float, default=1.0, metavar="X", help="make collectives between nodes X times as fast"
    )
    parser.add_argument(
        "--hide",
        action="append",
        default=[],
        metavar="NAME",
        help="remove the time of these collectives: axis, kind or class",
    )
    parser.add_argument(
        "--clock-full",
        action="append",
        default=[],
        metavar="RANK[=FRACTION]",
        help="run this rank's GPU at full clock instead of FRACTION of it (default: the recorded fraction)",
    )
    parser.add_argument(
        "--scale", action="append", default=[], metavar="CLASS=X", help="multiply the time of a kernel class by X"
    )
    parser.add_argument(
        "--launch", type=float, default=1.0, metavar="X", help="multiply the host time of launches by X"
    )
    parser.add_argument(
        "--gpus-per-node", type=int, default=GPUS_PER_NODE, metavar="N", help="ranks on a node (default 8)"
    )
    add_format_flags(parser, table="a row for each step time")


def run(arguments: argparse.Namespace) -> int:
    """Replay and print."""
    from charllm.api.replay import replay

    found = replay(
        arguments.paths,
        nic=arguments.nic,
        hide=arguments.hide,
        clock_full=dict(_clock(text) for text in arguments.clock_full),
        scale=dict(_scale(text) for text in arguments.scale),
        launch=arguments.launch,
        gpus_per_node=arguments.gpus_per_node,
    )
    print_as(arguments, found.as_table(), lambda: str(found), found.rows)
    return 0


def _clock(text: str) -> tuple[int, float | None]:
    rank, _, fraction = text.partition("=")
    try:
        return int(rank), float(fraction) if fraction else None
    except ValueError:
        raise SpecError("--clock-full", text, "RANK or RANK=FRACTION, such as 3=0.8") from None


def _scale(text: str) -> tuple[str, float]:
    name, _, factor = text.rpartition("=")
    try:
        return name, float(factor)
    except ValueError:
        raise SpecError("--scale", text, "CLASS=X, such as gemm=0.8") from None
