"""The marks a job left: steps, phases and points, on the same clock as the readings.

A job that marks no steps is taken at its log's word: each line that reports on a step is a mark of the time it came.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from charllm.errors import SpecError
from charllm.measure.logs import LoggedStep, read_log
from charllm.measure.logs.read import AUTO
from charllm.measure.output import LOG_FILE, ArrivalTimes
from charllm.units import NANO, whole_number

FROM_LOG = "log"
"""Name of the marks that a log stands for, in place of a process's."""
LOG_KEY, JOB_FILE = "log", "job.json"
LOSS = "loss"


class Mark(NamedTuple):
    """One mark of one process."""

    time_s: float
    """Monotonic."""
    kind: str
    """step, begin, end or point."""
    name: str
    value: str


MOST_LOGGED = 200_000
"""Steps of a log that are marked one by one, those of its end."""


class Step(NamedTuple):
    """One step between two marks."""

    start_s: float
    end_s: float
    tokens: int | None


def read_marks(folder: Path) -> dict[str, list[Mark]]:
    """Read every process's marks in order of time, or else those of the log; a line cut short is ignored."""
    files = sorted(folder.glob("marks-*.csv"))
    marks = {file.stem.removeprefix("marks-"): list(_read(file.read_bytes())) for file in files}
    if any(mark.kind == "step" for found in marks.values() for mark in found):
        return marks
    logged = _read_logged(folder)
    return {**marks, FROM_LOG: logged} if logged else marks


def _read(data: bytes) -> Iterable[Mark]:
    complete = data[: data.rfind(b"\n") + 1].decode(errors="replace")
    for line in complete.split("\n"):
        cells = line.split(",")
        if len(cells) == 5 and whole_number(cells[0]) is not None:
            yield Mark(int(cells[0]) * NANO, cells[2], cells[3], cells[4])


def _read_logged(folder: Path) -> list[Mark]:
    """Read the marks that the log of a job stands for."""
    if not (folder / LOG_FILE).exists():
        return []
    asked = _how_to_read(folder)
    try:
        log = read_log(folder / LOG_FILE, asked.get("kind") or AUTO, asked.get("pattern"), bounded=True)
    except SpecError:
        return []
    arrivals = ArrivalTimes(folder)
    return mark_logged([(step, arrivals.of(step.end_byte)) for step in log.steps])


def _how_to_read(folder: Path) -> dict[str, str]:
    """Return the kind of log, or the user's own pattern, that the job's record names."""
    for place in (folder, *folder.parents[:2]):
        try:
            found = json.loads((place / JOB_FILE).read_text(encoding="utf-8"))["details"][LOG_KEY]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        return found if isinstance(found, dict) else {}
    return {}


def mark_logged(steps: Sequence[tuple[LoggedStep, float | None]]) -> list[Mark]:
    """Turn logged steps with the times their lines came into marks; a line that covers ten steps marks ten."""
    marks: list[Mark] = []
    last_s: float | None = None
    left = np.cumsum([step.steps for step, _came_s in reversed(steps)])
    first = max(0, len(steps) - max(1, int(np.count_nonzero(left <= MOST_LOGGED))))
    for step, came_s in steps[first:]:
        if came_s is None:
            continue
        if last_s is None and step.seconds is not None:
            last_s = came_s - step.seconds * step.steps
            marks.append(Mark(last_s, "step", "", "0"))
        count = step.steps if last_s is not None and step.steps <= MOST_LOGGED else 1
        tokens = "" if step.tokens is None else str(round(step.tokens))
        start_s = came_s if last_s is None else max(last_s, came_s - (step.seconds or came_s - last_s) * count)
        each_s = (came_s - start_s) / count
        number = step.number - count + 1
        marks += [Mark(start_s + each_s * (n + 1), "step", str(number + n), tokens) for n in range(count)]
        if step.loss is not None:
            marks.append(Mark(came_s, "point", LOSS, repr(step.loss)))
        last_s = came_s
    return marks


def find_steps(marks: list[Mark]) -> list[Step]:
    """Return the steps between consecutive step marks; the first mark only says where the second one starts."""
    ends = [mark for mark in marks if mark.kind == "step"]
    return [Step(before.time_s, after.time_s, whole_number(after.value)) for before, after in pairwise(ends)]


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
