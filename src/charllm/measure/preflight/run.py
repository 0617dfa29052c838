"""Collect the facts of every node, try an all-reduce over all ranks, and check."""

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from charllm.errors import CharllmError, SpecError
from charllm.measure.command_settings import PreflightSettings
from charllm.measure.logs.causes import find_cause
from charllm.measure.preflight.checks import FAILURE, NOT_READABLE, OK, Check, check_all
from charllm.measure.preflight.facts import ROOT, collect_facts
from charllm.spec.run import RunSpec
from charllm.units import GIGA, KILO

COLLECT_S, REACH_S = 120.0, 150.0
CPU_RANKS = 2
SRUN = ("srun", "--ntasks-per-node=1", "--kill-on-bad-exit=1")


class Preflight(NamedTuple):
    """What was found before a run."""

    checks: list[Check]
    nodes: list[dict[str, Any]]

    @property
    def failed(self) -> bool:
        """Whether a check failed."""
        return any(check.state == FAILURE for check in self.checks)


def check_machine(settings: PreflightSettings, run: RunSpec | None, *, allocated: bool) -> Preflight:
    """Check this machine, or the nodes of the Slurm allocation that we are in, for a run."""
    count = settings.nodes or (1 if run is None else run.cluster.nodes)
    if count == 1:
        nodes = [collect_facts(settings.telemetry, settings.out, ROOT)]
    else:
        nodes = _collect_by_slurm(settings, count, allocated=allocated)
    checks = check_all(nodes, run)
    if count > 1:
        checks.append(check_shared_folder(settings.out, nodes))
    return Preflight([*checks, check_reach(settings, count, nodes)], nodes)


def _collect_by_slurm(settings: PreflightSettings, count: int, *, allocated: bool) -> list[dict[str, Any]]:
    if not allocated:
        raise SpecError("--nodes", count, "1, or a Slurm allocation to run in: salloc --nodes N charllm preflight ...")
    words = [sys.executable, "-m", "charllm.measure.preflight.facts", "--telemetry", settings.telemetry]
    words += ["--folder", str(settings.out.absolute())]
    own = f'exec {shlex.join(words)} --name "$SLURMD_NODENAME"'
    done = _run([*SRUN, f"--nodes={count}", "sh", "-c", own], COLLECT_S)
    if done.returncode:
        failure = find_cause([done.stdout + done.stderr], done.returncode)
        raise CharllmError(f"srun could not look at {count} nodes: {failure.words if failure else done.returncode}")
    found = [json.loads(line) for line in done.stdout.decode(errors="replace").splitlines() if line.startswith("{")]
    return sorted(found, key=lambda node: str(node["node"]))


def check_shared_folder(folder: Path, nodes: Sequence[Mapping[str, Any]]) -> Check:
    """Compare the folder of the run on all nodes: a shared one has the same room everywhere."""
    rooms = {str(node["disk"]["folder"]): node["disk"]["free_bytes"] for node in nodes}
    free = [node["disk"]["free_bytes"] or 0.0 for node in nodes]
    alike = len(rooms) == 1 and max(free) - min(free) <= 0.01 * max(max(free), 1.0)
    advice = "choose a folder on a file system that all nodes share"
    told = f"{folder.absolute()} {'looks' if alike else 'does not look'} the same on {len(nodes)} nodes"
    return Check(
        "shared folder", OK if alike else FAILURE, "", told, *(("", "") if alike else ("one shared folder", advice))
    )


def check_reach(settings: PreflightSettings, count: int, nodes: Sequence[Mapping[str, Any]]) -> Check:
    """Let all ranks sum a tensor."""
    if not settings.reach:
        return Check("all-reduce", NOT_READABLE, "", "not asked for")
    if find_spec("torch") is None:
        return Check("all-reduce", NOT_READABLE, "", "torch is not installed")
    gpus = (
        min((len(node["gpus"]) for node in nodes), default=0) if settings.telemetry in ("auto", "nvml", "amdsmi") else 0
    )
    ranks = gpus or (CPU_RANKS if count == 1 else 1)
    module = ["-m", "charllm.measure.preflight.reach", *([] if gpus else ["--cpu"])]
    if count > 1:
        words = shlex.join([sys.executable, *module, "--head", str(nodes[0]["host"])])
        own = f'exec {words} --rank "$SLURM_PROCID" --ranks "$SLURM_NTASKS"'
        command = ["srun", f"--nodes={count}", f"--ntasks-per-node={ranks}", "sh", "-c", own]
    else:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *module]
    try:
        done = _run(["env", "OMP_NUM_THREADS=1", *command], REACH_S)
    except CharllmError as error:
        return Check("all-reduce", FAILURE, "", str(error), "an answer of all ranks", REACH_ADVICE)
    told = next(
        (line for line in done.stdout.decode(errors="replace").splitlines() if line.startswith('{"backend"')), None
    )
    if done.returncode or told is None:
        failure = find_cause([done.stdout + done.stderr], done.returncode or 1)
        words = f"{failure.kind}: {failure.words}" if failure else f"exit code {done.returncode}"
        return Check("all-reduce", FAILURE, "", words, "an answer of all ranks", REACH_ADVICE)
    return _judge_reach(json.loads(told))


REACH_ADVICE = "run it again with NCCL_DEBUG=INFO; check firewalls, NCCL_SOCKET_IFNAME and NCCL_IB_HCA"


def _judge_reach(told: Mapping[str, Any]) -> Check:
    rate = told["bytes"] / told["seconds_s"] / GIGA
    words = (
        f"{told['ranks']} ranks over {told['backend']}: {told['seconds_s'] * KILO:.3g} ms for 4 MiB ({rate:.3g} GB/s)"
    )
    if told["wrong"]:
        return Check(
            "all-reduce",
            FAILURE,
            "",
            "the sum is wrong",
            "the right sum",
            "a GPU or a link corrupts data: drain the node",
        )
    return Check("all-reduce", OK, "", words)


def _run(command: Sequence[str], limit_s: float) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(list(command), capture_output=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise CharllmError(f"no answer within {limit_s:g} s: {' '.join(command[:6])} ...") from None
    except OSError as error:
        raise CharllmError(f"cannot run {command[0]}: {error.strerror or error}") from None
