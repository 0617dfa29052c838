"""Show a run on a terminal while it is recorded: a table that stays at the bottom, or a block of lines now and then.

The command that is measured writes to the same terminal. So the table has the last lines of the screen to itself (the
terminal scrolls only the lines above, DECSTBM), and every redraw is one write that leaves the cursor where it was.
"""

import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from charllm.measure.live.snapshot import Snapshot
from charllm.measure.live.watcher import Watcher
from charllm.report.live import render_live

REFRESH_S, BLOCK_S = 1.0, 5.0
"""Between redraws of a table; between blocks of lines where there is no terminal."""
LINES_ABOVE = 4
"""Lines of the screen that are left to the command at least."""
SAVE, RESTORE, CLEAR_LINE, CLEAR_BELOW = "\0337", "\0338", "\033[2K", "\033[J"


class Panel:
    """The last lines of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._height = 0
        self._size = (0, 0)

    def show(self, draw: Callable[[int, int], str]) -> None:
        """Draw what fits in the given columns and lines."""
        columns, lines = size = _terminal_size(self._stream)
        text = draw(columns - 1, max(1, lines - LINES_ABOVE)).split("\n")
        rule = "-" * (columns - 1)
        shown = [rule, *text][: max(1, lines - 1)]
        out = ""
        if size != self._size:
            self._height, out = 0, f"{SAVE}\033[r{RESTORE}"
        if len(shown) > self._height:
            out += self._reserve(len(shown), lines)
        first = lines - self._height + 1
        padded = [*shown, *[""] * (self._height - len(shown))]
        drawn = "".join(f"\033[{first + number};1H{CLEAR_LINE}{line}" for number, line in enumerate(padded))
        self._size = size
        self._write(f"{out}{SAVE}{drawn}{RESTORE}")

    def _reserve(self, height: int, lines: int) -> str:
        """Scroll what is there out of the way, and let the terminal scroll only the lines above."""
        more, self._height = height - self._height, height
        return "\n" * more + f"\033[{more}A{SAVE}\033[1;{lines - height}r{RESTORE}"

    def close(self) -> None:
        """Give the whole screen back."""
        if self._height:
            first = self._size[1] - self._height + 1
            self._write(f"{SAVE}\033[r\033[{first};1H{CLEAR_BELOW}{RESTORE}")
            self._height = 0

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def _terminal_size(stream: TextIO) -> tuple[int, int]:
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        size = shutil.get_terminal_size()
    return max(20, size.columns), max(6, size.lines)


def is_terminal(stream: TextIO) -> bool:
    """Tell whether a table can be redrawn there."""
    return stream.isatty()


def show_run(folder: Path, stream: TextIO, stop: threading.Event, *, until_ended: bool = False) -> None:
    """Show a run until told to stop (or until it has ended); the last state stays on the terminal."""
    watcher = Watcher(folder)
    panel = Panel(stream) if is_terminal(stream) else None
    wait_s = REFRESH_S if panel else BLOCK_S
    try:
        while True:
            snapshot = watcher.look()
            if until_ended and snapshot.state == "ended":
                break
            if panel:
                panel.show(lambda columns, lines, now=snapshot: render_live(asdict(now), columns, lines))  # type: ignore[misc]
            else:
                _print(snapshot, stream)
            if stop.wait(wait_s):
                break
    finally:
        if panel:
            panel.close()
    if panel or until_ended:
        _print(watcher.look(), stream)


def _print(snapshot: Snapshot, stream: TextIO) -> None:
    width = _terminal_size(stream)[0] - 1 if is_terminal(stream) else shutil.get_terminal_size((100, 24)).columns
    with contextlib.suppress(OSError, ValueError):
        print(render_live(asdict(snapshot), width), file=stream, flush=True)


@contextlib.contextmanager
def watching(folder: Path) -> Iterator[None]:
    """Show a run on stderr beside what happens inside."""
    stop = threading.Event()
    thread = threading.Thread(target=show_run, args=(folder, sys.stderr, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(2 * REFRESH_S)
