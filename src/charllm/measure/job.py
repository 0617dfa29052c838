"""Measure a command, here or on nodes of a cluster: idle, run, cool down, as often as asked, one result."""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from charllm.errors import CharllmError, SpecError
from charllm.measure.adapters.adapter import Program
from charllm.measure.device import judge_gpus, telemetry_identities
from charllm.measure.finish import combine, finish_record, store_result
from charllm.measure.hooked import hook_in
from charllm.measure.launch import (
    CommandError,
    Ended,
    cool_down,
    run_command,
    wait_idle,
)
from charllm.measure.launchers import slurm
from charllm.measure.launchers.plan import LOCAL, LOCALLY, SLURM, TORCHRUN, Plan
from charllm.measure.launchers.task import Task
from charllm.measure.launchers.torchrun import LOGS, alone, torchrun
from charllm.measure.live.observe import observed
from charllm.measure.marks import LOG_KEY
from charllm.measure.record import JobRecord
from charllm.measure.redaction import describe_command, describe_environment
from charllm.measure.sampling import sampling
from charllm.measure.settings import AS_USUAL, MeasureSettings
from charllm.profile import PROFILE_VARIABLE
from charllm.result.result import RunResult

SMALLEST_DISK_BYTES = 1 << 20


class Job(NamedTuple):
    """What to measure, and how."""

    command: tuple[str, ...]
    folder: Path
    settings: MeasureSettings = AS_USUAL
    plan: Plan = LOCALLY
    repeats: int = 1
    spec: Mapping[str, Any] | None = None
    """What the command trains, where that is known before it says so itself."""
    program: Program | None = None
    """What is known of the command: the run that it trains, and how its log is read."""


def measure_job(job: Job, environment: Mapping[str, str]) -> tuple[RunResult, int]:
    """Run the command under the sampler and return the result and the command's exit code."""
    job = complete(job, environment)
    prepare_folder(job.folder)
    with observed(job.folder, watch=job.settings.watch, prometheus=job.settings.prometheus):
        return _measure_repeats(job, environment)


def _measure_repeats(job: Job, environment: Mapping[str, str]) -> tuple[RunResult, int]:
    results: list[RunResult] = []
    ended = Ended(0)
    for repeat in range(job.repeats):
        folder = job.folder if job.repeats == 1 else job.folder / f"repeat-{repeat}"
        folder.mkdir(exist_ok=True)
        result, ended = LAUNCHERS[job.plan.launcher](job, folder, environment)
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


def complete(job: Job, environment: Mapping[str, str]) -> Job:
    """Check a job against the machines it asks for, before anything is written."""
    if job.plan.launcher == SLURM:
        if job.plan.submit_only and job.repeats > 1:
            raise SpecError("--repeats", job.repeats, "1 with --submit-only")
        return job._replace(plan=slurm.complete(job.plan, environment))
    if job.plan.launcher == TORCHRUN:
        torchrun(job.command, job.plan.ranks_per_node, alone(), None)
    return job


def measure_locally(job: Job, folder: Path, environment: Mapping[str, str]) -> tuple[RunResult, Ended]:
    """Run the command on this machine as it is, under the sampler."""
    settings = job.settings
    identities = telemetry_identities(settings.telemetry, environment)
    refused = judge_gpus(job.plan, {"this machine": [identity.name for identity in identities]})
    if refused:
        raise CommandError(refused, SpecError.exit_code)
    gpus = [identity.uuid for identity in identities]
    record = describe_job(job, gpus, environment).write(folder)
    with sampling(folder, settings, gpus):
        windows = {"idle": list(wait_idle(settings.idle_s)), "command": [time.monotonic()]}
        record = replace(record, windows_s=windows).write(folder)
        command, variables = profiled_command(job, environment)
        ended = run_command(command, folder, variables, job.plan.time_limit_s)
        windows["command"].append(time.monotonic())
        cooldown, cut_short = cool_down(settings.cooldown_s)
    result = conclude(record, folder, {**windows, "cooldown": list(cooldown)}, ended)
    return result, ended._replace(interrupted=ended.interrupted or cut_short)


