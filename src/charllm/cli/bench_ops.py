"""Run the calibration benchmark of a GPU (ten minutes): time, power, clock and temperature of each op."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from charllm.cli import INTERRUPTED
from charllm.cli.progress import track
from charllm.errors import SpecError
from charllm.measure.bench.suite import OpCase, full_suite, short_suite
from charllm.measure.device import require_device, telemetry_gpus

LARGEST_SCALE = 100.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the recording (default charllm-runs/ops-TIME)"
    )
    parser.add_argument(
        "--suite", choices=["full", "short"], default="full", help="short: only the ops that are run twice"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT,...", help="run only ops whose group or name contains one of these"
    )
    parser.add_argument(
        "--skip", default="", metavar="TEXT,...", help="skip ops whose group or name contains one of these"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the order in which ops run")
    parser.add_argument(
        "--telemetry", default="auto", metavar="auto|nvml|amdsmi|replay:FOLDER|none", help="source of the readings"
    )
    parser.add_argument(
        "--device", default="cuda", choices=["cuda", "cpu"], help="cpu: only to test the benchmark itself"
    )
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="multiply the duration of every op by X")


def run(arguments: argparse.Namespace) -> int:
    """Run the suite under the sampler and write ops.csv; an interrupt ends it with the ops so far."""
    require_device(arguments.device)
    from charllm.measure.bench.run import run_suite
    from charllm.measure.bench.table import tabulate, to_csv
    from charllm.measure.finish import until_last_reading
    from charllm.measure.job import prepare_folder
    from charllm.measure.launch import sampling, wait_idle
    from charllm.measure.parts import read_sampled
    from charllm.measure.settings import AFTER_S, MeasureSettings
    from charllm.measure.summary import Measured

    cases, settings = _chosen(arguments), MeasureSettings(telemetry=arguments.telemetry)
    gpus = telemetry_gpus(arguments.telemetry, os.environ)[:1]
    folder = arguments.out or Path("charllm-runs") / time.strftime("ops-%Y%m%d-%H%M%S")
    prepare_folder(folder)
    runs, code = [], 0
    with sampling(folder, settings, gpus):
        try:
            for _, outcome in track(run_suite(cases, folder, arguments.device, arguments.seed), len(cases), "ops"):
                runs.append(outcome)
            wait_idle(AFTER_S)
        except KeyboardInterrupt:
            code = INTERRUPTED
    recording = read_sampled(folder, gpus)
    rows = tabulate(cases, runs, recording)
    (folder / "ops.csv").write_text(to_csv(rows), encoding="utf-8")
    failed = [outcome for outcome in runs if outcome.error]
    for outcome in failed:
        print(f"charllm: {outcome.name}: {outcome.error}", file=sys.stderr)
    if runs:
        measured = Measured(recording, {}, runs[0].start_s, runs[-1].end_s)
        for warning in until_last_reading(measured, settings.rate_hz)[1]:
            print(f"charllm: {warning}", file=sys.stderr)
    print(json.dumps({"ops": len(rows), "failed": len(failed), "folder": str(folder)}))
    return code


def _chosen(arguments: argparse.Namespace) -> list[OpCase]:
    if not 0 < arguments.scale <= LARGEST_SCALE:
        raise SpecError("--scale", arguments.scale, f"more than 0, at most {LARGEST_SCALE:g}")
    suite = full_suite() if arguments.suite == "full" else short_suite()
    cases = [
        case._replace(seconds_s=case.seconds_s * arguments.scale)
        for case in suite
        if _is_named(case, arguments.only or case.name) and not _is_named(case, arguments.skip)
    ]
    if not cases:
        raise SpecError("--only", arguments.only, "part of a group or name of the suite")
    return cases


def _is_named(case: OpCase, words: str) -> bool:
    """Tell whether a case's group or name contains one of the words."""
    return any(word in f"{case.group} {case.name}" for word in words.split(",") if word)
