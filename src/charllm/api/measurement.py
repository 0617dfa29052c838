"""Measure code of this process, or a command."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from time import strftime
from typing import Any, TypedDict, Unpack

from charllm.api.keywords import RunKeywords, Spec, as_path, build_request
from charllm.api.programs import build_program
from charllm.api.signature import public
from charllm.catalog.resolve import resolve_run
from charllm.errors import CharllmError, SpecError
from charllm.measure.adapters import Program
from charllm.measure.adapters.programs import as_ranks_here, write_files
from charllm.measure.device import telemetry_gpus
from charllm.measure.host import check_host
from charllm.measure.job import LOCALLY, Job, complete, measure_job, prepare_folder, submit
from charllm.measure.launch import AFTER_S
from charllm.measure.launchers.plan import LOCAL, SLURM, Plan
from charllm.measure.live.endpoint import parse_address
from charllm.measure.preflight.checks import FAILURE
from charllm.measure.preflight.run import Asked, check_machine
from charllm.measure.session import Session, measure_here
from charllm.profile import parse_profile
from charllm.result.result import RunResult

LONGEST_WAIT_S, MOST_REPEATS = 86_400.0, 1000
SLOWEST_HZ, FASTEST_HZ = 0.1, 1000.0
Folder = str | PathLike[str]


class PlanKeywords(TypedDict, total=False):
    """Words that say where a command runs, named as the flags are; see `charllm measure --help`."""

    launcher: str
    nodes: int | None
    ranks_per_node: int | None
    gpus_per_node: int | None
    time_limit: float | None
    partition: str | None
    account: str | None
    time: str | None
    slurm_args: str
    setup: Sequence[str]
    prefix: str
    shared: bool


class ProgramKeywords(TypedDict, total=False):
    """Words that say which training program is started, and how its log is read."""

    adapter: str | None
    script: str | None
    steps: int | None
    log_kind: str | None
    log_pattern: str | None


class CommandKeywords(RunKeywords, PlanKeywords, ProgramKeywords, total=False):
    """All words of a measured command: the run that it trains, where it runs, and which program it is."""


@public
def measure(
    out: Folder | None = None,
    *,
    rate: float = 100.0,
    telemetry: str = "auto",
    idle: float = 2.0,
    cooldown: float = AFTER_S,
    watch: bool = False,
    prometheus: str | int | None = None,
    spec: Spec | None = None,
    host: str = "auto",
    profile: int | str | None = None,
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
    settings: dict[str, Any] = {"rate": rate, "telemetry": telemetry, "idle": idle, "cooldown": cooldown}
    job = build_job(sys.orig_argv, out, **settings, watch=watch, prometheus=prometheus, host=host, profile=profile)
    table = None if spec is None else resolve_run(build_request(spec, {})).as_table()
    return measure_here(job, telemetry_gpus(job.telemetry, os.environ), os.environ, table)


@public
def measure_command(
    command: Sequence[str] = (),
    out: Folder | None = None,
    *,
    rate: float = 100.0,
    telemetry: str = "auto",
    idle: float = 2.0,
    cooldown: float = AFTER_S,
    repeats: int = 1,
    watch: bool = False,
    prometheus: str | int | None = None,
    host: str = "auto",
    preflight: bool = False,
    spec: Spec | None = None,
    profile: int | str | None = None,
    **words: Unpack[CommandKeywords],
) -> RunResult:
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
    settings: dict[str, Any] = {"rate": rate, "telemetry": telemetry, "idle": idle, "cooldown": cooldown}
    where = {word: value for word, value in words.items() if word in PlanKeywords.__annotations__}
    named = {word: value for word, value in words.items() if word in ProgramKeywords.__annotations__}
    run = {word: value for word, value in words.items() if word not in {**where, **named}}
    folder = run_folder(out)
    program = build_program(command, folder, **named, spec=spec, run=run)  # type: ignore[arg-type]
    more: dict[str, Any] = {"watch": watch, "prometheus": prometheus, "host": host, "profile": profile}
    job = build_program_job(program, folder, where, **settings, repeats=repeats, **more)
    if preflight:
        require_fit(job)
    return run_job(job)[0]


def require_fit(job: Job) -> None:
    """Check the machine, or the nodes of the allocation, before a job is run on it; an error where a check fails."""
    allocated = "SLURM_JOB_ID" in os.environ
    if job.plan.launcher == SLURM and not allocated:
        raise SpecError("--preflight", job.plan.launcher, "a Slurm allocation around it (salloc), or no --preflight")
    spec = None if job.program is None or job.program.spec is None else resolve_run(job.program.spec)
    nodes = (job.plan.nodes or 1) if job.plan.launcher == SLURM else 1
    found = check_machine(Asked(spec, nodes, job.telemetry, job.folder, reach=False, allocated=allocated))
    wrong = [check for check in found.checks if check.state == FAILURE]
    if wrong:
        told = "; ".join(f"{check.name}: {check.found}, expected {check.expected}" for check in wrong)
        raise CharllmError(f"preflight failed, nothing was run: {told}")


def build_program_job(program: Program, folder: Path, where: Mapping[str, Any], **settings: Any) -> Job:
    """Return the job that runs a program where it is asked to; its ranks are one for each GPU of its run."""
    launcher, cluster = where.get("launcher", LOCAL), (program.spec or {}).get("cluster")
    filled = dict(where)
    if launcher != LOCAL and program.ranks > 1 and cluster is not None:
        filled["ranks_per_node"] = where.get("ranks_per_node") or cluster["node"]["gpus"]
        filled["nodes"] = where.get("nodes") or (cluster["nodes"] if launcher == SLURM else None)
    words = as_ranks_here(program) if launcher == LOCAL else program.command
    return build_job(words, folder, **settings, plan=build_plan(**filled), program=program)


def build_plan(
    *,
    launcher: str = "local",
    nodes: int | None = None,
    ranks_per_node: int | None = None,
    gpus_per_node: int | None = None,
    time_limit: float | None = None,
    partition: str | None = None,
    account: str | None = None,
    time: str | None = None,
    slurm_args: str = "",
    setup: Sequence[str] = (),
    prefix: str = "",
    shared: bool = False,
    submit_only: bool = False,
) -> Plan:
    """Check where a command is to run; a rank for each GPU, where only these are counted."""
    if isinstance(setup, str):
        raise SpecError("--setup", setup, "a list of lines")
    return Plan(
        launcher=launcher,
        nodes=nodes,
        ranks_per_node=ranks_per_node if ranks_per_node is not None else gpus_per_node or 1,
        gpus_per_node=gpus_per_node,
        time_limit_s=time_limit,
        partition=partition,
        account=account,
        time=time,
        slurm_args=_split("--slurm-args", slurm_args),
        setup=tuple(setup),
        prefix=_split("--prefix", prefix),
        shared=shared,
        submit_only=submit_only,
    )


def _split(flag: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise SpecError(flag, text, f"words as of a shell ({error})") from None


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


def build_job(
    command: Sequence[str],
    out: Folder | None,
    *,
    rate: float,
    telemetry: str,
    idle: float,
    cooldown: float,
    repeats: int = 1,
    watch: bool = False,
    prometheus: str | int | None = None,
    plan: Plan = LOCALLY,
    program: Program | None = None,
    host: str = "auto",
    profile: int | str | None = None,
) -> Job:
    """Check what was asked for."""
    if isinstance(command, str) or not command or not all(isinstance(word, str) for word in command):
        raise SpecError(
            "COMMAND", command or "nothing", "the words of a command: charllm measure [flags] -- COMMAND ..."
        )
    for flag, seconds_s in (("--idle", idle), ("--cooldown", cooldown)):
        _check_number(flag, seconds_s, 0, LONGEST_WAIT_S, "seconds")
    _check_number("--rate", rate, SLOWEST_HZ, FASTEST_HZ, "readings per second")
    if not isinstance(repeats, int):
        raise SpecError("--repeats", repeats, f"a whole number from 1 to {MOST_REPEATS}")
    _check_number("--repeats", repeats, 1, MOST_REPEATS, "times")
    if not isinstance(telemetry, str):
        raise SpecError("--telemetry", telemetry, "auto, nvml, amdsmi, replay:FOLDER or none")
    check_host(host)
    address = "" if prometheus is None else str(prometheus)
    if address:
        parse_address(address)
    settings = (rate, telemetry, idle, cooldown, repeats, watch, address)
    asked = None if profile is None else parse_profile(str(profile))
    return Job(tuple(command), run_folder(out), *settings, plan, program=program, host=host, profile=asked)


def run_folder(out: Folder | None) -> Path:
    """Return the folder of a new run."""
    return Path("charllm-runs") / strftime("%Y%m%d-%H%M%S") if out is None else as_path(out, "--out")


def _check_number(flag: str, value: Any, low: float, high: float, unit: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise SpecError(flag, value, f"{low:g} to {high:g} {unit}")
