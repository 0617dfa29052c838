"""Emulate one rank of a large job on this GPU: its kernels run, its communication and waits last as long as simulated.

Time, power, clock and temperature are predicted first and stored with the recording; `--predict` stops there and needs
no GPU.
"""

import argparse
import json
import sys
from pathlib import Path

from charllm.api.emulation import predict_readings, run_emulation, timeline_of
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.measure.finish import stopped_early
from charllm.timeline.play import to_text

EXAMPLES = (
    "charllm emulate --model gpt3-175b --cluster h200x32 --tp 8 --pp 4 --gbs 128 --rank 8 --seconds 60",
    "charllm emulate --model gpt3-175b --cluster h200x32 --tp 8 --pp 4 --gbs 128 --rank 8 --predict",
    "charllm emulate --model llama3-8b --cluster h200x8 --tp 2 --gbs 8 --print-timeline",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    parser.add_argument("--rank", type=int, default=0, metavar="N", help="the rank to emulate (default 0)")
    parser.add_argument(
        "--timeline", type=Path, metavar="FILE", help="emulate this timeline instead of the simulated one"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, metavar="S", help="emulate whole steps for this long (default 60)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the recording (default charllm-runs/rank-TIME)"
    )
    parser.add_argument(
        "--telemetry", default="auto", metavar="auto|nvml|amdsmi|replay:FOLDER|none", help="source of the readings"
    )
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu: only to test the command itself"
    )
    parser.add_argument("--print-timeline", action="store_true", help="print the timeline and stop")
    parser.add_argument("--predict", action="store_true", help="print the prediction and stop")


def run(arguments: argparse.Namespace) -> int:
    """Emulate the rank under the sampler and print the result."""
    request = request_from(arguments)
    timeline = timeline_of(request, arguments.rank, arguments.timeline)
    if arguments.print_timeline:
        print(to_text(timeline))
        return 0
    if arguments.predict:
        print(json.dumps(predict_readings(timeline, request, arguments.seconds), indent=2, allow_nan=False))
        return 0
    result, predicted, folder = run_emulation(
        timeline, request, arguments.seconds, arguments.out, arguments.telemetry, arguments.device
    )
    for warning in stopped_early(result.warnings):
        print(f"charllm: {warning}", file=sys.stderr)
    print(json.dumps(result.metrics, indent=2, allow_nan=False))
    for name, value in predicted.items():
        read = result.metrics.get(name)
        if value is not None and read is not None:
            print(f"charllm: {name}: predicted {value:.5g}, measured {read:.5g}", file=sys.stderr)
    print(f"charllm: recorded in {folder}", file=sys.stderr)
    return 0
