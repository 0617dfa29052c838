"""The processes of a job, wherever they went, and how they are ended.

A process is of a job when it descends from the job's command, has the folder of the job's marks in its environment, or
is in a session that one of them has opened (proc(5), credentials(7)).

Ignores: what a daemon does for a job (docker, ssh, systemd-run), and processes without that environment that a process
of the job left behind, in a session of their own, before anyone looked.
"""

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from charllm.mark import FOLDER_VARIABLE
from charllm.measure.link import TURN_S, pause

PROC = Path("/proc")
STOP_S, KILLED_S = 10.0, 5.0
"""Left to a process to end by itself, and until one that was killed must be gone."""


class Process(NamedTuple):
    """A process as the kernel shows it."""

    number: int
    started: int
    """Ticks since the machine was started: a number may be that of another process later."""
    parent: int
    group: int
    session: int
    name: str

    @property
    def identity(self) -> tuple[int, int]:
        """What no other process has."""
        return self.number, self.started


class EndedProcesses(NamedTuple):
    """What became of the processes of a job that were ended: their names and numbers."""

    ended_processes: str = ""
    """Those outside the process group of the command."""
    left_processes: str = ""
    """Those that could not be ended."""


class JobProcesses:
    """The processes of a job whose command runs as a child of ours."""

    def __init__(self, command: int, marks_folder: Path) -> None:
        self._marker = f"{FOLDER_VARIABLE}={marks_folder}".encode()
        found = _read_process(PROC / str(command))
        self._group = found.group if found else command
        self._known = {found.identity} if found else set()

    def find(self) -> list[Process]:
        """Return those that run; once found, a process is known whatever becomes of its parents."""
        running = {process.number: process for process in map(_read_process, PROC.glob("[0-9]*")) if process}
        running.pop(os.getpid(), None)
        members = {
            number: process
            for number, process in running.items()
            if process.identity in self._known or self._marker in _environment(number)
        }
        own_session, before = os.getsid(0), -1
        while len(members) > before:
            before = len(members)
            sessions = {process.session for process in members.values() if process.session not in (own_session, 0)}
            # A session whose leader is somebody else's is not the job's.
            sessions = {session for session in sessions if session in members or session not in running}
            found = {
                number: process
                for number, process in running.items()
                if process.parent in members or process.session in sessions
            }
            members = {**members, **found}
        self._known = {process.identity for process in members.values()}
        return list(members.values())

    def end(self) -> EndedProcesses:
        """End all of them: first politely, then at once."""
        found: dict[tuple[int, int], Process] = {}
        running: list[Process] = []
        for number, limit_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, KILLED_S)):
            end_s, told = time.monotonic() + limit_s, set[tuple[int, int]]()
            while running := self.find():
                for process in running:
                    found[process.identity] = process
                    if process.identity not in told:
                        _send(process, number)
                told |= {process.identity for process in running}
                if time.monotonic() > end_s:
                    break
                pause(TURN_S)
        others = [process for process in found.values() if process.group != self._group]
        return EndedProcesses(_name(others), _name(running))


def _read_process(place: Path) -> Process | None:
    """Return a process; None for one that has ended."""
    try:
        head, _, tail = (place / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
    except OSError:
        return None
    number, _, name = head.partition(" (")
    words = tail.split()
    if words[0] in "ZX":
        return None
    return Process(int(number), int(words[19]), int(words[1]), int(words[2]), int(words[3]), name)


def _environment(process: int) -> list[bytes]:
    """Return the variables that a process was started with; none of one that is not ours to read."""
    try:
        return (PROC / str(process) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _send(process: Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.number, number)
        # One that is stopped ends when it goes on.
        os.kill(process.number, signal.SIGCONT)


def _name(processes: Sequence[Process]) -> str:
    """Name processes without their arguments, which may hold secrets."""
    return ", ".join(f"{process.name} ({process.number})" for process in sorted(processes))


def signal_name(number: int) -> str:
    """Return a signal's name: SIGKILL for 9."""
    return next((known.name for known in signal.Signals if known == number), f"signal {number}")
