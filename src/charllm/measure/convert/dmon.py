"""``dcgmi dmon`` and ``nvidia-smi dmon``: headings that come again, then a line per GPU."""

import re
from collections.abc import Mapping

from charllm.errors import SpecError
from charllm.measure.convert.foreign import Foreign, GpuKey, Meaning
from charllm.measure.convert.names import dcgm_meaning, meanings
from charllm.measure.convert.source import ForeignFile, Hints, whole_lines
from charllm.measure.convert.values import read_moment, read_number, without_blanks

USUAL_PERIOD_S = 1.0
"""Both tools' own, where ``-d`` was not given."""
HEADING = re.compile(r"^\s*#\s*(?:(?:Date|Time)[,\s]+)*(?:gpu|Entity)\b", re.IGNORECASE)
UNITS_LINE = re.compile(r"^\s*#?\s*(?:(?:YYYYMMDD|HH:MM:SS)[,\s]+)*(?:Idx|Id)\b", re.IGNORECASE)
ENTITY = re.compile(
    r"^\s*(?:(?P<time>\S.*?\S)\s+)?(?P<kind>GPU-I|GPU|Switch|CI|CPU)\s+(?P<number>[\d/.]+)\s+(?P<rest>.*)$"
)


def looks_like(head: str) -> bool:
    """Tell whether a text has the headings of dmon."""
    return any(HEADING.match(line) for line in head.split("\n")[:200])


def read(file: ForeignFile, hints: Hints) -> Foreign:
    """Read the lines of each GPU; those without a time are counted."""
    foreign = Foreign()
    names: list[str] = []
    counting = _Counting(hints.period_s or USUAL_PERIOD_S)
    now_s: float | None = None
    for _, line in whole_lines(file.text):
        if HEADING.match(line):
            names = _words(line.lstrip().lstrip("#"))
        elif UNITS_LINE.match(line) or not names:
            moment = read_moment(line)
            now_s = moment.seconds if moment and moment.clock != "relative" else now_s
        else:
            now_s = _read_line(line, names, counting, foreign, now_s)
    if counting.used:
        foreign.clocks.add("counted")
        if hints.period_s is None:
            foreign.note(
                f"lines have no timestamps: assumed to be {USUAL_PERIOD_S:g} s apart, the tool's own period; --period S"
            )
    if not foreign.tracks:
        raise SpecError("PATH", str(file.path), "lines of dmon with power, temperature, clock or use of a GPU")
    return foreign


class _Counting:
    """Counts rounds: a GPU that comes again begins the next."""

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self.tick = 0
        self.seen: set[str] = set()
        self.used = False

    def time_of(self, gpu: str) -> float:
        self.used = True
        if gpu in self.seen:
            self.tick += 1
            self.seen.clear()
        self.seen.add(gpu)
        return self.tick * self.period_s


def _words(line: str) -> list[str]:
    return [word.strip() for word in (line.split(",") if "," in line else line.split())]


def _read_line(line: str, names: list[str], counting: _Counting, foreign: Foreign, now_s: float | None) -> float | None:
    """Read one line into `foreign`; returns the time that a line of nothing but a time has told."""
    entity = ENTITY.match(line)
    if names[0].lower() == "entity":
        if entity is None:
            moment = read_moment(line.strip().lstrip("#"))
            return moment.seconds if moment and moment.clock != "relative" else now_s
        if entity["kind"] != "GPU" or not entity["number"].isdecimal():
            return now_s
        moment = read_moment(entity["time"]) if entity["time"] else None
        time_s = moment.seconds if moment else now_s
        gpu, cells, found = entity["number"], entity["rest"].split(), _dcgm(names[1:])
    else:
        table = dict(zip((name.lower() for name in names), _words(line), strict=False))
        if len(table) < len(names) or not table.get("gpu", "").isdecimal():
            return now_s
        gpu, cells = table["gpu"], [table[name.lower()] for name in names]
        moment = (
            read_moment(" ".join(table[name] for name in ("date", "time") if name in table))
            if "time" in table
            else None
        )
        time_s = moment.seconds if moment else now_s
        known = meanings("nvidia-smi-dmon")
        found = {place: known[name.lower()] for place, name in enumerate(names) if name.lower() in known}
        for name in names:
            if name.lower() not in {*known, "gpu", "date", "time"}:
                foreign.left_out[name] += 1
    if moment is not None:
        foreign.clocks.add(moment.clock)
    _add(cells, found, GpuKey("", gpu), counting.time_of(gpu) if time_s is None else time_s, foreign)
    return now_s


def _dcgm(headings: list[str]) -> Mapping[int, Meaning]:
    known = {place: dcgm_meaning(name) for place, name in enumerate(headings)}
    return {place: meaning for place, meaning in known.items() if meaning is not None}


def _add(cells: list[str], found: Mapping[int, Meaning], key: GpuKey, time_s: float, foreign: Foreign) -> None:
    if found and max(found) >= len(cells):
        # A line cut short.
        return
    foreign.know(key, number=int(key.gpu))
    for place, meaning in found.items():
        reading, _ = read_number(cells[place])
        foreign.add(key, meaning, time_s, reading if isinstance(reading, str) else without_blanks(reading))
