"""Change one small thing at a time in a copy of charllm and see whether a test notices.

    python -m benchmarks.mutation.run [--count 300] [--seed 1] [--workers 2] [--only PATH] [--tests PATH ...]

The chosen tests (`TESTS`) run once as they are, which also tells which of them execute which lines. For each mutant
those that execute the changed statement run, the nearest and quickest first, until one fails or takes far too long.
Survivors are printed with their place and change; `equivalent.csv` lists changes that change nothing, with the reason.
"""

import argparse
import csv
import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from benchmarks.mutation.coverage_map import (
    QUIET,
    Executed,
    Sources,
    merge_files,
    record_map,
    split_by_file,
    tests_of_line,
)
from benchmarks.mutation.mutants import Mutant, apply_mutant, draw_mutants

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "mutation"
EQUIVALENT = Path(__file__).with_name("equivalent.csv")
PACKAGE = Path("src", "charllm")
FOLDERS = ("gpu", "network", "timeline", "simulate", "plan", "workload")
TESTS = (*(f"tests/{folder}" for folder in FOLDERS), "tests/golden", "tests/physics")
LONGEST_S = 180.0
"""What the chosen tests may take in all, and those of one mutant."""
STAGES_S = (4.0, 25.0)
"""Tests run in up to three programs, each up to so many seconds: most mutants fall to the first."""
LIBRARIES = ("numba", "hypothesis", "torch", "scipy.optimize", "duckdb", "ortools.sat.python.cp_model", "yaml")
"""Imported once; every program that runs tests is a fork of this one."""


