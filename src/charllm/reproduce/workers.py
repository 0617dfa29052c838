"""Look at many runs in several processes.

    python -m charllm.reproduce.workers PARENT

A worker reads a request a line and answers with its row a line. It ends when its parent does.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping

from charllm.errors import CharllmError
from charllm.reproduce.looks import Row, look
from charllm.reproduce.paper import Request
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


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)
