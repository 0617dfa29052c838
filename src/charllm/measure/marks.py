"""The marks a job left: steps, phases and points, on the same clock as the readings.

A job that marks no steps is taken at its log's word: each line that reports on a step is a mark of the time it came.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from charllm.errors import SpecError
from charllm.measure.logs import Log, LoggedStep, read_log
from charllm.measure.logs.read import AUTO
from charllm.measure.output import LOG_FILE, ArrivalTimes
from charllm.units import NANO, whole_number

OPTIMIZER_STEP = "optimizer step"
"""Name of the points that stand for steps of a job that marks none (measure/hooked.py)."""
FROM_LOG = "log"
"""Name of the marks that a log stands for, in place of a process's."""
LOG_KEY, JOB_FILE = "log", "job.json"
LOSS = "loss"


def is_logged(process: str) -> bool:
    """Tell whether the marks of a name stand for lines of a log, read with the job or converted."""
    return process.rpartition("-")[2].startswith(FROM_LOG)


class Mark(NamedTuple):
    """One mark of one process."""

    time_s: float
    """Monotonic."""
    kind: str
    """step, begin, end or point."""
    name: str
    value: str


MOST_DIFFERENCE = 0.05
"""Between two sources of a step time that are taken to agree."""
FEWEST_STEPS = 3
"""Fewer steps do not say what a step takes."""
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
    log = _read_logged(folder)
    if any(mark.name == OPTIMIZER_STEP for found in marks.values() for mark in found):
        tokens = {round(step.tokens) for step in log.steps if step.tokens is not None} if log else set()
        return {name: _with_steps(found, str(*tokens) if len(tokens) == 1 else "") for name, found in marks.items()}
    arrivals = ArrivalTimes(folder)
    logged = mark_logged([(step, arrivals.of(step.end_byte)) for step in log.steps]) if log else []
    return {**marks, FROM_LOG: logged} if logged else marks


def _with_steps(marks: list[Mark], tokens: str) -> list[Mark]:
    """Take the steps of a process's optimizer for its steps."""
    return [one._replace(kind="step", name="", value=tokens) if one.name == OPTIMIZER_STEP else one for one in marks]


def compare_with_log(folder: Path, marks: Mapping[str, list[Mark]]) -> str | None:
    """Tell where the marks of a job and its program's own clock disagree on the time of a step, with both figures."""
    steps = max((find_steps(found) for found in marks.values()), key=len, default=[])
    log = _read_logged(folder) if len(steps) >= FEWEST_STEPS else None
    stated = [step.seconds for step in log.steps if step.seconds is not None] if log else []
    logged_s = log.stated_step_s or (median(stated) if stated else None) if log else None
    marked_s = (steps[-1].end_s - steps[0].start_s) / len(steps) if steps else 0.0
    if logged_s is None or abs(marked_s / logged_s - 1) <= MOST_DIFFERENCE:
        return None
    source = "times at which lines of its log came" if any(map(is_logged, marks)) else "marks of the job"
    return (
        f"step_time_s: {marked_s:.4g} s by the {source}, {logged_s:.4g} s by what the program says in its log: "
        f"they differ by {abs(marked_s / logged_s - 1):.0%}"
    )


def _read(data: bytes) -> Iterable[Mark]:
    complete = data[: data.rfind(b"\n") + 1].decode(errors="replace")
    for line in complete.split("\n"):
        cells = line.split(",")
        if len(cells) == 5 and whole_number(cells[0]) is not None:
            yield Mark(int(cells[0]) * NANO, cells[2], cells[3], cells[4])


def _read_logged(folder: Path) -> Log | None:
    """Read the log of a job; None where it has none that can be read."""
    if not (folder / LOG_FILE).exists():
        return None
    asked = _how_to_read(folder)
    with suppress(SpecError):
        return read_log(folder / LOG_FILE, asked.get("kind") or AUTO, asked.get("pattern"), bounded=True)
    return None


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


def leading_marks(marks: Mapping[str, list[Mark]]) -> list[Mark]:
    """Return the marks of the process that marked most steps: rank 0 of a job whose ranks all mark."""
    return max(marks.values(), key=lambda own: len(find_steps(own)), default=[])


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
