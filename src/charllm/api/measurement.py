"""Measure code of this process, or a command."""

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from time import strftime
from typing import Any

from charllm.api.keywords import Spec, as_path, build_request
from charllm.api.signature import public
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.measure.device import telemetry_gpus
from charllm.measure.host import check_host
from charllm.measure.job import LOCALLY, Job, complete, measure_job, prepare_folder, submit
from charllm.measure.launch import AFTER_S
from charllm.measure.launchers.plan import Plan
from charllm.measure.live.endpoint import parse_address
from charllm.measure.session import Session, measure_here
from charllm.result.result import RunResult

LONGEST_WAIT_S, MOST_REPEATS = 86_400.0, 1000
SLOWEST_HZ, FASTEST_HZ = 0.1, 1000.0
Folder = str | PathLike[str]


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
) -> AbstractContextManager[Session]:
    """Record power, clocks and temperature of every GPU that this process may use while a ``with`` block runs.

    Readings are taken `rate` times per second by a process of their own and stored in `out` (default
    ``charllm-runs/TIME``), `idle` seconds before the block and `cooldown` seconds after it included. `telemetry` is
    their source: auto, nvml, amdsmi, replay:FOLDER or none. `host` says what is read of the machine around the GPUs,
    once per second: auto (everything that can be read), none, or redfish:FILE. `watch` shows
    readings on stderr, `prometheus` ("[HOST:]PORT") serves them as metrics. Mark steps with
    ``job.step(tokens=...)`` and metrics are per step; after the block ``job.result`` is the run. With the `spec` of
    what the block trains (a table, a file or a result of `charllm.simulate`) MFU is known, too.

    >>> import charllm, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with charllm.measure(f"{folder}/run", telemetry="none", idle=0, cooldown=0) as job:
    ...         for batch in range(4):
    ...             job.step(tokens=1024)
    >>> job.result.origin, job.result.metrics.tokens_per_s > 0
    ('measured', True)
    """
    settings: dict[str, Any] = {"rate": rate, "telemetry": telemetry, "idle": idle, "cooldown": cooldown}
    job = build_job(sys.orig_argv, out, **settings, watch=watch, prometheus=prometheus, host=host)
    table = None if spec is None else resolve_run(build_request(spec, {})).as_table()
    return measure_here(job, telemetry_gpus(job.telemetry, os.environ), os.environ, table)


@public
def measure_command(
    command: Sequence[str],
    out: Folder | None = None,
    *,
    rate: float = 100.0,
    telemetry: str = "auto",
    idle: float = 2.0,
    cooldown: float = AFTER_S,
    repeats: int = 1,
    watch: bool = False,
    prometheus: str | int | None = None,
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
    host: str = "auto",
) -> RunResult:
    """Run a command and record power, clocks and temperature of every GPU it may use, as ``charllm measure`` does.

    With `launcher` torchrun a Python script or module runs as `ranks_per_node` ranks on this machine, with slurm on
    `nodes` nodes of a cluster, which records all of them on one time line. The command's exit code is in
    ``result.provenance["measurement"]["exit_code"]``, and why it failed beside it in ``["failure"]``.
    """
    settings: dict[str, Any] = {"rate": rate, "telemetry": telemetry, "idle": idle, "cooldown": cooldown}
    plan = build_plan(
        launcher=launcher,
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        gpus_per_node=gpus_per_node,
        time_limit=time_limit,
        partition=partition,
        account=account,
        time=time,
        slurm_args=slurm_args,
        setup=setup,
        prefix=prefix,
        shared=shared,
    )
    more: dict[str, Any] = {"repeats": repeats, "watch": watch, "prometheus": prometheus, "plan": plan, "host": host}
    return run_job(build_job(command, out, **settings, **more))[0]


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
    return measure_job(job, os.environ)


def submit_job(job: Job) -> str:
    """Start a job on a cluster and leave it; returns the name of the job."""
    job = complete(job, os.environ)
    prepare_folder(job.folder)
    return submit(job, job.folder, os.environ)[1].name


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
    host: str = "auto",
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
    folder = Path("charllm-runs") / strftime("%Y%m%d-%H%M%S") if out is None else as_path(out, "--out")
    return Job(tuple(command), folder, rate, telemetry, idle, cooldown, repeats, watch, address, plan, host=host)


def _check_number(flag: str, value: Any, low: float, high: float, unit: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise SpecError(flag, value, f"{low:g} to {high:g} {unit}")