class Outcome(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    end: str
    """killed, survived, or untested: no test executes it."""
    test: str
    seconds: float


class Chosen:
    """A pytest plugin that runs given tests in their order, and says which failed first."""

    def __init__(self, tests: list[str]) -> None:
        self.places = {test: place for place, test in enumerate(tests)}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((one for one in items if one.nodeid in self.places), key=lambda one: self.places[one.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def main() -> None:
    """Draw mutants, run them, print the survivors and the share that was killed."""
    options = parser().parse_args()
    slots = [prepare_slot(BUILD / f"copy{number}") for number in range(options.workers)]
    for name in LIBRARIES:
        __import__(name)
    found = baseline(slots, tuple(options.tests))
    mutants = draw_mutants(slots[0] / PACKAGE, FOLDERS, options.count, options.seed)
    mutants = [one for one in mutants if options.only in one.file]
    # A run that is interrupted has tried a fair part of them.
    Random(options.seed).shuffle(mutants)
    outcomes = run_mutants(slots, mutants, found, options.limit_s)
    print_outcomes(outcomes)


def parser() -> argparse.ArgumentParser:
    """Declare the arguments."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--count", type=int, default=300, help="mutants to draw")
    made.add_argument("--seed", type=int, default=1, help="same seed and sources: same mutants")
    made.add_argument("--workers", type=int, default=2, help="mutants at a time")
    made.add_argument("--only", default="", help="only mutants of files whose path contains this")
    made.add_argument("--limit-s", type=float, default=LONGEST_S, help="what the tests of one mutant may take")
    made.add_argument("--tests", nargs="+", default=TESTS, help="files or folders of tests")
    return made


def prepare_slot(slot: Path) -> Path:
    """Copy the working tree, without what git ignores; times are kept, so that compiled code stays valid."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    shutil.rmtree(slot, ignore_errors=True)
    for name in listed:
        if name and (ROOT / name).is_file():
            (slot / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, slot / name)
    return slot


def baseline(slots: list[Path], tests: tuple[str, ...]) -> Executed:
    """Run the chosen tests as they are; what a file of tests executed is kept until it or the sources change."""
    kept = BUILD / "executed.pickle"
    known: dict[str, Executed] = pickle.loads(kept.read_bytes()) if kept.exists() else {}
    wanted = {digest: file for file, digest in digest_tests(slots[0], tests).items()}
    parts = record_parts(slots, [file for digest, file in wanted.items() if digest not in known])
    known |= {digest: parts[file] for digest, file in wanted.items() if file in parts}
    kept.write_bytes(pickle.dumps({digest: known[digest] for digest in wanted if digest in known}))
    found = merge_files([known[digest] for digest in wanted if digest in known])
    if found.failed:
        print(f"left out, because they fail without a mutant: {', '.join(found.failed)}")
    print(f"{len(found.seconds)} tests take {sum(found.seconds.values()):.0f} s under coverage.py", flush=True)
    return found


def record_parts(slots: list[Path], files: list[str]) -> dict[str, Executed]:
    """Return what files of tests execute: each copy of the package runs its share of them."""

    def record(number: int, slot: Path) -> int:
        found = record_map(slot / PACKAGE, FOLDERS, files[number :: len(slots)])
        (slot / "executed.pickle").write_bytes(pickle.dumps(split_by_file(found)))
        return 0

    def work(number: int, slot: Path) -> None:
        log = BUILD / f"baseline{number}.log"
        in_a_fork(slot, lambda: record(number, slot), log, 10 * LONGEST_S)
        if not (slot / "executed.pickle").exists():
            raise SystemExit(f"the tests cannot be run: see {log}")

    each_in_a_process(work, slots[: len(files)])
    parts: dict[str, Executed] = {}
    for slot in slots[: len(files)]:
        parts |= pickle.loads((slot / "executed.pickle").read_bytes())
    if left := sorted({*files} - {*parts}):
        raise SystemExit(f"these tests did not run: {', '.join(left)}; see {BUILD}/baseline*.log")
    return parts


def digest_tests(slot: Path, tests: tuple[str, ...]) -> dict[str, str]:
    """Return for each file of tests a digest of all that decides what it executes."""
    parts = [slot / one for one in tests]
    files = sorted(file for part in parts for file in (part.rglob("test_*.py") if part.is_dir() else [part]))
    helpers = [path for path in (slot / "tests").rglob("*.py") if not path.name.startswith("test_")]
    # Nothing but its own tests reads what a folder keeps as JSON, nor imports what writes it.
    common = [path for path in helpers if not any(path.parent.glob("*.json"))]
    shared = sha256()
    for path in sorted([*(slot / PACKAGE).rglob("*.py"), *(slot / PACKAGE).rglob("*.toml"), *common]):
        shared.update(path.read_bytes())
    found = {}
    for file in files:
        digest = shared.copy()
        for path in [file, *sorted([*file.parent.glob("*.json"), *(set(helpers) & set(file.parent.glob("*.py")))])]:
            digest.update(path.read_bytes())
        found[str(file.relative_to(slot))] = digest.hexdigest()
    return found


def run_mutants(slots: list[Path], mutants: list[Mutant], found: Executed, limit_s: float) -> list[Outcome]:
    """Share mutants out over copies of the package, a process each, and return what became of them."""
    sources = Sources(slots[0] / PACKAGE, FOLDERS)

    def work(number: int, slot: Path) -> None:
        with (slot / "outcomes.jsonl").open("w") as file:
            for mutant in mutants[number :: len(slots)]:
                outcome = run_mutant(slot, mutant, sources, found, limit_s)
                print(json.dumps(outcome), file=file, flush=True)
                print(describe(outcome), flush=True)

    each_in_a_process(work, slots)
    return sorted(outcome for slot in slots for outcome in read_outcomes(slot / "outcomes.jsonl"))


def each_in_a_process(work: Callable[[int, Path], None], slots: list[Path]) -> None:
    """Do work for each copy of the package, all at once."""
    workers = []
    for number, slot in enumerate(slots):
        if worker := os.fork():
            workers.append(worker)
            continue
        status = 1
        try:
            work(number, slot)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    ends = [os.waitpid(worker, 0)[1] for worker in workers]
    if any(ends):
        raise SystemExit("a worker ended early")


def read_outcomes(path: Path) -> Iterator[Outcome]:
    """Yield the outcomes that a worker has written."""
    for line in path.read_text().splitlines():
        mutant, *rest = json.loads(line)
        yield Outcome(Mutant(*mutant), *rest)


def run_mutant(slot: Path, mutant: Mutant, sources: Sources, found: Executed, limit_s: float) -> Outcome:
    """Change one file of a copy, run the tests that execute the change, and change it back."""
    start = time.perf_counter()
    path = slot / PACKAGE / mutant.file
    original, times = path.read_bytes(), path.stat()
    tests = order_tests(tests_of_line(sources, found, mutant.file, mutant.line, set()), mutant.file, found)
    path.write_bytes(apply_mutant(original, mutant))
    end, failed = ("survived", "") if tests else ("untested", "")
    try:
        for stage in split_stages(tests, found.seconds, limit_s):
            log, seconds = slot / "pytest.log", sum(found.seconds[test] for test in stage)
            end, failed = run_tests(slot, stage, log, 60 + 5 * seconds)
            if end == "killed":
                break
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return Outcome(mutant, end, failed, time.perf_counter() - start)


def order_tests(executing: set[str], file: str, found: Executed) -> list[str]:
    """Sort the tests of all files with a test that executes a change.

    First come those that were seen to execute it; of these and of the rest the quickest. Tests of the file itself and
    whole results find most: they count as quicker than tests of the folder, and those as quicker than others.
    """
    folder, name = file.split("/", 1)
    nearest = {f"tests/{folder}/test_{name}": 1, "tests/golden/": 1, f"tests/{folder}/": 3, "": 10}
    files = {test.split("::")[0] for test in executing}
    tests = [test for test in found.seconds if test.split("::")[0] in files and test not in found.failed]

    def rank(test: str) -> tuple[bool, float]:
        weight = next(weight for start, weight in nearest.items() if test.startswith(start))
        return test not in executing, found.seconds[test] * weight

    return sorted(tests, key=rank)


def split_stages(tests: list[str], seconds: dict[str, float], limit_s: float) -> Iterator[list[str]]:
    """Split ordered tests where their time reaches the limit of a stage; what is beyond the last is left out."""
    limits_s = (*(one for one in STAGES_S if one < limit_s), limit_s)
    stages: list[list[str]] = [[] for _ in limits_s]
    total_s = 0.0
    for test in tests:
        total_s += seconds[test]
        for stage, limit_s in zip(stages, limits_s, strict=True):
            if total_s <= limit_s or (test == tests[0]):
                stage.append(test)
                break
    return (stage for stage in stages if stage)


def run_tests(slot: Path, tests: list[str], log: Path, limit_s: float) -> tuple[str, str]:
    """Run tests in a fork until one fails; returns killed or survived, and the test that failed."""
    said = slot / "failed.txt"
    said.unlink(missing_ok=True)
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))

    def run() -> int:
        plugin = Chosen(tests)
        status = pytest.main([*QUIET, "-x", "--tb=line", *files], plugins=[plugin])
        said.write_text(plugin.failed or f"{pytest.ExitCode(status).name.lower()} while tests were collected")
        return int(status)

    status = in_a_fork(slot, run, log, limit_s)
    if status == 0:
        return "survived", ""
    return "killed", said.read_text() if said.exists() else f"ended by signal {status & 127}"


def in_a_fork(slot: Path, work: Callable[[], int], log: Path, limit_s: float) -> int:
    """Do work in a fork whose charllm is that of a copy; returns its status, which a signal gives after the limit."""
    if child := os.fork():
        return os.waitpid(child, 0)[1]
    status = 70
    try:
        # Seconds of the processor: a busy machine kills no mutant. One that sleeps for ever ends by the clock.
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s)))
        signal.alarm(int(10 * limit_s))
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.chdir(slot)
        sys.path[:0] = [str(slot / "src"), str(slot)]
        sys.dont_write_bytecode = True
        os.environ |= {"PYTHONPATH": str(slot / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def print_outcomes(outcomes: list[Outcome]) -> None:
    """Print the survivors and the share that was killed, over all but those that are known to change nothing."""
    with EQUIVALENT.open(newline="") as file:
        equivalent = {(row["file"], row["function"], row["before"], row["after"]) for row in csv.DictReader(file)}
    living = [one for one in outcomes if one.end != "killed"]
    same = [one for one in living if one.mutant.key in equivalent]
    survivors = [one for one in living if one.mutant.key not in equivalent]
    print("\nSurvivors")
    for one in survivors:
        print(describe(one))
    counted, killed = len(outcomes) - len(same), len(outcomes) - len(living)
    print(f"\n{killed} of {counted} mutants killed: {killed / max(1, counted):.1%}; {len(same)} more change nothing")


def describe(outcome: Outcome) -> str:
    """Write an outcome as a line."""
    mutant = outcome.mutant
    before, after = (" ".join(text.split()) for text in (mutant.before, mutant.after))
    return (
        f"{outcome.end:8} {outcome.seconds:5.1f} s  {mutant.file}:{mutant.line}  {before}  ->  {after}  {outcome.test}"
    )


if __name__ == "__main__":
    main()
