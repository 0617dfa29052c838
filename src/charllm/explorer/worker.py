"""A process that computes answers for the explorer.

    python -m charllm.explorer.worker PARENT NICE [STORE]

A job is a line of JSON on stdin, its answer one line on stdout: the event, a space, its data as JSON. Lines of the same
form before it say how far it is. Whatever arrives on stdin during a job means that nobody waits for it any more. It
ends when its stdin closes and, on Linux, at the very moment that its parent ends.
"""

import json
import os
import select
import sys
from functools import _lru_cache_wrapper
from pathlib import Path

from charllm.sweep.worker import end_with

WARM = {"model": "llama3-8b", "cluster": "h200x8", "tp": 2, "pp": 2, "gbs": 32}
"""Simulated before the first job, so that machine code is compiled or loaded by then."""
JOBS_BETWEEN, MOST_REMEMBERED = 100, 256
"""How often a worker looks at what its functions remember, and how many results each may keep then."""


def main() -> None:
    """Answer the jobs that come in on stdin."""
    end_with(int(sys.argv[1]))
    # Nothing that a library prints may get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # The imports take a second, in which the parent may end too: hence not above.
    from charllm.explorer.answers import Stopped, Waiting, write_answer
    from charllm.explorer.fence import bound_memory, fence_reads

    inbox = _Inbox()

    def check() -> None:
        if inbox.has_more():
            raise Stopped

    def tell(line: str) -> None:
        print(line, file=answers, flush=True)

    waiting = Waiting(check, tell)
    for kind in ("fast", "coupled"):
        write_answer({"kind": kind, "words": WARM}, Waiting(lambda: None, lambda _line: None))
    # Not before: somebody may wait for a worker to start.
    os.nice(int(sys.argv[2]))
    bound_memory()
    fence_reads(Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    print("ready {}", file=answers, flush=True)
    done = 0
    while (line := inbox.take()) is not None:
        if line != b"stop":
            tell(write_answer(json.loads(line), waiting))
            done += 1
            if done % JOBS_BETWEEN == 0:
                forget_much(MOST_REMEMBERED)


def forget_much(most: int) -> None:
    """Empty the caches of charllm's functions that hold more: nearly every request has a cluster of its own."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("charllm.")]
    for found in {id(value): value for module in modules for value in vars(module).values()}.values():
        if isinstance(found, _lru_cache_wrapper) and found.cache_info().currsize > most:
            found.cache_clear()


class _Inbox:
    """Lines of stdin as they come."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._begun = b""

    def take(self) -> bytes | None:
        """Wait for the next line; None where no more will come."""
        while not self._lines:
            block = os.read(0, 1 << 16)
            if not block:
                return None
            *self._lines, self._begun = (self._begun + block).split(b"\n")
        return self._lines.pop(0)

    def has_more(self) -> bool:
        """Tell whether a line has arrived, or the end."""
        return bool(self._lines) or bool(select.select([0], [], [], 0)[0])


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)
