"""The sampler beside a job: started, kept alive while the job runs, and ended.

One that was killed is started again, and one that was stopped goes on; `sampler-restarts.json` says when.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from charllm.measure.processes import signal_name
from charllm.measure.record import read_json
from charllm.measure.recording import cut_torn_row
from charllm.measure.settings import MeasureSettings
from charllm.measure.telemetry.source import TelemetryError
from charllm.result.files import SAMPLES_FILE
from charllm.result.store import write_text

RESTARTS_FILE = "sampler-restarts.json"
READY_S, STOP_S = 30.0, 10.0
MOST_RESTARTS = 100
NO_GPU = "none"


class Restart(NamedTuple):
    """A sampler that did not go on by itself."""

    at_s: float
    """When it was found, monotonic."""
    why: str
    """What had happened, and what was done."""


class Sampler:
    """The sampler beside a job, on GPUs by UUID or on all."""

    def __init__(self, folder: Path, settings: MeasureSettings, gpus: Sequence[str] | None = None) -> None:
        command = [sys.executable, "-m", "charllm.measure.sampler", str(folder), "--telemetry", settings.telemetry]
        command += ["--rate", str(settings.rate_hz), "--gpus", "" if gpus is None else ",".join(gpus) or NO_GPU]
        command += ["--host", settings.host]
        if settings.counters_s is not None:
            command += ["--counters", str(settings.counters_s)]
        self._command, self._folder = command, folder
        self._restarts: list[Restart] = []
        self._process: subprocess.Popen[str] | None = None
        self._ending, self._starting = threading.Event(), threading.Lock()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Start sampling; returns when the first row is written."""
        self._process = self._launch()
        self._command += ["--began", str(time.monotonic())]
        self._watcher.start()

    def end(self) -> None:
        """End sampling, and see it gone."""
        self._ending.set()
        with self._starting:
            if self._process is not None:
                _end(self._process)
        if self._watcher.is_alive():
            self._watcher.join()

    def _launch(self) -> "subprocess.Popen[str]":
        with (self._folder / "sampler.log").open("a+", encoding="utf-8") as errors:
            # In a session of its own: signals to the job's process group are not for the sampler.
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
            if not _is_ready(process):
                _end(process)
                errors.seek(0)
                raise TelemetryError(f"the sampler did not start: {_last_words(errors.read())}")
        return process

    def _watch(self) -> None:
        """Keep the sampler going until it is ended; one that cannot be started again is left."""
        while self._process is not None and len(self._restarts) < MOST_RESTARTS:
            stopped, at_s = _await_stop_or_end(self._process.pid), time.monotonic()
            with self._starting:
                if self._ending.is_set():
                    return
                why = self._go_on(self._process) if stopped else self._start_again(self._process)
                self._note(Restart(at_s, why))

    def _go_on(self, process: "subprocess.Popen[str]") -> str:
        process.send_signal(signal.SIGCONT)
        return "the sampler was stopped, and went on"

    def _start_again(self, process: "subprocess.Popen[str]") -> str:
        _end(process)
        code = process.returncode
        why = f"killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        cut_torn_row(self._folder / SAMPLES_FILE)
        try:
            self._process = self._launch()
        except (TelemetryError, OSError) as error:
            self._process = None
            return f"the sampler was {why} and could not be started again ({error})"
        return f"the sampler was {why} and started again"

    def _note(self, restart: Restart) -> None:
        self._restarts.append(restart)
        with contextlib.suppress(OSError):
            table = [restart._asdict() for restart in self._restarts]
            write_text(json.dumps(table, indent=1), self._folder / RESTARTS_FILE)


def read_restarts(folder: Path) -> list[Restart]:
    """Return the restarts of a record's sampler, as far as they can be read."""
    table = read_json(folder / RESTARTS_FILE)
    found = []
    for row in table if isinstance(table, list) else []:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            found.append(Restart(float(row["at_s"]), str(row["why"])))
    return found


@contextlib.contextmanager
def sampling(folder: Path, settings: MeasureSettings, gpus: Sequence[str] | None = None) -> Iterator[None]:
    """Run the sampler beside what happens inside; it ends even when that fails."""
    sampler = Sampler(folder, settings, gpus)
    sampler.start()
    try:
        yield
    finally:
        sampler.end()


def _await_stop_or_end(process: int) -> bool:
    """Wait until a child is stopped (true) or ends (false)."""
    try:
        found = os.waitid(os.P_PID, process, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        if found is None or found.si_code != os.CLD_STOPPED:
            return False
        # Taken, so that it is reported once; the end of a process is left for the one who waits for it.
        os.waitid(os.P_PID, process, os.WSTOPPED | os.WNOHANG)
    except ChildProcessError:
        return False
    return True


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
    with contextlib.suppress(ProcessLookupError):
        sampler.send_signal(signal.SIGCONT)
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
