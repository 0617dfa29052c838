"""Why a job failed, told from its logs, its exit code and the state that Slurm gives it."""

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from charllm.errors import DoesNotFit, SpecError
from charllm.measure.logs.lines import Line, split_lines
from charllm.measure.logs.read import read_log

KINDS = {
    "out-of-memory": "a GPU ran out of memory: a smaller micro-batch, more recomputation or a higher degree is needed",
    "host-out-of-memory": "the host ran out of memory, and the kernel or Slurm ended the process",
    "gpu-lost": "a GPU failed (Xid, bus or memory error): drain the node and check the GPU",
    "time-limit": "the job reached its time limit",
    "node-failure": "a node failed or stopped answering",
    "preempted": "another job took the nodes",
    "cancelled": "the job was cancelled",
    "disk-full": "a disk or a quota is full",
    "driver": "the driver does not match the CUDA or ROCm libraries",
    "no-gpu": "the process sees no GPU",
    "missing-module": "a program, a Python module or a library is missing in the job's environment",
    "wrong-arguments": "the program does not accept its arguments",
    "nan-loss": "the loss or a gradient became NaN",
    "rendezvous": "the processes did not find each other at the start",
    "collective-timeout": "a collective did not finish in time: one rank hung, or a link is down",
    "collective-error": "a collective failed: another rank ended, or a link is down",
    "exception": "the program raised an exception",
    "killed": "the process was killed (signal 9): often by the host's out-of-memory killer",
    "crash": "the process crashed (segmentation fault, abort)",
    "unknown": "no line of the log says why",
}
"""Kind of failure: what it means."""


class Cause(NamedTuple):
    """Why a job failed."""

    kind: str
    """A name in KINDS."""
    rank: int | None
    """The first rank that failed, where the log says so."""
    node: str | None
    words: str
    """The line of the log that says so, or how the process ended."""

    @property
    def meaning(self) -> str:
        """What this kind of failure means, and what helps."""
        return KINDS[self.kind]


class _Place(NamedTuple):
    log: str
    line: Line


