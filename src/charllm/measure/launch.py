"""Start the sampler and a command beside each other, and end both as they should."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from charllm.errors import CharllmError, SpecError
from charllm.mark import FOLDER_VARIABLE
from charllm.measure.output import kept_output
from charllm.measure.recording import cut_torn_row
from charllm.measure.settings import MeasureSettings
from charllm.measure.telemetry.source import TelemetryError
from charllm.result.files import SAMPLES_FILE

READY_S, STOP_S = 30.0, 10.0
MOST_RESTARTS = 100
NO_GPU = "none"
UNBUFFERED = "PYTHONUNBUFFERED"
"""Python holds lines back where it does not write to a terminal; their times would be late."""
VISIBLE_VARIABLES = {
    "amdsmi": (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")),
}
"""Telemetry source: variables that hide GPUs, one after the other; of a group the first that is set counts. ROCm's
runtime hides GPUs from HIP, which numbers those that are left (rocm.docs.amd.com, GPU isolation techniques)."""
COMMAND_NOT_FOUND, COMMAND_NOT_RUNNABLE, TIMED_OUT = 127, 126, 124
"""Exit codes as of a shell, and of timeout(1)."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PASSED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)
"""Signals a command gets from us; batch systems announce the end of a job by the last two."""


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


class Restart(NamedTuple):
    """A sampler that ended before its time and was started again."""

    at_s: float
    """When it was found ended, monotonic."""
    ready_s: float
    """When the next one had written its first row."""
    why: str


class Sampler:
    """The sampler beside a job, on GPUs by UUID or on all."""

    def __init__(self, folder: Path, settings: MeasureSettings, gpus: Sequence[str] | None = None) -> None:
        command = [sys.executable, "-m", "charllm.measure.sampler", str(folder), "--telemetry", settings.telemetry]
        command += ["--rate", str(settings.rate_hz), "--gpus", "" if gpus is None else ",".join(gpus) or NO_GPU]
        command += ["--host", settings.host]
        if settings.counters_s is not None:
            command += ["--counters", str(settings.counters_s)]
        self._command, self._folder = command, folder
        self._process: subprocess.Popen[str] | None = None
        self.restarts: list[Restart] = []

    def start(self) -> None:
        """Start sampling; returns when the first row is written."""
        with (self._folder / "sampler.log").open("a+", encoding="utf-8") as errors:
            # In a session of its own: signals to the job's process group are not for the sampler.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
            if not _is_ready(self._process):
                self.end()
                errors.seek(0)
                raise TelemetryError(f"the sampler did not start: {_last_words(errors.read())}")

    def end(self) -> None:
        """End sampling, and see it gone."""
        if self._process is not None:
            _end(self._process)
            self._process = None

    def revive(self) -> None:
        """Start a sampler that was killed once more, and note the gap; one that cannot be started is left."""
        if self._process is None or self._process.poll() is None or len(self.restarts) >= MOST_RESTARTS:
            return
        code, at_s = self._process.returncode, time.monotonic()
        why = f"killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        _end(self._process)
        cut_torn_row(self._folder / SAMPLES_FILE)
        try:
            self.start()
        except TelemetryError as error:
            self._process = None
            why = f"{why}; {error}"
        self.restarts.append(Restart(at_s, time.monotonic(), why))


@contextlib.contextmanager
def sampling(folder: Path, settings: MeasureSettings, gpus: Sequence[str] | None = None) -> Iterator[Sampler]:
    """Run the sampler beside what happens inside; it ends even when that fails."""
    sampler = Sampler(folder, settings, gpus)
    try:
        sampler.start()
        yield sampler
    finally:
        sampler.end()


def signal_name(number: int) -> str:
    """Return a signal's name: SIGKILL for 9."""
    return next((known.name for known in signal.Signals if known == number), f"signal {number}")


def _is_ready(sampler: "subprocess.Popen[str]") -> bool:
    """Wait for the sampler's first row."""
    if sampler.stdout is None:
        return False
    answered, _, _ = select.select([sampler.stdout], [], [], READY_S)
    return bool(answered) and sampler.stdout.readline().strip() == "ready"


def _end(sampler: "subprocess.Popen[str]") -> None:
    """Close the sampler's input, which ends it, and see it gone."""
    with contextlib.suppress(BrokenPipeError):
        if sampler.stdin is not None:
            sampler.stdin.close()
    try:
        sampler.wait(STOP_S)
    except subprocess.TimeoutExpired:
        sampler.kill()
        sampler.wait()
    if sampler.stdout is not None:
        sampler.stdout.close()


def _last_words(log: str) -> str:
    """Return the last line of a log, without what only says who speaks."""
    lines = log.strip().splitlines() or ["it ended without a message"]
    return lines[-1].removeprefix("charllm: sampler: ")


def run_command(
    command: Sequence[str], marks_folder: Path, environment: Mapping[str, str], limit_s: float | None = None
) -> Ended:
    """Run a command, show its output and keep it in the folder, pass signals on, and tell how it ended."""
    passing = _Passing()
    variables = {UNBUFFERED: "1", **environment, FOLDER_VARIABLE: str(marks_folder.absolute())}
    with _handling(PASSED, passing.receive), kept_output(marks_folder) as streams:
        try:
            child = subprocess.Popen(list(command), env=variables, stdout=streams.stdout, stderr=streams.stderr)
        except FileNotFoundError:
            raise CommandError(f"command not found: {command[0]}", COMMAND_NOT_FOUND) from None
        except OSError as error:
            raise CommandError(f"cannot run {command[0]}: {error.strerror or error}", COMMAND_NOT_RUNNABLE) from None
        passing.attach(child)
        streams.started()
        code, timed_out = _wait(child, limit_s)
    code = TIMED_OUT if timed_out else code
    return Ended(128 - code if code < 0 else code, not set(ENDING).isdisjoint(passing.received), timed_out)


def _wait(child: "subprocess.Popen[bytes]", limit_s: float | None) -> tuple[int, bool]:
    """Wait for a command, and end it at its time limit: first politely, then at once."""
    try:
        return child.wait(limit_s), False
    except subprocess.TimeoutExpired:
        child.terminate()
    try:
        return child.wait(STOP_S), True
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait(), True


class _Passing:
    """Hands signals to a command, so that it ends as it likes and we can wait for it; early ones are kept for it."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._child: subprocess.Popen[bytes] | None = None

    def attach(self, child: "subprocess.Popen[bytes]") -> None:
        self._child = child
        for number in self.received:
            child.send_signal(number)

    def receive(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)
        if self._child is not None and not _sent_by_terminal(number):
            self._child.send_signal(number)


def _sent_by_terminal(number: int) -> bool:
    """Tell whether an interrupt has reached the command already: Ctrl-C goes to the whole foreground group."""
    if number != signal.SIGINT:
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
