"""The newest rows of files that grow, read from their ends: cheap however long the record is."""

from collections.abc import Callable
from pathlib import Path

SPANS = tuple(1 << power for power in range(15, 24))
"""How far back to look, at first and where that was not enough."""


class Tail:
    """The end of a growing file; remembers how far back was enough the last time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0

    def newest(self, enough: Callable[[list[bytes]], bool]) -> list[bytes]:
        """Return whole lines from the end of the file, oldest first, as far back as `enough` of them needs."""
        lines: list[bytes] = []
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                for place in range(self._place, len(SPANS)):
                    start, self._place = max(0, size - SPANS[place]), place
                    file.seek(start)
                    # The first line is cut unless the file begins with it; the last one has no end yet.
                    lines = file.read(size - start).split(b"\n")[1 if start else 0 : -1]
                    if enough(lines) or not start:
                        break
        except OSError:
            return []
        return lines


def first_lines(path: Path, span: int = SPANS[2]) -> list[bytes]:
    """Return whole lines from the beginning of a file."""
    try:
        with path.open("rb") as file:
            return file.read(span).split(b"\n")[:-1]
    except OSError:
        return []


class LineCount:
    """Counts the lines of a growing file that hold some text; every byte is looked at once."""

    def __init__(self, path: Path, text: bytes) -> None:
        self._path, self._text = path, text
        self._offset = 0
        self._count = 0

    def update(self) -> int:
        """Return how many there are by now, in whole lines."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                while block := file.read(SPANS[-1]):
                    whole = block[: block.rfind(b"\n") + 1]
                    if not whole:
                        break
                    self._count += whole.count(self._text)
                    self._offset += len(whole)
                    file.seek(self._offset)
        except OSError:
            pass
        return self._count
