"""Run the calibration benchmark of a GPU (ten minutes): time, power, clock and temperature of each op."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from charllm.cli import INTERRUPTED
from charllm.cli.flags import add_flags, given
from charllm.cli.progress import track
from charllm.errors import SpecError
from charllm.measure.command_settings import OpsSettings
from charllm.result.store import write_text
from charllm.spec.flags import read_keywords

if TYPE_CHECKING:
    from charllm.measure.bench.suite import OpCase


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_flags(parser, OpsSettings)


def run(arguments: argparse.Namespace) -> int:
    """Run the suite under the sampler and write ops.csv; an interrupt ends it with the ops so far."""
    from charllm.measure.device import require_device, telemetry_gpus

    own = read_keywords(OpsSettings, given(arguments, OpsSettings))
    require_device(own.device)
    from charllm.measure.bench.run import run_suite
    from charllm.measure.bench.table import tabulate, to_csv
    from charllm.measure.finish import until_last_reading
    from charllm.measure.job import prepare_folder
    from charllm.measure.launch import wait_idle
    from charllm.measure.measured import Measured
    from charllm.measure.parts import read_sampled
    from charllm.measure.sampling import sampling
    from charllm.measure.settings import AFTER_S, MeasureSettings

    cases, settings = _chosen(own), MeasureSettings(telemetry=own.telemetry)
    gpus = telemetry_gpus(own.telemetry, os.environ)[:1]
    folder = own.out or Path("charllm-runs") / time.strftime("ops-%Y%m%d-%H%M%S")
    prepare_folder(folder)
    runs, code = [], 0
    with sampling(folder, settings, gpus):
        try:
            for _, outcome in track(run_suite(cases, folder, own.device, own.seed), len(cases), "ops"):
                runs.append(outcome)
            wait_idle(AFTER_S)
        except KeyboardInterrupt:
            code = INTERRUPTED
    recording = read_sampled(folder, gpus)
    rows = tabulate(cases, runs, recording)
    write_text(to_csv(rows), folder / "ops.csv")
    failed = [outcome for outcome in runs if outcome.error]
    for outcome in failed:
        print(f"charllm: {outcome.name}: {outcome.error}", file=sys.stderr)
    if runs:
        measured = Measured(recording, {}, runs[0].start_s, runs[-1].end_s)
        for warning in until_last_reading(measured, settings.rate_hz)[1]:
            print(f"charllm: {warning}", file=sys.stderr)
    print(json.dumps({"ops": len(rows), "failed": len(failed), "folder": str(folder)}))
    return code


def _chosen(settings: OpsSettings) -> list[OpCase]:
    from charllm.measure.bench.suite import full_suite, short_suite

    suite = full_suite() if settings.suite == "full" else short_suite()
    cases = [
        case._replace(seconds_s=case.seconds_s * settings.scale)
        for case in suite
        if _is_named(case, settings.only or case.name) and not _is_named(case, settings.skip)
    ]
    if not cases:
        raise SpecError("--only", settings.only, "part of a group or name of the suite")
    return cases


def _is_named(case: OpCase, words: str) -> bool:
    """Tell whether a case's group or name contains one of the words."""
    return any(word in f"{case.group} {case.name}" for word in words.split(",") if word)
