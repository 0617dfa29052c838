"""Emulate one rank of a large job on this GPU: its kernels run, its communication and waits last as long as simulated.

Time, power, clock and temperature are predicted first and stored with the recording; `--predict` stops there and needs
no GPU.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from charllm.catalog.resolve import resolve_run
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.errors import SpecError
from charllm.measure.device import require_device, telemetry_gpus
from charllm.spec.fields import read
from charllm.spec.run import Conditions
from charllm.timeline.play import PlayTimeline, check_length, read_timeline, to_text

CAPS = ("power_cap", "clock_cap")
"""Conditions that hold for one GPU alone, in any unit."""
LONGEST_S, WARM_AFTER_S = 86_400.0, 3600.0
"""A day; an hour after which a GPU no longer warms up, and the prediction stays as it is."""


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
        "--telemetry", default="auto", metavar="auto|nvml|replay:FOLDER|none", help="source of the readings"
    )
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu: only to test the command itself"
    )
    parser.add_argument("--print-timeline", action="store_true", help="print the timeline and stop")
    parser.add_argument("--predict", action="store_true", help="print the prediction and stop")


def run(arguments: argparse.Namespace) -> int:
    """Play the rank under the sampler and print the result."""
    if not 0 < arguments.seconds <= LONGEST_S:
        raise SpecError("--seconds", arguments.seconds, f"more than 0, at most {LONGEST_S:,.0f}")
    timeline = _timeline(arguments)
    if arguments.print_timeline:
        print(to_text(timeline))
        return 0
    predicted = _predict(timeline, arguments.seconds, _conditions(timeline, arguments))
    if arguments.predict:
        print(json.dumps(predicted, indent=2, allow_nan=False))
        return 0
    require_device(arguments.device)
    from charllm.measure.emulation.record import emulate
    from charllm.measure.job import stopped_early

    gpus = telemetry_gpus(arguments.telemetry, os.environ)[:1]
    folder = arguments.out or Path("charllm-runs") / time.strftime("rank-%Y%m%d-%H%M%S")
    result = emulate(timeline, folder, arguments.telemetry, arguments.device, arguments.seconds, gpus, predicted)
    for warning in stopped_early(result.warnings):
        print(f"charllm: {warning}", file=sys.stderr)
    print(json.dumps(result.metrics, indent=2, allow_nan=False))
    for name, value in predicted.items():
        read = result.metrics.get(name)
        if value is not None and read is not None:
            print(f"charllm: {name}: predicted {value:.5g}, measured {read:.5g}", file=sys.stderr)
    print(f"charllm: recorded in {folder}", file=sys.stderr)
    return 0


def _conditions(timeline: PlayTimeline, arguments: argparse.Namespace) -> Conditions:
    """Return the caps that were asked for, or those under which the timeline was simulated."""
    asked = request_from(arguments).get("conditions") or timeline.spec.get("conditions") or {}
    caps = {name: value for name, value in asked.items() if name.startswith(CAPS)}
    return read(Conditions, caps, "conditions")


def _predict(timeline: PlayTimeline, seconds_s: float, conditions: Conditions) -> dict[str, float]:
    """Predict what one GPU of the timeline's kind will read, alone where such a one was measured."""
    from charllm.evaluate.ops import bench_machine
    from charllm.simulate.emulated import predict_played

    try:
        cluster = bench_machine(timeline.spec["cluster"]["node"]["gpu"]["name"])
    except (KeyError, TypeError, SpecError):
        # A timeline from elsewhere, or a GPU that the catalog does not know.
        return {}
    seen = predict_played(timeline, cluster, min(seconds_s, WARM_AFTER_S), conditions)
    return {
        "step_time_s": seen.busy_s,
        "power_mean_w": seen.power_mean_w,
        "power_peak_sensor_w": seen.power_peak_shown_w,
        "clock_mean_hz": seen.clock_mean_hz,
        "temperature_mean_c": seen.temperature_mean_c,
        "temperature_peak_c": seen.temperature_peak_c,
    }


def _timeline(arguments: argparse.Namespace) -> PlayTimeline:
    if arguments.timeline is not None:
        timeline = read_timeline(arguments.timeline)
        check_length(timeline)
        return timeline
    from charllm.simulate.rank_timeline import generate_timeline

    return generate_timeline(resolve_run(request_from(arguments)), arguments.rank)
