"""Random inputs through the command line: no traceback, no answer over 20 s, no invalid JSON.

    python -m benchmarks.fuzz [--inputs 100000] [--runs 10000] [--processes 300] [--workers 2] [--seed 0]

`inputs` are flags, settings, TOML, JSON, YAML, shell and files of all kinds; `runs` are those that reach the closed
loop; both are asked inside the process of a worker, `processes` inputs of a program of their own. Processor time
counts. Exit code 1 when anything is wrong; `--only KIND:NUMBER` repeats one input and prints it.
"""

import argparse
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.random_specs.answer import LONGEST_WAIT_S, Answer, ask, check_answer
from tests.random_specs.inputs import Input, draw_input, draw_run, write_files

DRAWN = {"input": draw_input, "run": draw_run, "process": draw_input}
BATCHES = {"input": 200, "run": 200, "process": 20}
SHOWN_FAULTS = 20


class Batch(NamedTuple):
    """What a worker found in some inputs of a kind."""

    kind: str
    asked: int
    simulated: int
    codes: dict[str, int]
    longest_s: float
    longest: str
    faults: list[str]
    peak_bytes: int


def draw(kind: str, seed: int, number: int) -> Input:
    """Draw one input; the same for the same numbers."""
    return DRAWN[kind](Random(f"{seed}/{kind}/{number}"))


def answer(kind: str, case: Input, folder: Path) -> Answer:
    """Ask the program, inside this process or in one of its own."""
    words = write_files(case, folder)
    if kind != "process":
        return ask(words, wants_json=case.wants_json)
    start = _children_s()
    words = [word.replace("\0", "") for word in words]
    command = [sys.executable, "-m", "charllm", *words]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=LONGEST_WAIT_S, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return Answer(None, LONGEST_WAIT_S, "no answer", False)
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    return check_answer(done.returncode, out, err, _children_s() - start, wants_json=case.wants_json)


def _children_s() -> float:
    """Return the processor time of the programs that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_batch(job: tuple[str, int, int, int]) -> Batch:
    """Ask some inputs of a kind."""
    kind, seed, first, count = job
    codes: Counter[str] = Counter()
    simulated, longest_s, longest, faults = 0, 0.0, "", list[str]()
    with tempfile.TemporaryDirectory(prefix="charllm-fuzz-") as folder:
        for number in range(first, first + count):
            case = draw(kind, seed, number)
            got = answer(kind, case, Path(folder))
            codes[str(got.code)] += 1
            simulated += got.simulated
            if got.seconds > longest_s:
                longest_s, longest = got.seconds, f"{kind}:{number}"
            if got.fault:
                faults.append(f"{kind}:{number} {got.fault}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Batch(kind, count, simulated, dict(codes), longest_s, longest, faults, peak)


def jobs(kind: str, seed: int, start: int = 0) -> Iterator[tuple[str, int, int, int]]:
    """Number batches without end."""
    while True:
        yield kind, seed, start, BATCHES[kind]
        start += BATCHES[kind]


def fuzz(kind: str, wanted: int, seed: int, workers: int) -> list[str]:
    """Ask until enough inputs were asked, or enough runs reached the loop; prints a summary and returns the faults."""
    began, asked, reached = time.perf_counter(), 0, 0
    codes: Counter[str] = Counter()
    longest, peak, faults = (0.0, ""), 0, list[str]()
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=50) as pool:
        source = jobs(kind, seed)
        waiting = [pool.apply_async(run_batch, (next(source),)) for _ in range(workers)]
        while waiting:
            done: Batch = waiting.pop(0).get()
            asked, reached = asked + done.asked, reached + done.simulated
            codes.update(done.codes)
            longest, peak = max(longest, (done.longest_s, done.longest)), max(peak, done.peak_bytes)
            faults += done.faults
            for fault in done.faults[:SHOWN_FAULTS]:
                print(f"  {fault}", flush=True)
            so_far = reached if kind == "run" else asked
            print(f"{kind}: {so_far:,} of {wanted:,}, {len(faults)} faults", file=sys.stderr, flush=True)
            if so_far + BATCHES[kind] * len(waiting) < wanted and len(faults) < 10 * SHOWN_FAULTS:
                waiting.append(pool.apply_async(run_batch, (next(source),)))
    elapsed = time.perf_counter() - began
    print(f"{kind}: {asked:,} asked, {reached:,} reached the loop, {len(faults)} faults; exit codes {dict(codes)};")
    print(
        f"  slowest {longest[0]:.2f} s ({longest[1]}), peak memory {peak / 2**20:.0f} MiB; {elapsed:.0f} s", flush=True
    )
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="KIND:NUMBER")
    arguments = parser.parse_args()
    if arguments.only:
        kind, _, number = arguments.only.partition(":")
        case = draw(kind, arguments.seed, int(number))
        with tempfile.TemporaryDirectory() as folder:
            print(case.words, case.content and case.content[:3000].decode("utf-8", "replace"))
            print(answer(kind, case, Path(folder)))
        return 0
    wanted = {"input": arguments.inputs, "run": arguments.runs, "process": arguments.processes}
    faults = [
        fault
        for kind, count in wanted.items()
        if count
        for fault in fuzz(kind, count, arguments.seed, arguments.workers)
    ]
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
