"""The marks a job left: steps, phases and points, on the same clock as the readings."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from charllm.units import NANO


class Mark(NamedTuple):
    """One mark of one process."""

    time_s: float
    """Monotonic."""
    kind: str
    """step, begin, end or point."""
    name: str
    value: str


class Step(NamedTuple):
    """One step between two marks."""

    start_s: float
    end_s: float
    tokens: int | None


def read_marks(folder: Path) -> dict[str, list[Mark]]:
    """Read every process's marks in order of time; a line cut short is ignored."""
    files = sorted(folder.glob("marks-*.csv"))
    return {file.stem.removeprefix("marks-"): list(_read(file.read_bytes())) for file in files}


def _read(data: bytes) -> Iterable[Mark]:
    complete = data[: data.rfind(b"\n") + 1].decode(errors="replace")
    for line in complete.split("\n"):
        cells = line.split(",")
        if len(cells) == 5 and cells[0].isdecimal():
            yield Mark(int(cells[0]) * NANO, cells[2], cells[3], cells[4])


def find_steps(marks: list[Mark]) -> list[Step]:
    """Return the steps between consecutive step marks; the first mark only says where the second one starts."""
    ends = [mark for mark in marks if mark.kind == "step"]
    return [
        Step(before.time_s, after.time_s, int(after.value) if after.value.isdecimal() else None)
        for before, after in pairwise(ends)
    ]


def find_phases(marks: list[Mark]) -> dict[str, list[tuple[float, float]]]:
    """Return the windows of every named phase; one that never ended is left out."""
    found: dict[str, list[tuple[float, float]]] = {}
    begun: dict[str, list[float]] = {}
    for mark in marks:
        if mark.kind == "begin":
            begun.setdefault(mark.name, []).append(mark.time_s)
        elif mark.kind == "end" and begun.get(mark.name):
            found.setdefault(mark.name, []).append((begun[mark.name].pop(), mark.time_s))
    return found
