"""Play one rank of a big job on this GPU: its kernels are real, its communication and waits as long as planned."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from charllm.catalog.resolve import resolve_run
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.measure.device import require_device, telemetry_gpus
from charllm.timeline.play import PlayTimeline, read_timeline, to_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    parser.add_argument("--rank", type=int, default=0, metavar="N", help="the rank to play (default 0)")
    parser.add_argument("--timeline", type=Path, metavar="FILE", help="play this timeline, not the simulated one")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="play whole steps for this long")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the record (default charllm-runs/rank-TIME)"
    )
    parser.add_argument(
        "--telemetry", default="auto", metavar="auto|nvml|replay:FOLDER|none", help="where readings come from"
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: only to try it out")
    parser.add_argument("--print-timeline", action="store_true", help="print the timeline and play nothing")


def run(arguments: argparse.Namespace) -> int:
    """Play the rank under the sampler and print the result."""
    timeline = _timeline(arguments)
    if arguments.print_timeline:
        print(to_text(timeline))
        return 0
    require_device(arguments.device)
    from charllm.measure.emulation.record import emulate
    from charllm.measure.job import stopped_early

    gpus = telemetry_gpus(arguments.telemetry, os.environ)[:1]
    folder = arguments.out or Path("charllm-runs") / time.strftime("rank-%Y%m%d-%H%M%S")
    result = emulate(timeline, folder, arguments.telemetry, arguments.device, arguments.seconds, gpus)
    for warning in stopped_early(result.warnings):
        print(f"charllm: {warning}", file=sys.stderr)
    print(json.dumps(result.metrics, indent=2, allow_nan=False))
    print(f"charllm: recorded in {folder}", file=sys.stderr)
    return 0


def _timeline(arguments: argparse.Namespace) -> PlayTimeline:
    if arguments.timeline is not None:
        return read_timeline(arguments.timeline)
    from charllm.timeline.generate import generate_timeline

    return generate_timeline(resolve_run(request_from(arguments)), arguments.rank)
