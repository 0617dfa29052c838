"""What a sampler has written down so far: tests, and commands that they measure, wait for readings, not for a time.

A fixed time holds few readings, or none, where the machine is busy. As a program it ends when readings have been
taken since it began: `python readings.py COUNT [WORDS]`, of which each has some words in its row.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

ENOUGH = 20
"""Readings: as many as are taken in 0.2 s."""
END_S = 120.0
"""Nothing that a test waits for takes so long, however busy the machine is."""


def await_true(is_so: Callable[[], object], what: str = "") -> None:
    """Wait until something is so."""
    end_s = time.monotonic() + END_S
    while not is_so():
        assert time.monotonic() < end_s, what or "not within the time given"
        time.sleep(0.01)


def count_readings(folder: Path, since_ns: int = 0, words: str = "") -> int:
    """Count the readings since a time of the monotonic clock, as far as they are written."""
    try:
        rows = (folder / "samples.csv").read_text().split("\n")[1:-1]
    except FileNotFoundError:
        return 0
    return sum(row.startswith("fast,") and int(row.split(",")[2]) >= since_ns and words in row for row in rows)


def await_readings(folder: Path, count: int = ENOUGH, words: str = "") -> None:
    """Wait until readings have been taken and written down, from now on."""
    now_ns = time.monotonic_ns()
    await_true(lambda: count_readings(folder, now_ns, words) >= count, f"{count} readings in {folder}")


def until_read(count: int = ENOUGH, words: str = "") -> tuple[str, ...]:
    """Return a command to measure that ends when readings have been taken of it."""
    return sys.executable, "-S", __file__, str(count), words


if __name__ == "__main__":
    await_readings(Path(os.environ["CHARLLM_MARKS"]), int(sys.argv[1]), "".join(sys.argv[2:]))
