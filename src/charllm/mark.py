"""Marks in a training script: steps, phases and tokens, in microseconds and without synchronising with the device.

    import charllm.mark as mark

    for batch in data:
        with mark.phase("forward"):
            ...
        mark.step(tokens=batch.numel())

Under ``charllm measure -- COMMAND`` marks are written to a file of the run; otherwise they have no effect.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from charllm.profile import StepProfiler, armed_profiler, name_range

FOLDER_VARIABLE = "CHARLLM_MARKS"
COLUMNS = b"monotonic_ns,wall_ns,kind,name,value\n"
_files: dict[int, int | None] = {}
_stepped: set[int] = set()
"""Processes that have marked a step."""
_profilers: dict[int, "StepProfiler | None"] = {}


def record_to(folder: str) -> None:
    """Send this process's marks to a folder, whatever started it."""
    _files[os.getpid()] = _create(os.path.join(folder, f"marks-0-{os.getpid()}.csv"))


@contextmanager
def recording_to(folder: str) -> Iterator[None]:
    """Send this process's marks to a folder for a while, then to where they went before."""
    pid = os.getpid()
    before = _files.pop(pid, None)
    record_to(folder)
    try:
        yield
    finally:
        own = _files.pop(pid, None)
        if own is not None:
            os.close(own)
        if before is not None:
            _files[pid] = before


def step(number: int | None = None, *, tokens: int | None = None) -> None:
    """Mark the end of a step, with its number of tokens."""
    _stepped.add(os.getpid())
    write("step", "" if number is None else str(number), "" if tokens is None else str(tokens))
    profiler = own_profiler()
    if profiler is not None:
        profiler.after_step(write)


def point(name: str, value: float | None = None) -> None:
    """Mark a point in time, optionally with a value such as the loss."""
    write("point", name, "" if value is None else repr(float(value)))


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Mark the beginning and the end of a phase, in the profiler's trace, too, where this process is profiled."""
    write("begin", name, "")
    try:
        with name_range(name) if own_profiler() else nullcontext():
            yield
    finally:
        write("end", name, "")


@contextmanager
def profiling_by(profiler: StepProfiler | None) -> Iterator[None]:
    """Have a profiler told of every step that this process marks inside."""
    pid = os.getpid()
    before = _profilers.pop(pid, None)
    _profilers[pid] = profiler
    try:
        yield
    finally:
        _profilers[pid] = before


def own_profiler() -> StepProfiler | None:
    """Return this process's profiler; what the environment asks for, unless told otherwise."""
    pid = os.getpid()
    if pid not in _profilers:
        _profilers[pid] = armed_profiler(os.environ, os.environ.get(FOLDER_VARIABLE))
    return _profilers[pid]


def has_marked_steps() -> bool:
    """Tell whether this process has marked a step."""
    return os.getpid() in _stepped


def write(kind: str, name: str, value: str) -> None:
    """Write one mark, as all of the above do."""
    file = _open()
    if file is not None:
        clean = " ".join(name.replace(",", ";").split())
        row = f"{time.monotonic_ns()},{time.time_ns()},{kind},{clean},{value}\n"
        try:
            os.write(file, row.encode(errors="replace"))
        except OSError:
            # A job must not fail because its marks cannot be kept.
            return


def _open() -> int | None:
    """Open this process's file of marks once; a fork gets its own."""
    pid = os.getpid()
    if pid not in _files:
        folder = os.environ.get(FOLDER_VARIABLE)
        rank = os.environ.get("RANK", "0")
        _files[pid] = _create(os.path.join(folder, f"marks-{rank}-{pid}.csv")) if folder else None
    return _files[pid]


def _create(path: str) -> int | None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if os.fstat(file).st_size == 0:
            os.write(file, COLUMNS)
    except OSError:
        return None
    return file
