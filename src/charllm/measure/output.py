"""The output of a command: shown as it comes, kept in a file, with the time at which each part of it came."""

import bisect
import contextlib
import fcntl
import os
import pty
import termios
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from charllm.units import NANO, whole_number

LOG_FILE, TIMES_FILE = "command.log", "command-times.csv"
COLUMNS = "start_byte,monotonic_ns\n"
CHUNK_BYTES = 1 << 16
CLOSEST_NS = 1_000_000
"""Output that follows sooner than this has the time of what came before: a millisecond is enough for steps."""
LINGER_S = 2.0
"""A process that a command leaves behind may hold its output open; nobody waits for it longer."""


class _Kept:
    """The log of a run and the times of its bytes; both streams of a command write into it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = (folder / LOG_FILE).open("ab", buffering=0)
        self._times = (folder / TIMES_FILE).open("a", buffering=1, encoding="utf-8")
        self._lock, self._size, self._last_ns = threading.Lock(), 0, -CLOSEST_NS
        self._times.write(COLUMNS)

    def add(self, data: bytes) -> None:
        """Append a piece; a disk that is full must not stop the command."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            now_ns = time.monotonic_ns()
            if now_ns - self._last_ns >= CLOSEST_NS:
                self._times.write(f"{self._size},{now_ns}\n")
                self._last_ns = now_ns
            self._log.write(data)
            self._size += len(data)

    def close(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._log.close()
            self._times.close()


class Streams:
    """Where a command writes to: its standard output and error."""

    def __init__(self, kept: _Kept, *, shown: bool) -> None:
        self._kept, self._shown = kept, shown
        self._threads: list[threading.Thread] = []
        self._ends: list[int] = []
        self.stdout, self.stderr = self._open(1), self._open(2)

    def _open(self, number: int) -> int:
        ours, theirs = _open_pair(number) if self._shown else os.pipe()
        self._ends.append(theirs)
        thread = threading.Thread(target=self._pass_on, args=(ours, number), daemon=True)
        thread.start()
        self._threads.append(thread)
        return theirs

    def _pass_on(self, source: int, target: int) -> None:
        """Hand output on until the command and all it has started have closed it."""
        shown = self._shown
        while True:
            try:
                data = os.read(source, CHUNK_BYTES)
            except OSError:
                # A terminal whose other end is closed says so by an error.
                data = b""
            if not data:
                break
            self._kept.add(data)
            shown = shown and _write_all(target, data)
        os.close(source)

    def started(self) -> None:
        """Close our copies of the command's ends, so that its end is seen."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                os.close(end)
        self._ends.clear()

    def finish(self) -> None:
        """Wait for the rest of the output."""
        self.started()
        limit_s = time.monotonic() + LINGER_S
        for thread in self._threads:
            thread.join(max(0.0, limit_s - time.monotonic()))


def _write_all(target: int, data: bytes) -> bool:
    """Show a piece; False where nobody looks any more."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(target, view) :]
    except OSError:
        return False
    return True


def _open_pair(number: int) -> tuple[int, int]:
    """Return a pipe, or a terminal of the same size where ours is one: programs draw their progress there."""
    if not os.isatty(number):
        return os.pipe()
    ours, theirs = pty.openpty()
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(number, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
        settings = termios.tcgetattr(theirs)
        settings[1] &= ~termios.ONLCR
        termios.tcsetattr(theirs, termios.TCSANOW, settings)
    return ours, theirs


@contextlib.contextmanager
def kept_output(folder: Path, *, shown: bool = True) -> Iterator[Streams]:
    """Keep the output of a command in a folder, and show it unless that is not wanted."""
    kept = _Kept(folder)
    streams = Streams(kept, shown=shown)
    try:
        yield streams
    finally:
        streams.finish()
        kept.close()


class ArrivalTimes:
    """When each byte of a kept log came."""

    def __init__(self, folder: Path) -> None:
        self._starts: list[int] = []
        self._times_s: list[float] = []
        with contextlib.suppress(OSError), (folder / TIMES_FILE).open(encoding="utf-8", errors="replace") as file:
            self._read(file)

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            start, _, time_ns = line.rstrip("\n").partition(",")
            place, when_ns = whole_number(start), whole_number(time_ns)
            if place is not None and when_ns is not None and line.endswith("\n"):
                self._starts.append(place)
                self._times_s.append(when_ns * NANO)

    def of(self, end_byte: int) -> float | None:
        """Return when the byte before this place came, on the monotonic clock; None where that was not noted."""
        index = bisect.bisect_left(self._starts, end_byte) - 1
        return self._times_s[index] if index >= 0 else None
