"""Measure a command on this machine: idle, run, cool down, as often as asked, one result."""

import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from charllm.errors import CharllmError, SpecError
from charllm.measure.device import telemetry_gpus
from charllm.measure.finish import JobRecord, combine, finish_record, store_result
from charllm.measure.launch import (
    AFTER_S,
    Ended,
    cool_down,
    describe_command,
    describe_environment,
    run_command,
    sampling,
    wait_idle,
)
from charllm.measure.live.observe import observed
from charllm.result.result import RunResult

SMALLEST_DISK_BYTES = 1 << 20


class Job(NamedTuple):
    """What to measure, and how."""

    command: tuple[str, ...]
    folder: Path
    rate_hz: float = 100.0
    telemetry: str = "auto"
    idle_s: float = 2.0
    cooldown_s: float = AFTER_S
    repeats: int = 1
    watch: bool = False
    prometheus: str = ""
    """[HOST:]PORT to serve metrics at; empty: nowhere."""


def measure_job(job: Job, environment: Mapping[str, str]) -> tuple[RunResult, int]:
    """Run the command under the sampler and return the result and the command's exit code."""
    prepare_folder(job.folder)
    with observed(job.folder, watch=job.watch, prometheus=job.prometheus):
        return _measure_repeats(job, environment)


def _measure_repeats(job: Job, environment: Mapping[str, str]) -> tuple[RunResult, int]:
    gpus = telemetry_gpus(job.telemetry, environment)
    results: list[RunResult] = []
    ended = Ended(0)
    for repeat in range(job.repeats):
        folder = job.folder if job.repeats == 1 else job.folder / f"repeat-{repeat}"
        folder.mkdir(exist_ok=True)
        result, ended = _measure_once(job, folder, gpus, environment)
        if ended.exit_code and results:
            results[-1].warnings.append(f"repeat {repeat} ended with exit code {ended.exit_code} and is left out")
        else:
            results.append(result)
        if ended.exit_code or ended.interrupted:
            break
    combined = results[0] if len(results) == 1 else combine(results)
    store_result(combined, job.folder)
    return combined, ended.exit_code


def prepare_folder(folder: Path) -> None:
    """Make an empty folder for a record, or say why it cannot be."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise SpecError("--out", str(folder), "a folder that does not exist yet, or an empty one")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        raise SpecError("--out", str(folder), f"a folder that can be written ({error.strerror or error})") from None
    if free_bytes < SMALLEST_DISK_BYTES:
        raise SpecError("--out", str(folder), "a disk with room: less than 1 MiB is free")


def _measure_once(job: Job, folder: Path, gpus: list[str], environment: Mapping[str, str]) -> tuple[RunResult, Ended]:
    record = describe_job(job, gpus, environment).write(folder)
    with sampling(folder, job.telemetry, job.rate_hz, gpus):
        windows = {"idle": list(wait_idle(job.idle_s)), "command": [time.monotonic()]}
        record = replace(record, windows_s=windows).write(folder)
        ended = run_command(job.command, folder, environment)
        windows["command"].append(time.monotonic())
        cooldown, cut_short = cool_down(job.cooldown_s)
    result = conclude(record, folder, {**windows, "cooldown": list(cooldown)}, ended.exit_code)
    return result, ended._replace(interrupted=ended.interrupted or cut_short)


def describe_job(job: Job, gpus: Sequence[str], environment: Mapping[str, str]) -> JobRecord:
    """Return what is known of a job before it starts."""
    command = describe_command(job.command, environment)
    details = {"command": command, "environment": describe_environment(environment), "exit_code": None}
    return JobRecord("measured", {"command": command}, list(gpus), job.rate_hz, details)


def conclude(record: JobRecord, folder: Path, windows_s: dict[str, list[float]], exit_code: int) -> RunResult:
    """Note how a job ended and summarise it; a disk that has filled up meanwhile must not hide how it ended."""
    details = {**record.details, "exit_code": exit_code}
    record = replace(record, windows_s=windows_s, details=details, ended=True)
    try:
        record.write(folder)
    except CharllmError as error:
        print(f"charllm: {error}", file=sys.stderr)
    return finish_record(folder, record)
