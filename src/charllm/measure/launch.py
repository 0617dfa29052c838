"""Run a command as it is: its signals, its output and its end; and which GPUs it may see."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from charllm.errors import CharllmError, SpecError
from charllm.mark import FOLDER_VARIABLE
from charllm.measure.output import kept_output
from charllm.measure.processes import EndedProcesses, JobProcesses

UNBUFFERED = "PYTHONUNBUFFERED"
"""Python holds lines back where it does not write to a terminal; their times would be late."""
VISIBLE_VARIABLES = {
    "amdsmi": (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")),
}
"""Telemetry source: variables that hide GPUs, one after the other; of a group the first that is set counts. ROCm's
runtime hides GPUs from HIP, which numbers those that are left (rocm.docs.amd.com, GPU isolation techniques)."""
COMMAND_NOT_FOUND, COMMAND_NOT_RUNNABLE, TIMED_OUT = 127, 126, 124
"""Exit codes as of a shell, and of timeout(1)."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PASSED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)
"""Signals a command gets from us; batch systems announce the end of a job by the last two."""
INSISTING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
AGAIN_S = 1.0
"""One of these that comes this long after the first ends what has not ended by then: an interrupt may be routine, and
one signal may reach us twice at once."""


class CommandError(CharllmError):
    """The command could not be started."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Ended(NamedTuple):
    """How a command ended."""

    exit_code: int
    interrupted: bool = False
    """Whether we were asked to end while it ran."""
    timed_out: bool = False
    """Whether it was ended at its time limit."""
    ended_processes: str = ""
    """What it had started in other process groups and was ended after it."""
    left_processes: str = ""
    """What it had started and could not be ended."""


def run_command(
    command: Sequence[str], marks_folder: Path, environment: Mapping[str, str], limit_s: float | None = None
) -> Ended:
    """Run a command, show its output and keep it in the folder, pass signals on, and tell how it ended.

    One that was interrupted or has reached its time limit leaves nothing behind that could be found.
    """
    passing = _Passing()
    folder = marks_folder.absolute()
    variables = {UNBUFFERED: "1", **environment, FOLDER_VARIABLE: str(folder)}
    with _handling(PASSED, passing.receive), kept_output(marks_folder) as streams:
        try:
            child = subprocess.Popen(list(command), env=variables, stdout=streams.stdout, stderr=streams.stderr)
        except FileNotFoundError:
            raise CommandError(f"command not found: {command[0]}", COMMAND_NOT_FOUND) from None
        except OSError as error:
            raise CommandError(f"cannot run {command[0]}: {error.strerror or error}", COMMAND_NOT_RUNNABLE) from None
        processes = JobProcesses(child.pid, folder)
        passing.attach(child, processes)
        streams.started()
        timed_out = _has_timed_out(child, limit_s)
        interrupted = not set(ENDING).isdisjoint(passing.received)
        gone = processes.end() if timed_out or interrupted else EndedProcesses()
        if timed_out:
            # It is gone, except where there is no /proc to find it by.
            child.kill()
            child.wait()
    code = TIMED_OUT if timed_out else child.returncode
    return Ended(128 - code if code < 0 else code, interrupted, timed_out, *gone)


def _has_timed_out(child: "subprocess.Popen[bytes]", limit_s: float | None) -> bool:
    """Wait for the end of a command or of its time."""
    try:
        child.wait(limit_s)
    except subprocess.TimeoutExpired:
        return True
    return False


class _Passing:
    """Hands signals to a command, so that it ends as it likes and we can wait for it; early ones are kept for it."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._child: subprocess.Popen[bytes] | None = None
        self._processes: JobProcesses | None = None
        self._asked_s: float | None = None

    def attach(self, child: "subprocess.Popen[bytes]", processes: JobProcesses) -> None:
        self._child, self._processes = child, processes
        for number in self.received:
            child.send_signal(number)

    def receive(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)
        if self._child is not None and self._processes is not None:
            if number in ENDING:
                # While their parents live, all that the command has started can be found.
                self._processes.find()
            if not _sent_by_terminal(number):
                self._child.send_signal(number)
            if number in INSISTING:
                self._insist(self._processes)

    def _insist(self, processes: JobProcesses) -> None:
        now_s = time.monotonic()
        self._asked_s = self._asked_s or now_s
        if now_s - self._asked_s > AGAIN_S:
            processes.end()


def _sent_by_terminal(number: int) -> bool:
    """Tell whether a signal has reached the command already: Ctrl-C and Ctrl-\\ go to the whole foreground group."""
    if number not in (signal.SIGINT, signal.SIGQUIT):
        return False
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


@contextlib.contextmanager
def _handling(numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle signals for a while."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def wait_idle(seconds_s: float) -> tuple[float, float]:
    """Let the machine be idle for a while and return that window, on the monotonic clock."""
    start_s = time.monotonic()
    time.sleep(seconds_s)
    return start_s, time.monotonic()


def cool_down(seconds_s: float) -> tuple[tuple[float, float], bool]:
    """Wait after a command; a signal only cuts this short, for the command's own record is whole.

    Returns the window, and whether it was cut short.
    """
    start_s = time.monotonic()
    ended = threading.Event()
    with _handling(ENDING, lambda _number, _frame: ended.set()):
        cut_short = ended.wait(seconds_s)
    return (start_s, time.monotonic()), cut_short


def visible_gpus(environment: Mapping[str, str], uuids: Sequence[str], source: str = "nvml") -> list[str]:
    """Return the GPUs a job may see, by UUID: those that the variables of its vendor list, by number or by UUID."""
    chosen = list(uuids)
    for variables in VISIBLE_VARIABLES.get(source, (("CUDA_VISIBLE_DEVICES",),)):
        given = next((name for name in variables if name in environment), None)
        if given is not None:
            chosen = _choose(given, environment[given], chosen)
    return chosen


def _choose(variable: str, asked: str, uuids: Sequence[str]) -> list[str]:
    """Return the GPUs that one variable lists, of those that are left."""
    chosen: list[str] = []
    for word in (part.strip() for part in asked.split(",")):
        if word.startswith("MIG-"):
            raise SpecError(variable, asked, "whole GPUs: a MIG slice has no power reading")
        if word.isdecimal():
            matches = list(uuids[int(word) : int(word) + 1])
        else:
            matches = [uuid for uuid in uuids if word and uuid.startswith(word)]
        if len(matches) != 1:
            # CUDA and HIP too stop at the first name they do not know.
            break
        chosen += matches
    return list(dict.fromkeys(chosen))
