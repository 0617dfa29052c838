"""Run cases on this machine: in this process, or in several; a killed one costs its case and nothing else."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator

from charllm.errors import CharllmError
from charllm.sweep.case import Task, fail_case, run_case
from charllm.sweep.folder import read_case
from charllm.sweep.outcome import Outcome
from charllm.sweep.runners.work import Ended, Work

Worker = subprocess.Popen[str]


def run_locally(work: Work) -> Generator[Ended, None, None]:
    """Yield outcomes as cases end."""
    if (work.workers or 1) > 1:
        return _run_in_processes(work, min(work.workers or 1, len(work.numbers)))
    return ((number, run_case(work.task(number))) for number in work.numbers)


def _run_in_processes(work: Work, workers: int) -> Generator[Ended, None, None]:
    """Yield outcomes as cases end; whatever ends this, no worker outlives it."""
    waiting = iter(work.numbers)
    busy: dict[Worker, tuple[int, Task]] = {}
    idle: list[Worker] = []
    try:
        while True:
            while len(busy) < workers and (number := next(waiting, None)) is not None:
                worker = _take(idle) or start_worker(work.lock)
                busy[worker] = number, work.task(number)
                _send(worker, busy[worker][1])
            if not busy:
                return
            ready, _, _ = select.select([worker.stdout for worker in busy if worker.stdout], [], [])
            for worker in [worker for worker in busy if worker.stdout in ready]:
                number, task = busy[worker]
                outcome = _receive(worker, task)
                del busy[worker]
                if worker.returncode is None:
                    idle.append(worker)
                yield number, outcome
    finally:
        for worker in (*busy, *idle):
            worker.kill()
        for worker in (*busy, *idle):
            _close(worker)


def _take(idle: list[Worker]) -> Worker | None:
    """Return a worker that waits for a case, if there is one; those that were killed meanwhile are dropped."""
    while idle:
        worker = idle.pop()
        if worker.poll() is None:
            return worker
        _close(worker)
    return None


def start_worker(lock: int | None) -> Worker:
    """Start a worker that holds the lock too; an interrupt is for us alone, from its first moment on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "charllm.sweep.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            pass_fds=() if lock is None else (lock,),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send(worker: Worker, task: Task) -> None:
    sent = {"case": list(task.case), "folder": task.folder and str(task.folder), "signals": task.signals}
    # A worker that has been killed is found when its reply is read.
    with contextlib.suppress(BrokenPipeError):
        if worker.stdin is not None:
            worker.stdin.write(json.dumps(sent) + "\n")
            worker.stdin.flush()


def _receive(worker: Worker, task: Task) -> Outcome:
    """Return what a worker says of its case, or how the worker ended."""
    line = worker.stdout.readline() if worker.stdout is not None else ""
    if line.endswith("\n"):
        reply = json.loads(line)
        if "error" in reply:
            raise CharllmError(reply["error"])
        return Outcome(**reply["outcome"])
    code = _close(worker)
    # It may have been killed after it had stored its case.
    stored = read_case(task.folder) if task.folder is not None else None
    if stored is not None:
        return stored
    if code >= 0:
        raise CharllmError(f"a worker process ended with exit code {code}")
    name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return fail_case(task.case, f"the worker process was killed by {name}{hint}")


def _close(worker: Worker) -> int:
    """Close the pipes of a worker that ends, and return its exit code."""
    with contextlib.suppress(BrokenPipeError):
        if worker.stdin is not None:
            worker.stdin.close()
    if worker.stdout is not None:
        worker.stdout.close()
    return worker.wait()