SLURM_STATES = {
    "TIMEOUT": "time-limit", "DEADLINE": "time-limit", "NODE_FAIL": "node-failure", "BOOT_FAIL": "node-failure",
    "PREEMPTED": "preempted", "OUT_OF_MEMORY": "host-out-of-memory",
}  # fmt: skip
"""States that settle why a job ended. CANCELLED and FAILED do not: Slurm cancels the rest of a job that failed."""
FIRST_CAUSES = {
    "gpu-lost": r"\bXid\b.{0,40}\d|fallen off the bus|GPU is lost|uncorrectable (?:ECC|NVLink) error|GPU reset begin|"
    r"Unable to determine the device handle|GPU requires reset|RmInitAdapter failed",
    "time-limit": r"DUE TO TIME LIMIT|DUE to TIME LIMIT",
    "node-failure": r"DUE TO NODE FAILURE|NODE_FAIL|Node failure on|DUE TO NODE|slurmd.{0,20}not responding",
    "preempted": r"DUE TO PREEMPTION",
    "out-of-memory": r"(?:CUDA|HIP|XPU|NPU) out of memory|OutOfMemoryError|hipErrorOutOfMemory|"
    r"cudaErrorMemoryAllocation|"
    r"(?:CUDA|HIP) error: out of memory|cudaMalloc\w* failed.{0,40}out of memory|CUBLAS_STATUS_ALLOC_FAILED|"
    r"[Cc]uda failure.{0,20}out of memory|Failed to CUDA (?:m|c)alloc|RESOURCE_EXHAUSTED: Out of memory|"
    r"does not fit on this GPU|[Hh]ip failure.{0,20}out of memory",
    "host-out-of-memory": r"oom[-_]kill|OOM Killed|OOMKilled|Out of memory: Killed process|can't allocate memory|"
    r"not enough memory: you tried to allocate|^MemoryError|Cannot allocate memory|std::bad_alloc",
    "disk-full": r"No space left on device|Disk quota exceeded",
    "driver": r"CUDA driver version is insufficient|driver on your system is too old|"
    r"forward compatibility was attempted on non supported|Driver/library version mismatch",
    "no-gpu": r"No CUDA GPUs are available|No HIP GPUs are available|no CUDA-capable device|"
    r"Found no NVIDIA driver|all CUDA-capable devices are busy|invalid device ordinal",
    "nan-loss": r"found (?:NaN|Inf|nan) in|[Ll]oss is (?:NaN|nan|Inf|inf)|NaN (?:loss|detected)|"
    r"nan (?:loss|encountered)|Unexpected result nan",
    "rendezvous": r"RendezvousTimeoutError|RendezvousConnectionError|RendezvousClosedError|EADDRINUSE|"
    r"[Aa]ddress already in use|client socket has timed out|failed to connect to.{0,80}(?:timed out|refused)",
}
"""Kind: what its lines hold. A cause that stands earlier wins over one that follows from it."""
LAST_CAUSES = {
    "collective-timeout": r"Watchdog caught collective operation timeout|collective operation timeout|"
    r"ran for \d+ milliseconds before timing out|Timed out waiting \d+ms|[NR]CCL.{0,40}[Tt]imed? ?out|"
    r"heartbeat monitor timed out",
    "collective-error": r"nccl(?:System|Remote|Internal|Invalid\w*|UnhandledCuda)Error|"
    r"NCCL (?:error|WARN.*[Ff]ail|communicator was aborted)|"
    r"DistBackendError|Connection (?:closed|reset) by (?:remote )?peer|\bgloo\b.{0,120}(?:[Ee]rror|closed)",
    "crash": r"Segmentation fault|SIGSEGV|SIGABRT|core dumped|SIGBUS|Memory access fault by GPU",
    "killed": r"exitcode\s*:\s*-9\b|SIGKILL|^Killed$",
    "cancelled": r"CANCELLED AT|JOB \d+ .{0,40}CANCELLED|STEP [\d.]+ .{0,40}CANCELLED|"
    r"SignalException: Process got signal: (?:15|2)|KeyboardInterrupt",
}
EXCEPTION_CAUSES = {
    "missing-module": r"^(?:ModuleNotFoundError|ImportError)\b",
}
OTHER_CAUSES = {
    "missing-module": r"error while loading shared libraries|: command not found|No module named |"
    r"can't open file .*No such file or directory|execve\(\): .*No such file",
    "wrong-arguments": r"error: (?:unrecognized arguments|the following arguments are required|argument )|"
    r"error: ambiguous option|"
    r"^charllm: .*: got .*; expected ",
}
CONSEQUENCES = re.compile(
    "|".join((LAST_CAUSES["collective-timeout"], LAST_CAUSES["collective-error"], LAST_CAUSES["cancelled"]))
)
"""Exceptions that usually follow from the failure of another rank."""
LAUNCHERS = re.compile(
    r"ChildFailedError|CalledProcessError|SignalException|subprocess\.|ProcessRaisedException|SystemExit"
)
EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Failure|Fault)\b|^AssertionError"
)
ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\)")
ROOT_RANK = re.compile(r"^\s*rank\s*:\s*(?P<rank>\d{1,9})")
ROOT_HOST = re.compile(r"^\s*host\s*:\s*(?P<node>\S+)")
RANK_IN_TEXT = re.compile(r"(?i)\[?\brank[ :=#]?\s?(?P<rank>\d{1,9})\b")
NODE_IN_TEXT = re.compile(
    r"\bON (?P<node>[\w.-]+) CANCELLED|slurmstepd-(?P<other>[\w.-]+):|(?:error|srun): (?P<third>[\w.-]+): task"
)
LONGEST_WORDS = 300
SIGNALS = {
    128 + number: number for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
}
KILLED = 128 + signal.SIGKILL


def find_cause(
    logs: Mapping[str, str | bytes] | Sequence[str | bytes], exit_code: int | None, slurm_state: str | None = None
) -> Cause | None:
    """Tell why a job failed; None where it did not.

    `logs` are its outputs, by the name of their node where there are several. `exit_code` is None where the job was
    lost without one; `slurm_state` is a state of sacct, such as NODE_FAIL.
    """
    state = (slurm_state or "").split(" ")[0].rstrip("+").upper()
    if exit_code == 0 and state in ("", "COMPLETED"):
        return None
    named = logs.items() if isinstance(logs, Mapping) else (("", log) for log in logs)
    datas = {name: log.encode("utf-8", "surrogateescape") if isinstance(log, str) else log for name, log in named}
    places = [_Place(name, line) for name, data in datas.items() for line in split_lines(data)]
    root_rank, root_node = _root_cause(places)
    if state in SLURM_STATES:
        kind = SLURM_STATES[state]
        told = _find(places, {**FIRST_CAUSES, **LAST_CAUSES}[kind]) if kind in FIRST_CAUSES else None
        return _failure(kind, told, root_rank, root_node) if told else Cause(kind, None, None, f"Slurm: {state}")
    for causes in (FIRST_CAUSES, None, OTHER_CAUSES, LAST_CAUSES):
        failure = (
            _exception(places, datas, root_rank, root_node)
            if causes is None
            else _by_cause(places, causes, root_rank, root_node)
        )
        if failure:
            return failure
    return _by_exit_code(exit_code, state, root_rank, root_node, places)


