"""Why a run ended before its time, told from what is on disk: the head's verdict, Slurm's state, codes and logs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from charllm.measure.launchers.slurm import END_FILE, LOG, SETUP_FAILED
from charllm.measure.launchers.torchrun import rank_logs
from charllm.measure.logs.causes import find_cause
from charllm.measure.output import LOG_FILE
from charllm.measure.parts import Part
from charllm.measure.processes import signal_name
from charllm.measure.record import NODES, JobRecord, read_json

TAIL_BYTES = 1 << 16
CODES = {"time_out": 124, "node_loss": 1, "cancelled": 130, "preempted": 143, "refused": 2}
"""Exit codes of what is not the command's own doing."""
STATES = {
    "TIMEOUT": ("time_out", "Slurm ended the job at its time limit"),
    "DEADLINE": ("time_out", "Slurm ended the job at its deadline"),
    "PREEMPTED": ("preempted", "Slurm preempted the job"),
    "NODE_FAIL": ("node_loss", "Slurm lost a node of the job"),
    "BOOT_FAIL": ("node_loss", "a node of the job could not be started"),
    "OUT_OF_MEMORY": ("out_of_memory", "Slurm ended the job: it used more host memory than it had requested"),
    "CANCELLED": ("cancelled", "the job was cancelled"),
}
"""State of a Slurm job: what it means."""
OUT_OF_MEMORY = ("out-of-memory", "host-out-of-memory")
"""Causes that a log may name."""
CONSEQUENCE = re.compile(
    r"Connection (closed|reset) by peer|Broken pipe|Dist(Network|Store)Error|NCCL communicator was aborted"
    r"|remote process exited|Read timeout|ProcessGroupNCCL's watchdog|peer closed"
)
"""What ranks say when another one has gone: they are not where it began."""
ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):\s*\[\d+\]:.*?rank\s*:\s*(\d+)\s*\(local_rank.*?exitcode\s*:\s*(-?\d+)",
    re.DOTALL,
)
"""Of torchrun's report."""
TRACEBACK = "Traceback (most recent call last)"
KILLED, SIGNALLED = 128 + 9, 128


@dataclass(frozen=True, slots=True)
class Failure:
    """What ended a run: out_of_memory, crash, time_out, node_loss, cancelled, preempted or refused."""

    kind: str
    message: str
    code: int
    """Exit code of the whole."""
    node: str | None = None
    rank: int | None = None
    signal: str | None = None
    cause: str | None = None
    """What the log says of a crash: a kind of logs/causes.py:KINDS."""


class _Fault(NamedTuple):
    """A part that failed by itself."""

    part: Part
    rank: int | None
    code: int
    log: str
    """The end of what it had to say."""


def judge(folder: Path, job: JobRecord, parts: Sequence[Part]) -> Failure | None:
    """Return why a run failed; None where it did not, or where only its recording was cut off."""
    if not (parts and not parts[0].name):
        return _judge_nodes(folder, job, parts)
    code = job.details.get("exit_code")
    if not code:
        return None
    if job.details.get("timed_out"):
        return _fail("time_out", "time-out: the command was ended at its time limit")
    if job.details.get("interrupted"):
        return Failure("cancelled", "cancelled: the command was interrupted", int(code))
    return _describe(_fault(parts[0], int(code)))


def _judge_nodes(folder: Path, job: JobRecord, parts: Sequence[Part]) -> Failure | None:
    verdict = read_json(folder / NODES / END_FILE)
    kind = verdict.get("kind", "") if isinstance(verdict, dict) else ""
    state = str(job.details.get("slurm", {}).get("state", ""))
    if (folder / SETUP_FAILED).exists():
        return _fail("refused", f"--setup failed: {_tail(folder / SETUP_FAILED).strip()}")
    if kind in ("node_loss", "refused", "time_out"):
        return _fail(kind, f"{_name(kind)}{verdict['message']}", verdict.get("node") or None)
    if state in STATES and state != "CANCELLED":
        return _of_state(state, job)
    if kind == "cancelled" or job.details.get("cancelled"):
        return _fail("cancelled", "cancelled: the run was ended on request")
    faults = _faults(parts, verdict)
    if faults:
        return _describe(faults[0])
    signals = [stopped for part in parts if str(stopped := part.job.details.get("stopped", "")).startswith("SIG")]
    if state == "CANCELLED":
        return _of_state(state, job)
    if signals:
        return _fail("cancelled", f"cancelled: the nodes were ended by {signals[0]}")
    return _unfinished(folder, job, parts)