def profiled_command(job: Job, environment: Mapping[str, str]) -> tuple[Sequence[str], Mapping[str, str]]:
    """Return the command and the variables of a job; one that is asked for a trace counts its optimizer's steps."""
    if job.settings.profile is None:
        return job.command, environment
    return hook_in(job.command, environment), {**environment, PROFILE_VARIABLE: job.settings.profile}


def measure_ranks(job: Job, folder: Path, environment: Mapping[str, str]) -> tuple[RunResult, Ended]:
    """Run a Python script or module as several ranks on this machine; their output is shown, and kept in logs/."""
    words = torchrun(job.command, job.plan.ranks_per_node, alone(), folder / LOGS, shown=True)
    return measure_locally(job._replace(command=tuple(words)), folder, environment)


def measure_on_slurm(job: Job, folder: Path, environment: Mapping[str, str]) -> tuple[RunResult, Ended]:
    """Run the command on nodes of a cluster, wait for its end, and summarise what they recorded."""
    record, handle = submit(job, folder, environment)
    try:
        state, cancelled = slurm.wait(handle, folder, _say)
    except CharllmError as error:
        _note_end(record, folder, slurm.State("REFUSED", str(error)), cancelled=False)
        raise
    _note_end(record, folder, state, cancelled=cancelled)
    result = finish_record(folder)
    failure = result.provenance["measurement"]["failure"]
    return result, Ended(0 if failure is None else failure["code"], cancelled)


def submit(job: Job, folder: Path, environment: Mapping[str, str]) -> tuple[JobRecord, slurm.Handle]:
    """Start a job on a cluster; returns its record and its handle."""
    record = describe_job(job, None, environment).write(folder)
    handle, known = slurm.start(Task(job.command, job.plan, job.settings), folder, environment)
    record = replace(record, details={**record.details, "slurm": known}).write(folder)
    return record, handle


def _note_end(record: JobRecord, folder: Path, state: slurm.State, *, cancelled: bool) -> None:
    told = {**record.details["slurm"], "state": state.state, "reason": state.reason, "nodes": state.nodes}
    replace(record, details={**record.details, "slurm": told, "cancelled": cancelled}, ended=True).write(folder)


def _say(text: str) -> None:
    print(f"charllm: {text}", file=sys.stderr, flush=True)


LAUNCHERS: dict[str, Callable[[Job, Path, Mapping[str, str]], tuple[RunResult, Ended]]] = {
    LOCAL: measure_locally,
    TORCHRUN: measure_ranks,
    SLURM: measure_on_slurm,
}
"""Name: what runs a job and records it in a folder."""


def describe_job(job: Job, gpus: Sequence[str] | None, environment: Mapping[str, str]) -> JobRecord:
    """Return what is known of a job before it starts; which GPUs nodes of a cluster have is found there."""
    command = describe_command(job.command, environment)
    details: dict[str, Any] = {
        "command": command,
        "environment": describe_environment(environment),
        "exit_code": None,
        "launcher": job.plan.launcher,
    }
    if job.plan.launcher != LOCAL:
        details |= {"nodes": job.plan.nodes or 1, "ranks_per_node": job.plan.ranks_per_node}
    if job.settings.profiled is not None:
        details["profile"] = str(job.settings.profiled)
    program = job.program
    if program is not None:
        details[LOG_KEY] = {"kind": program.log_kind, "pattern": program.log_pattern}
    spec = dict(job.spec or (program.spec if program else None) or {"command": command})
    return JobRecord("measured", spec, None if gpus is None else list(gpus), job.settings.rate_hz, details)


def conclude(record: JobRecord, folder: Path, windows_s: dict[str, list[float]], ended: Ended) -> RunResult:
    """Note how a job ended and summarise it; a disk that has filled up meanwhile must not hide how it ended."""
    details = {**record.details, **ended._asdict()}
    record = replace(record, windows_s=windows_s, details=details, ended=True)
    try:
        record.write(folder)
    except CharllmError as error:
        print(f"charllm: {error}", file=sys.stderr)
    return finish_record(folder, record)
