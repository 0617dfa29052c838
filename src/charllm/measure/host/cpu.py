"""Load and clock of the processors, and how long tasks waited for them.

From ``/proc/stat``, ``/proc/loadavg``, ``/proc/pressure`` and cpufreq.
"""

from pathlib import Path

from charllm.measure.host.source import HostSource, Number, Roots, list_folder, read_words
from charllm.measure.telemetry.source import Reading
from charllm.units import KILO, MICRO

MOST_CLOCKS = 16
"""Processors whose clock is read, spread evenly: each costs some microseconds, and a node may have 500."""
IDLE_FIELDS = (3, 4)
"""Columns of ``/proc/stat`` in which a processor does nothing: idle, and waiting for a disk."""
FIELDS = 8
"""Columns that add up to all time; guests are counted in them already."""


def find_cpu(roots: Roots) -> HostSource:
    """Return load since the last reading, mean clock, runnable tasks and the time that some task waited."""
    load, queue = _Load(roots.proc / "stat"), Number(roots.proc / "loadavg")
    clocks = _clocks(roots.sys / "devices" / "system" / "cpu")
    pressures = {name: Number(roots.proc / "pressure" / name) for name in ("cpu", "memory", "io")}
    columns = ("cpu_load_fraction", "runnable_tasks", "cpu_clock_hz", *(f"{name}_pressure_s" for name in pressures))

    def read() -> list[Reading]:
        return [load.read(), _runnable(queue), _mean(clocks), *(_waited(file) for file in pressures.values())]

    cpus = sum(line.startswith("cpu") for line in read_words(roots.proc / "stat").splitlines()) - 1
    return HostSource(columns, read, {"cpus": max(0, cpus), "cpu_model": _model(roots.proc / "cpuinfo")})


class _Load:
    def __init__(self, path: Path) -> None:
        self._file = Number(path)
        self._last = (0, 0)
        self.read()

    def read(self) -> Reading:
        """Return the share of time processors were busy since the last reading."""
        text = self._file.text()
        if isinstance(text, str):
            return text
        try:
            times = [int(word) for word in text.split(b"\n", 1)[0].split()[1 : 1 + FIELDS]]
            now = (sum(times[field] for field in IDLE_FIELDS), sum(times))
        except (ValueError, IndexError):
            return "error"
        before, self._last = self._last, now
        passed = now[1] - before[1]
        return min(1.0, max(0.0, 1 - (now[0] - before[0]) / passed)) if passed > 0 else "stale"


def _runnable(file: Number) -> Reading:
    """Return the tasks that run or could: ``0.20 0.18 0.12 3/810 11206``."""
    text = file.text()
    if isinstance(text, str):
        return text
    try:
        return float(text.split()[3].split(b"/")[0])
    except (ValueError, IndexError):
        return "error"


def _clocks(folder: Path) -> list[Number]:
    found = [cpu / "cpufreq" / "scaling_cur_freq" for cpu in list_folder(folder) if cpu.name[3:].isdecimal()]
    there = [path for path in found if path.exists()]
    step = -(-len(there) // MOST_CLOCKS) or 1
    return [Number(path, KILO) for path in there[::step]]


def _mean(files: list[Number]) -> Reading:
    readings = [file.read() for file in files]
    known = [reading for reading in readings if not isinstance(reading, str)]
    if known:
        return sum(known) / len(known)
    return next((reading for reading in readings if isinstance(reading, str)), "not_supported")


def _waited(file: Number) -> Reading:
    """Return for how long at least one task has waited, since the machine started."""
    text = file.text()
    if isinstance(text, str):
        return text
    try:
        return float(text.split(b"\n", 1)[0].rsplit(b"total=", 1)[1]) * MICRO
    except (ValueError, IndexError):
        return "error"


def _model(path: Path) -> str:
    for line in read_words(path).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return "unknown"