def _by_cause(
    places: Sequence[_Place], causes: Mapping[str, str], root_rank: int | None, root_node: str | None
) -> Cause | None:
    for kind, pattern in causes.items():
        told = _find(places, pattern)
        if told:
            return _failure(kind, told, root_rank, root_node)
    return None


def _find(places: Sequence[_Place], pattern: str) -> _Place | None:
    search = re.compile(pattern).search
    return next((place for place in places if search(place.line.text)), None)


def _failure(kind: str, told: _Place, root_rank: int | None, root_node: str | None) -> Cause:
    text = told.line.text.strip()
    stated = RANK_IN_TEXT.search(text)
    rank = told.line.rank if told.line.rank is not None else int(stated["rank"]) if stated else root_rank
    named = NODE_IN_TEXT.search(text)
    node = told.line.node or (next(filter(None, named.groups())) if named else None) or told.log or root_node
    return Cause(kind, rank, node, text[:LONGEST_WORDS])


def _root_cause(places: Sequence[_Place]) -> tuple[int | None, str | None]:
    """Return the rank and the node that torchrun saw fail first."""
    for index, place in enumerate(places):
        if ROOT_CAUSE.search(place.line.text):
            block = [each.line.text for each in places[index : index + 8]]
            rank = next((found for text in block if (found := ROOT_RANK.match(text))), None)
            node = next((found for text in block if (found := ROOT_HOST.match(text))), None)
            return int(rank["rank"]) if rank else None, node["node"] if node else None
    return None, None


def _exception(
    places: Sequence[_Place], datas: Mapping[str, bytes], root_rank: int | None, root_node: str | None
) -> Cause | None:
    """Return the first exception that no other rank's failure explains, of those after the last step."""
    raised = list(_exceptions(places))
    causes = [place for place in raised if not CONSEQUENCES.search(place.line.text)]
    if not causes:
        return None
    last_step = {name: max((step.end_byte for step in read_log(data).steps), default=0) for name, data in datas.items()}
    late = [place for place in causes if place.line.end_byte > last_step[place.log]] or causes
    of_root = [place for place in late if place.line.rank == root_rank and root_rank is not None]
    told = (of_root or late)[0]
    text = told.line.text.strip()
    kind = next((kind for kind, pattern in EXCEPTION_CAUSES.items() if re.search(pattern, text)), "exception")
    return _failure(kind, told, root_rank, root_node)


def _exceptions(places: Sequence[_Place]) -> Iterator[_Place]:
    """List the last lines of tracebacks, each of the rank whose traceback it is."""
    open_tracebacks: set[tuple[str, int | None]] = set()
    for place in places:
        speaker = (place.log, place.line.rank)
        text = place.line.text
        if "Traceback (most recent call last)" in text:
            open_tracebacks.add(speaker)
        elif speaker in open_tracebacks and EXCEPTION.match(text):
            open_tracebacks.discard(speaker)
            if not LAUNCHERS.search(text):
                yield place


def _by_exit_code(
    exit_code: int | None, state: str, root_rank: int | None, root_node: str | None, places: Sequence[_Place]
) -> Cause:
    last = places[-1].line.text.strip()[:LONGEST_WORDS] if places else "nothing was printed"
    if state == "CANCELLED":
        return Cause("cancelled", root_rank, root_node, f"Slurm: {state}")
    if exit_code == KILLED:
        return Cause("killed", root_rank, root_node, f"exit code {exit_code}: killed by signal 9; last line: {last}")
    if exit_code in SIGNALS:
        name = signal.Signals(SIGNALS[exit_code]).name
        return Cause("crash", root_rank, root_node, f"exit code {exit_code}: {name}; last line: {last}")
    if exit_code == DoesNotFit.exit_code and last.startswith("charllm:"):
        return Cause("out-of-memory", root_rank, root_node, last)
    if exit_code == SpecError.exit_code and re.search(
        r"(?i)\busage\b|argument", " ".join(p.line.text for p in places[-20:])
    ):
        return Cause("wrong-arguments", root_rank, root_node, last)
    if exit_code in (126, 127):
        return Cause(
            "missing-module",
            root_rank,
            root_node,
            f"exit code {exit_code}: the command cannot be run; last line: {last}",
        )
    ended = "lost without an exit code" if exit_code is None else f"exit code {exit_code}"
    return Cause("unknown", root_rank, root_node, f"{ended}; last line: {last}")
