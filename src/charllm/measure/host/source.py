"""What every source of host readings has, and how files of the kernel are read."""

import errno
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from charllm.measure.telemetry.source import Reading

REASON_OF_ERRNO = {
    errno.EACCES: "no_permission",
    errno.EPERM: "no_permission",
    errno.ENOENT: "not_supported",
    errno.EOPNOTSUPP: "not_supported",
    errno.EINVAL: "not_supported",
    errno.ENODEV: "lost",
    errno.ENXIO: "lost",
}
"""Errors of files in words that hold for every source; any other is an error."""
DIVIDERS = re.compile(r"[\s,=\"]+")
"""What would divide the cells or the reasons of a row."""
STALE_S = 120.0
"""Readings from outside (BMC, Redfish) that are older than this are missing."""


class Roots(NamedTuple):
    """Where the kernel's files are; tests give trees of their own."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")
    redfish: Path | None = None
    """A Redfish answer that someone keeps up to date."""
    ipmitool: str | None = None


class HostSource(NamedTuple):
    """Some columns of host.csv, and what reads them."""

    columns: tuple[str, ...]
    """A quantity with its unit, and behind a colon what it is of, where a machine has several."""
    read: Callable[[], list[Reading]]
    facts: dict[str, Any] = {}  # noqa: RUF012
    """What does not change: rates of links, models."""
    close: Callable[[], None] = lambda: None
    """End what runs beside."""


class Number:
    """A file that holds a number, kept open: a reading is one system call."""

    def __init__(self, path: Path, factor: float = 1.0) -> None:
        self._path, self._factor = path, factor
        self._file: int | None = None

    def read(self) -> Reading:
        """Return the number in SI, or why there is none."""
        text = self.text()
        if isinstance(text, str):
            return text
        try:
            return float(text) * self._factor
        except ValueError:
            # Some drivers answer in words: "N/A (no PMA)".
            return "not_supported" if text.startswith(b"N/A") else "error"

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def text(self) -> bytes | str:
        """Return what the file holds, as bytes, or the reason why it cannot be read."""
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._file, 1 << 16, 0)
        except OSError as error:
            return REASON_OF_ERRNO.get(error.errno or 0, "error")


def read_words(path: Path) -> str:
    """Return the text of a small file, empty where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def list_folder(path: Path) -> list[Path]:
    """Return what a folder holds, in order; nothing where it is not there."""
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def named(quantity: str, instance: str) -> str:
    """Name a column of one of several things of a kind."""
    return f"{quantity}:{DIVIDERS.sub('_', instance)}"


def reader_of(cells: Sequence[Callable[[], Reading]]) -> Callable[[], list[Reading]]:
    """Return what reads cells one after the other."""
    return lambda: [cell() for cell in cells]
