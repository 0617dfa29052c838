"""Structured mutations of everything that charllm reads: no traceback, no answer over 10 s, no file outside the output.

    python -m benchmarks.hostile_input [--count 100000] [--seed 0] [--kind KIND] [--from 0] [--only KIND:NUMBER]

Cases (`tests/hostile/kinds.py`) are asked inside a worker with limits of time and memory, which is replaced when it
dies or hangs. Prints what each kind ended in, and every fault with its case; exit code 1 where there is one.
"""

import argparse
import json
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from tests.hostile.attempt import LONGEST_WAIT_S, OUT_OF_MEMORY, Answer, attempt, draw_kind
from tests.hostile.originals import make_originals

HUNG_S = LONGEST_WAIT_S + 30.0
CASES_PER_WORKER = 2000
"""A worker is replaced after so many, so that what it has cached cannot hide anything."""


class Worker:
    """A process that answers cases."""

    def __init__(self, originals: Path) -> None:
        command = [sys.executable, "-m", "tests.hostile.attempt", str(originals)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.answered = 0

    def ask(self, kind: str, seed: int, number: int) -> Answer:
        """Return the answer; a worker that dies or hangs is a fault."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        case = f"{kind}:{number}"
        self.answered += 1
        try:
            self._process.stdin.write(json.dumps([kind, seed, number]) + "\n")
            self._process.stdin.flush()
            if not select.select([self._process.stdout], [], [], HUNG_S)[0]:
                return Answer(case, [], None, HUNG_S, "", "no answer: the worker hangs where no signal reaches it")
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            return Answer(*json.loads(line))
        code = self._process.wait()
        why = "more than 2 GiB of memory" if code == OUT_OF_MEMORY else f"the worker died: exit code {code}"
        return Answer(case, [], None, 0.0, "", why)

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def run_cases(count: int, seed: int, only: str | None, first: int, originals: Path) -> list[Answer]:
    """Ask cases; prints a summary by kind and returns the faults."""
    codes: dict[str, Counter[str]] = defaultdict(Counter)
    faults: list[Answer] = []
    longest = Answer("", [], 0, 0.0, "", None)
    worker, began_s = Worker(originals), time.monotonic()
    for number in range(first, first + count):
        kind = only or draw_kind(seed, number)
        answer = worker.ask(kind, seed, number)
        codes[kind]["fault" if answer.fault else f"exit {answer.code}"] += 1
        longest = max(longest, answer, key=lambda one: one.seconds)
        if answer.fault:
            faults.append(answer)
            print(f"{answer.case} {' '.join(answer.words)}\n  {answer.fault}", flush=True)
        if answer.code is None or worker.answered >= CASES_PER_WORKER:
            worker.stop()
            worker = Worker(originals)
        if (number + 1 - first) % 500 == 0:
            print(
                f"{number + 1 - first:,} of {count:,}, {len(faults)} faults, {time.monotonic() - began_s:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    worker.stop()
    for kind, found in sorted(codes.items()):
        ends = ", ".join(f"{name} {each:,}" for name, each in sorted(found.items()))
        print(f"{kind}: {found.total():,} cases; {ends}")
    print(f"{count:,} cases, {len(faults)} faults, slowest {longest.seconds:.1f} s ({longest.case})")
    return faults


def main() -> int:
    """Ask as many as wanted, or one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind")
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--only", metavar="KIND:NUMBER")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hostile-originals-") as place:
        originals = Path(place)
        make_originals(originals)
        if arguments.only:
            kind, _, number = arguments.only.rpartition(":")
            print(attempt(kind, arguments.seed, int(number), originals))
            return 0
        return 1 if run_cases(arguments.count, arguments.seed, arguments.kind, arguments.first, originals) else 0


if __name__ == "__main__":
    sys.exit(main())