def _unfinished(folder: Path, job: JobRecord, parts: Sequence[Part]) -> Failure | None:
    """Judge a run whose nodes say nothing of a failure: whole, or cut off."""
    if not job.ended:
        return None
    if not parts:
        said = _tail(folder / LOG).strip().splitlines()
        words = f" (last log line: {said[-1]})" if said else ""
        where = f"no node has written into {folder}{words}; expected a folder that every node of the job can see"
        return _fail("refused", where)
    silent = [part.name for part in parts if not part.job.ended]
    if silent:
        return _fail("node_loss", f"node loss: connection lost to {', '.join(silent)}", silent[0])
    return None


def _of_state(state: str, job: JobRecord) -> Failure:
    kind, message = STATES[state]
    number = job.details.get("slurm", {}).get("job_id", "")
    return _fail(kind, f"{_name(kind)}{message} (job {number} is {state})")


def _name(kind: str) -> str:
    return "" if kind == "refused" else f"{kind.replace('_', ' ').replace('time out', 'time-out')}: "


def _fail(kind: str, message: str, node: str | None = None) -> Failure:
    return Failure(kind, message, CODES.get(kind, 1), node)


def _faults(parts: Sequence[Part], verdict: Any) -> list[_Fault]:
    """Return the parts that failed by themselves, the likeliest origin first."""
    events = verdict.get("events", []) if isinstance(verdict, dict) else []
    order = [event.get("node") for event in events]
    failed = [part for part in parts if part.job.details.get("exit_code") and not part.job.details.get("stopped")]
    failed.sort(key=lambda part: order.index(part.name) if part.name in order else len(order))
    faults = [_fault(part, int(part.job.details["exit_code"])) for part in failed]
    return sorted(faults, key=_origin)


def _origin(fault: _Fault) -> int:
    """Rank faults by how surely they are where it began."""
    if _ran_out(fault.log):
        return 0
    if fault.code > SIGNALLED:
        return 1
    return 3 if CONSEQUENCE.search(fault.log) else 2


def _fault(part: Part, code: int) -> _Fault:
    """Return which rank of a part failed first, with its last words; the part as a whole where no rank is known."""
    details = part.job.details
    first = int(details.get("node_rank", 0)) * int(details.get("ranks_per_node", 1))
    logs = {rank: "".join(map(_tail, paths)) for rank, paths in rank_logs(part.folder, first).items()}
    own = _tail(part.folder / LOG_FILE)
    for rank, text in logs.items():
        if _ran_out(text):
            return _Fault(part, rank, code, text)
    found = ROOT_CAUSE.search(own)
    if found is None:
        raised = [rank for rank, text in logs.items() if TRACEBACK in text and not CONSEQUENCE.search(text)]
        return _Fault(part, raised[0], code, logs[raised[0]]) if raised else _Fault(part, None, code, own)
    rank, rank_code = int(found[1]), int(found[2])
    return _Fault(part, rank, SIGNALLED - rank_code if rank_code < 0 else rank_code, logs.get(rank, own))


def _describe(fault: _Fault) -> Failure:
    who = "the command" if fault.rank is None else f"rank {fault.rank}"
    where = f" on node {fault.part.name}" if fault.part.name else ""
    node = fault.part.name or None
    told = find_cause([fault.log], fault.code)
    if told and told.kind in OUT_OF_MEMORY and _ran_out(fault.log):
        said = told.words[:200]
        return Failure("out_of_memory", f"out of memory: {who}{where}: {said}", fault.code, node, fault.rank)
    if fault.code > SIGNALLED:
        name = signal_name(fault.code - SIGNALLED)
        hint = " (by the kernel, where memory of the machine had run out?)" if fault.code == KILLED else ""
        message = f"crash: {who}{where} was ended by {name}{hint}"
        return Failure("crash", message, fault.code, node, fault.rank, name)
    last = next((line.strip() for line in reversed(fault.log.splitlines()) if line.strip()), "")
    said = told.words if told and told.kind != "unknown" else last
    words = f": {said[:200]}" if last else ""
    message = f"crash: {who}{where} ended with exit code {fault.code}{words}"
    return Failure("crash", message, fault.code, node, fault.rank, cause=told.kind if told else None)


def _ran_out(log: str) -> bool:
    """Tell whether a log says that memory ran out; how its process ended does not count."""
    told = find_cause([log], 1)
    return told is not None and told.kind in OUT_OF_MEMORY


def _tail(path: Path) -> str:
    """Return the end of a log; nothing where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
