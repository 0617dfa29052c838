"""Measure code of this process, or a command."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from time import strftime
from typing import Any, Unpack

from charllm.api.keywords import RunKeywords, Spec, as_path, build_request
from charllm.api.signature import public_with
from charllm.catalog.resolve import resolve_run
from charllm.errors import CharllmError, SpecError
from charllm.measure.adapters.adapter import Program, Request
from charllm.measure.adapters.programs import as_ranks_here, beside, prepare_program, with_program, write_files
from charllm.measure.adapters.settings import ProgramKeywords, ProgramSettings
from charllm.measure.command_settings import PreflightSettings
from charllm.measure.device import telemetry_gpus
from charllm.measure.job import Job, complete, measure_job, prepare_folder, submit
from charllm.measure.launchers.plan import LOCAL, SLURM, Plan, PlanKeywords, build_plan
from charllm.measure.preflight.checks import FAILURE
from charllm.measure.preflight.run import check_machine
from charllm.measure.session import Session, measure_here
from charllm.measure.settings import (
    CommandSettings,
    MeasureKeywords,
    MeasureSettings,
)
from charllm.result.result import RunResult
from charllm.spec.flags import pop_keywords, read_keywords, take
from charllm.spec.run import RunSpec

Folder = str | PathLike[str]


class CommandKeywords(RunKeywords, MeasureKeywords, PlanKeywords, ProgramKeywords, total=False):
    """All words of a measured command: how it is recorded, where it runs, which program it is, and what it trains."""

    repeats: int
    preflight: bool


@public_with(MeasureSettings)
def measure(
    out: Folder | None = None, *, spec: Spec | None = None, **settings: Unpack[MeasureKeywords]
) -> AbstractContextManager[Session]:
    """Record power, clocks and temperature of every GPU that this process may use while a ``with`` block runs.

    A separate process takes readings `rate` times per second and stores them in `out` (default ``charllm-runs/TIME``),
    from `idle` seconds before the block to `cooldown` seconds after it. `telemetry` is the source of readings:
    auto, nvml, amdsmi, replay:FOLDER or none. `host` selects readings of the machine around the GPUs, once per
    second: auto (everything that can be read), none, or redfish:FILE. `watch` shows readings on stderr;
    `prometheus` ("[HOST:]PORT") serves them as metrics. If steps are marked with ``job.step(tokens=...)``, metrics
    are per step; after the block ``job.result`` is the run. With the `spec` of the training run (a table, a file or
    a result of `charllm.simulate`) the result has MFU. With `profile` (3, or "3@20": three steps, after the
    twentieth) torch's profiler records some of the marked steps.

    >>> import charllm, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with charllm.measure(f"{folder}/run", telemetry="none", idle=0, cooldown=0) as job:
    ...         for batch in range(4):
    ...             job.step(tokens=1024)
    >>> job.result.origin, job.result.metrics.tokens_per_s > 0
    ('measured', True)
    """
    recording = read_keywords(MeasureSettings, settings)
    gpus = telemetry_gpus(recording.telemetry, os.environ)
    table = None if spec is None else resolve_run(build_request(spec, {})).as_table()
    return measure_here(Job(tuple(sys.orig_argv), run_folder(out), recording), gpus, os.environ, table)


@public_with(MeasureSettings, CommandSettings, Plan, ProgramSettings)
def measure_command(
    command: Sequence[str] = (), out: Folder | None = None, *, spec: Spec | None = None,
    **words: Unpack[CommandKeywords],
) -> RunResult:  # fmt: skip
    """Run a command and record power, clocks and temperature of its GPUs, as ``charllm measure`` does.

    With `launcher` torchrun a Python script or module runs as `ranks_per_node` ranks on this machine, with slurm on
    `nodes` nodes of a cluster, which are recorded on one time axis. The command's exit code is in
    ``result.provenance["measurement"]["exit_code"]``, and the cause of a failure in ``["failure"]``.

    If the run is described, by a `spec` or keywords, the result has MFU. With an `adapter` (reference, megatron, nemo,
    torchtitan) that program's command for the run is measured, and `command` holds further arguments. If the
    command does not mark steps, they are read from its log; the program is recognised, or given by `log_kind` or a
    regular expression `log_pattern`. With `preflight` the machine is checked first, and nothing is run if a check
    fails. With `profile` (3, or "3@20") torch's profiler records some marked steps.
    """
    return run_job(build_job(command, out, dict(words), spec))[0]


def build_job(command: Sequence[str], out: Folder | None, words: dict[str, Any], spec: Spec | None = None) -> Job:
    """Return the job of a command and its keywords, checked; its ranks are one for each GPU of the run it trains."""
    folder, own = run_folder(out), take(CommandSettings, words)
    recording, where = take(MeasureSettings, words), pop_keywords(Plan, words)
    program = build_program(command, folder, take(ProgramSettings, words), spec, words)
    launcher, cluster = where.get("launcher", LOCAL), (program.spec or {}).get("cluster")
    if launcher != LOCAL and program.ranks > 1 and cluster is not None:
        where.setdefault("ranks_per_node", cluster["node"]["gpus"])
        where.setdefault("nodes", cluster["nodes"] if launcher == SLURM else None)
    told = as_ranks_here(program) if launcher == LOCAL else program.command
    if not told:
        raise SpecError("COMMAND", "nothing", "the words of a command: charllm measure [flags] -- COMMAND ...")
    job = Job(tuple(told), folder, recording, build_plan(where), own.repeats, program=program)
    if own.preflight:
        require_fit(job)
    return job


def require_fit(job: Job) -> None:
    """Check the machine, or the nodes of the allocation, before a job is run on it; an error where a check fails."""
    allocated = "SLURM_JOB_ID" in os.environ
    if job.plan.launcher == SLURM and not allocated:
        raise SpecError("--preflight", job.plan.launcher, "a Slurm allocation around it (salloc), or no --preflight")
    spec = None if job.program is None or job.program.spec is None else resolve_run(job.program.spec)
    nodes = (job.plan.nodes or 1) if job.plan.launcher == SLURM else 1
    settings = PreflightSettings(nodes=nodes, telemetry=job.settings.telemetry, out=job.folder, reach=False)
    found = check_machine(settings, spec, allocated=allocated)
    wrong = [check for check in found.checks if check.state == FAILURE]
    if wrong:
        told = "; ".join(f"{check.name}: {check.found}, expected {check.expected}" for check in wrong)
        raise CharllmError(f"preflight failed, nothing was run: {told}")


def run_job(job: Job) -> tuple[RunResult, int]:
    """Measure a command; returns its result and its exit code."""
    return measure_job(job, _environment(job))


def submit_job(job: Job) -> str:
    """Start a job on a cluster and leave it; returns the name of the job."""
    environment = _environment(job)
    job = complete(job, environment)
    prepare_folder(job.folder)
    return submit(job, job.folder, environment)[1].name


def _environment(job: Job) -> dict[str, str]:
    """Return the variables of a job, and write the files that its program reads."""
    if job.program is None:
        return dict(os.environ)
    write_files(job.program)
    return {**os.environ, **job.program.environment}


def run_folder(out: Folder | None) -> Path:
    """Return the folder of a new run."""
    return Path("charllm-runs") / strftime("%Y%m%d-%H%M%S") if out is None else as_path(out, "--out")


def build_program(
    command: Sequence[str],
    folder: Path,
    settings: ProgramSettings,
    spec: Spec | None = None,
    run: Mapping[str, Any] | None = None,
) -> Program:
    """Return the program that a command line asks for: an adapter's for a run, or the command itself.

    `run` holds keywords of a run, as of `charllm.simulate`. With the run of a command known, MFU is, too.
    """
    if isinstance(command, str) or not all(isinstance(word, str) for word in command):
        raise SpecError("COMMAND", command, "a list of words")
    name = settings.adapter or "command"
    described: RunSpec | None = None
    if spec is not None or run:
        described = resolve_run(with_program(name, build_request(spec, run or {})))
    request = Request(
        run=described,
        words=tuple(command),
        script=settings.script,
        steps=settings.steps,
        config=beside(folder),
        python=sys.executable,
    )
    program = prepare_program(name, request)
    return replace(program, log_kind=settings.log_kind or program.log_kind, log_pattern=settings.log_pattern)
