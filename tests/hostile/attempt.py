"""Ask charllm one hostile case inside this process, and tell what is wrong with the answer."""

import contextlib
import io
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from tests.hostile.kinds import KINDS, OUT, WEIGHTS, Case

LONGEST_S, LONGEST_WAIT_S = 10.0, 100.0
"""Processor time of an answer, and time by the clock, in which other programs may run."""
MOST_BYTES, MOST_ADDRESSES_BYTES = 2 << 30, 32 << 30
"""Memory that a worker may hold, and reserve."""
OUT_OF_MEMORY = 86
"""Exit code of a worker that holds too much."""
REFUSED = 2
EXIT_CODES = (0, 1, REFUSED, 3)
SHOWN_LINES = 8


class Answer(NamedTuple):
    """How a case ended."""

    case: str
    """Kind and number: draws the same case again."""
    words: list[str]
    code: int | None
    seconds: float
    said: str
    fault: str | None
    """What is wrong with the answer; None: nothing."""


class _TooLongError(BaseException):
    pass


class _Writes:
    """Notes the files that Python opens to write, creates, moves or removes."""

    def __init__(self) -> None:
        self.allowed: tuple[str, ...] = ()
        self.found: list[str] = []
        self.watching = False
        sys.addaudithook(self._note)

    def _note(self, event: str, values: tuple[Any, ...]) -> None:
        if not self.watching:
            return
        if event == "open":
            path, mode, flags = values
            writes = (
                any(letter in mode for letter in "wax+")
                if isinstance(mode, str)
                else bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            )
            paths = [path] if writes else []
        elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.truncate"):
            paths = [values[0]]
        elif event == "os.rename":
            paths = list(values[:2])
        else:
            return
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike):
                place = os.path.abspath(os.fsdecode(path))
                if not place.startswith(self.allowed):
                    self.found.append(place)


def draw_kind(seed: int, number: int) -> str:
    """Return the kind of the case of a number."""
    return Random(f"{seed}/{number}").choices(list(KINDS), [WEIGHTS.get(kind, 1) for kind in KINDS])[0]


def limit_memory() -> None:
    """End this process when it holds too much memory: a fault that the one who started it sees."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES_BYTES, resource.RLIM_INFINITY))
    threading.Thread(target=_watch_memory, daemon=True).start()


def _watch_memory() -> None:
    statm = Path("/proc/self/statm")
    while int(statm.read_text().split()[1]) * resource.getpagesize() < MOST_BYTES:
        time.sleep(0.05)
    os._exit(OUT_OF_MEMORY)


def attempt(kind: str, seed: int, number: int, originals: Path, writes: _Writes | None = None) -> Answer:
    """Draw a case, ask it, and check its answer and the files that it left."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as place:
        folder = Path(place)
        case = KINDS[kind](Random(f"{seed}/{kind}/{number}"), originals, folder)
        before = _files(folder)
        code, said, seconds, fault = _ask(case, folder, originals, writes)
        if fault is None:
            fault = _check_answer(code, said)
        if fault is None:
            fault = check_files(before, _files(folder), case, refused=code == REFUSED)
        if fault is None and writes is not None and writes.found:
            fault = f"wrote {writes.found[:3]}"
        return Answer(f"{kind}:{number}", case.words, code, seconds, said[-300:], fault)


def _ask(
    case: Case, folder: Path, originals: Path, writes: _Writes | None
) -> tuple[int | None, str, float, str | None]:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code, fault, start_s = None, None, time.process_time()
    was, cwd = os.environ.copy(), os.getcwd()
    (folder / "cwd").mkdir()
    (folder / OUT).mkdir()
    os.chdir(folder / "cwd")
    if writes is not None:
        writes.found.clear()
        writes.allowed = (
            str(folder) + "/",
            tempfile.gettempdir() + "/",
            "/dev/",
            str(Path.home() / ".cache" / "charllm"),
        )
        writes.watching = True
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings(), _limited():
            warnings.simplefilter("ignore")
            code = case.ask()
    except _TooLongError:
        fault = f"no answer in {LONGEST_S:.0f} s\n{traceback.format_exc(limit=-SHOWN_LINES)}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        fault = f"{type(error).__name__}\n{traceback.format_exc(limit=-SHOWN_LINES)}"
    finally:
        if writes is not None:
            writes.watching = False
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(was)
    said = err.buffer.getvalue().decode("utf-8", "replace")
    if "Traceback" in said and fault is None:
        fault = f"traceback in the messages\n{said[-2000:]}"
    return code, said, time.process_time() - start_s, fault


def _check_answer(code: int | None, said: str) -> str | None:
    if code not in EXIT_CODES:
        return f"exit code {code}\n{said[-500:]}"
    if code == REFUSED and not said.strip():
        return "refused without a message"
    if "out of memory" in said:
        return f"out of memory\n{said[-500:]}"
    return None


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of change of every file below a folder, but of those in the folder for output."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file() and path.name != ".lock" and not name.startswith(f"{OUT}/"):
            state = path.stat()
            found[name] = (state.st_size, state.st_mtime_ns)
    return found


def check_files(before: dict[str, Any], after: dict[str, Any], case: Case, *, refused: bool) -> str | None:
    """Name files that a command has changed, made or removed outside the folder for output."""
    if case.grows and not refused:
        after = {name: state for name, state in after.items() if name in before or name.startswith("cwd/")}
        before = {name: state for name, state in before.items() if after.get(name) == state or name not in after}
        after = {name: state for name, state in after.items() if name in before or name.startswith("cwd/")}
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return f"changed {changed[:4]}" if changed else None


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise _TooLongError

    timers = {signal.ITIMER_PROF: LONGEST_S, signal.ITIMER_REAL: LONGEST_WAIT_S}
    before = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    for timer, seconds in timers.items():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def work() -> None:
    """Answer cases until standard input ends: each line is a kind, a seed and a number; each answer is a line."""
    originals = Path(sys.argv[1])
    writes = _Writes()
    answers = os.fdopen(os.dup(1), "w")
    for _ in range(2):
        attempt("flags", 0, 0, originals)
    limit_memory()
    for line in sys.stdin:
        kind, seed, number = json.loads(line)
        answers.write(json.dumps(attempt(kind, seed, number, originals, writes)) + "\n")
        answers.flush()


if __name__ == "__main__":
    work()
