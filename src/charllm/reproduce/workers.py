"""Look at many runs in several processes, and keep their rows in one file as they come.

    python -m charllm.reproduce.workers PARENT

A worker reads a request a line and answers with its row a line. It ends when its parent does.

Thousands of runs under other conditions would fill a disk with whole results; a line of the file is one row, whose key
is its request. A run that is in the file is not simulated again, so that a command that was killed goes on where it
was. The first line says what the rows depend on: version, catalog, and the sources that make a prediction.
"""

import hashlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from charllm import __version__
from charllm.catalog.tables import catalog_hash
from charllm.errors import CharllmError, SpecError
from charllm.reproduce.looks import Row, key_of, look
from charllm.reproduce.paper import Request
from charllm.result.store import write_text
from charllm.sweep.worker import end_with

Worker = subprocess.Popen[str]


def spread(requests: Mapping[str, Request], workers: int) -> Iterator[tuple[str, Row]]:
    """Yield key and row of each request as it ends; with one worker, in this process."""
    if workers < 2 or len(requests) < 2:
        yield from ((key, look(request)) for key, request in requests.items())
        return
    waiting = iter(requests.items())
    crew = [_start() for _ in range(min(workers, len(requests)))]
    busy = {worker: key for worker in crew if (key := _hand(worker, waiting)) is not None}
    try:
        while busy:
            ready, _, _ = select.select([worker.stdout for worker in busy if worker.stdout], [], [])
            for worker in [worker for worker in busy if worker.stdout in ready]:
                key = busy.pop(worker)
                yield key, _answer(worker)
                following = _hand(worker, waiting)
                if following is not None:
                    busy[worker] = following
    finally:
        for worker in crew:
            worker.kill()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    pipe.close()
            worker.wait()


def _start() -> Worker:
    words = [sys.executable, "-m", "charllm.reproduce.workers", str(os.getpid())]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")


def _hand(worker: Worker, waiting: Iterator[tuple[str, Request]]) -> str | None:
    """Give a worker its next request and return its key; None where none is left."""
    key, request = next(waiting, (None, {}))
    if key is not None and worker.stdin is not None:
        worker.stdin.write(json.dumps(request) + "\n")
        worker.stdin.flush()
    return key


def _answer(worker: Worker) -> Row:
    line = worker.stdout.readline() if worker.stdout is not None else ""
    if not line.endswith("\n"):
        raise CharllmError(f"a worker process ended with exit code {worker.wait()}; start the command again to go on")
    row: Row = json.loads(line)
    return row


def main() -> None:
    """Answer requests until there are no more."""
    end_with(int(sys.argv[1]))
    # Nothing that a library prints may get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(look(json.loads(line))) + "\n")
        answers.flush()


FILE, FORMAT = "runs.jsonl", "charllm-rows 1"
ROOMS = ("spec", "gpu", "catalog", "layout", "workload", "network", "timeline", "simulate")
"""Whose sources decide what is predicted."""
Track = Callable[[Iterator[tuple[str, Row]], int, str], Iterable[tuple[str, Row]]]


def begin(folder: Path) -> Path:
    """Return the file of a folder, begun or to be continued; one of another version, catalog or source is refused."""
    file = folder / FILE
    if file.exists():
        with file.open(encoding="utf-8") as stream:
            if stream.readline().rstrip() != _head():
                said = "a folder that was begun with this version, catalog and sources, or a new one"
                raise SpecError("--out", str(folder), said)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(_head() + "\n", file)
    return file


def read_rows(file: Path) -> dict[str, Row]:
    """Read the rows that are kept; a line that was cut short is left out."""
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines()[1:]:
        try:
            entry = json.loads(line)
            found[entry["key"]] = entry["row"]
        except (ValueError, KeyError, TypeError):
            continue
    return found


def run_rows(requests: Sequence[Request], file: Path, workers: int, track: Track, title: str) -> dict[str, Row]:
    """Return the rows of all requests by key; those that are not kept yet are simulated, and kept as they come."""
    kept = read_rows(file)
    left = {key: request for request in requests if (key := key_of(request)) not in kept}
    if left:
        with file.open("a", encoding="utf-8") as stream:
            # A line that was cut short must not swallow the next one.
            stream.write("" if file.read_bytes().endswith(b"\n") else "\n")
            for key, row in track(spread(left, workers), len(left), title):
                stream.write(json.dumps({"key": key, "row": row}) + "\n")
                stream.flush()
                kept[key] = row
    return kept


@cache
def _head() -> str:
    source = hashlib.sha256()
    for room in ROOMS:
        for path in sorted(Path(str(resources.files("charllm") / room)).rglob("*.py")):
            source.update(path.read_bytes())
    parts = {"format": FORMAT, "charllm": __version__, "catalog": catalog_hash(), "source": source.hexdigest()[:16]}
    return json.dumps(parts)


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)
