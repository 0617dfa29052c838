"""Bench this GPU: `ops` runs the calibration suite (ten minutes) and writes what each op costs."""

import argparse
import json
import sys
import time
from pathlib import Path

from charllm.cli.progress import track
from charllm.errors import SpecError
from charllm.measure.bench.suite import OpCase, full_suite, short_suite


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("what", choices=["ops"], help="what to bench")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the record (default charllm-runs/ops-TIME)")
    parser.add_argument("--suite", choices=["full", "short"], default="full", help="short: only ops that are run twice")
    parser.add_argument(
        "--only", default="", metavar="TEXT,...", help="only ops whose group or name contains one of these"
    )
    parser.add_argument(
        "--skip", default="", metavar="TEXT,...", help="no ops whose group or name contains one of these"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the order")
    parser.add_argument(
        "--telemetry", default="auto", metavar="auto|nvml|replay:FOLDER|none", help="where readings come from"
    )
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: only to try the bench out")
    parser.add_argument(
        "--scale", type=float, default=1.0, metavar="X", help="run every op this much longer or shorter"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the suite under the sampler and write ops.csv."""
    from charllm.measure.bench.run import run_suite
    from charllm.measure.bench.table import tabulate, to_csv
    from charllm.measure.job import prepare_folder
    from charllm.measure.launch import sampling
    from charllm.measure.recording import read_recording

    suite = full_suite() if arguments.suite == "full" else short_suite()
    cases = [
        case._replace(seconds_s=case.seconds_s * arguments.scale)
        for case in suite
        if _is_named(case, arguments.only or case.name) and not _is_named(case, arguments.skip)
    ]
    if not cases:
        raise SpecError("--only", arguments.only, "part of a group or name of the suite")
    folder = arguments.out or Path("charllm-runs") / time.strftime("ops-%Y%m%d-%H%M%S")
    prepare_folder(folder)
    with sampling(folder, arguments.telemetry, 100.0):
        runs = [
            outcome
            for _, outcome in track(run_suite(cases, folder, arguments.device, arguments.seed), len(cases), "ops")
        ]
    rows = tabulate(cases, runs, read_recording(folder))
    (folder / "ops.csv").write_text(to_csv(rows), encoding="utf-8")
    failed = [outcome for outcome in runs if outcome.error]
    for outcome in failed:
        print(f"charllm: {outcome.name}: {outcome.error}", file=sys.stderr)
    print(json.dumps({"ops": len(rows), "failed": len(failed), "folder": str(folder)}))
    return 0


def _is_named(case: OpCase, words: str) -> bool:
    """Tell whether a case's group or name contains one of the words."""
    return any(word in f"{case.group} {case.name}" for word in words.split(",") if word)
