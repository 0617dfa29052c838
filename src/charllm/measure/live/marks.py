"""What the newest marks of a job tell: steps, step time, tokens and loss."""

from collections.abc import Sequence
from pathlib import Path

from charllm.measure.live.rows import read_number
from charllm.measure.live.snapshot import JobNow
from charllm.measure.live.tail import LineCount, Tail
from charllm.units import NANO, whole_number

KNOWN = tuple(name for name in JobNow.__dataclass_fields__ if name != "missing")
"""What marks may tell."""
STEPS_SHOWN = 20
"""Steps that the step time is the mean of."""


class MarksReader:
    """Reads the newest marks of a run; remembers how far its steps were counted."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[LineCount, Tail]] = {}

    def look(self, places: Sequence[Path], drawn_w: float | None) -> JobNow:
        """Return what the marks in the folders of the nodes tell, given the power of all GPUs."""
        file = _leading_marks(places)
        if file is None:
            return JobNow(missing=dict.fromkeys(KNOWN, "the job has marked no step (see charllm.mark)"))
        count, tail = self._files.setdefault(file, (LineCount(file, b",step,"), Tail(file)))
        cells = [line.decode(errors="replace").split(",") for line in tail.newest(_enough_steps)]
        return _describe_job(max(0, count.update() - 1), [row for row in cells if len(row) == 5], drawn_w)


def _leading_marks(places: Sequence[Path]) -> Path | None:
    """Return the marks of the lowest rank that marks, the newest process of it."""
    files = [file for place in places for file in place.glob("marks-*.csv")]
    return min(files, key=lambda file: (_rank_of(file), -file.stat().st_mtime), default=None)


def _rank_of(file: Path) -> int:
    rank = file.stem.split("-")[1]
    number = whole_number(rank)
    return 1 << 30 if number is None else number


def _enough_steps(lines: list[bytes]) -> bool:
    return sum(b",step," in line for line in lines) > STEPS_SHOWN


def _describe_job(steps: int, marks: Sequence[Sequence[str]], drawn_w: float | None) -> JobNow:
    """Return step time and rates over the newest steps, and the newest loss."""
    ends = [row for row in marks if row[2] == "step" and whole_number(row[0]) is not None][-STEPS_SHOWN - 1 :]
    told = [read_number(row[4]) for row in marks if row[2] == "point" and "loss" in row[3].lower()]
    losses = [value for value in told if value is not None]
    missing: dict[str, str] = {}
    step_time_s = tokens_per_s = tokens_per_j = None
    if len(ends) > 1:
        passed_s = (int(ends[-1][0]) - int(ends[0][0])) * NANO
        step_time_s = passed_s / (len(ends) - 1)
        tokens = [count for row in ends[1:] if (count := whole_number(row[4])) is not None]
        if len(tokens) == len(ends) - 1 and passed_s > 0:
            tokens_per_s = sum(tokens) / passed_s
        else:
            missing["tokens_per_s"] = "steps are marked without tokens"
    else:
        missing |= dict.fromkeys(("step_time_s", "tokens_per_s"), "fewer than two steps are marked")
    if tokens_per_s is not None and drawn_w:
        tokens_per_j = tokens_per_s / drawn_w
    else:
        missing["tokens_per_j"] = missing.get("tokens_per_s", "power of some GPU is missing")
    if not losses:
        missing["loss"] = 'no point named "loss" is marked'
    return JobNow(steps, step_time_s, tokens_per_s, losses[-1] if losses else None, tokens_per_j, missing)
