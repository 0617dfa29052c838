"""Run cases as array jobs of a Slurm cluster: chunks of cases, each an array task that stores folders as it goes.

    .slurm/17-0/chunks.json     the numbers of the cases of each array task
    .slurm/17-0/job             the number of the job, by which it is cancelled when nobody waits for it any more
    .slurm/17-0/log-3.txt       what array task 3 has printed
    .slurm/17-0/failed-3.jsonl  cases of it that failed, which have no folder

The folders of the cases say what is done, whatever Slurm says. Slurm itself restarts the tasks of a node that fails;
cases that are missing when a job has ended are submitted again, and reported when they are missing a third time.
"""

import json
import os
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from charllm.errors import CharllmError, SpecError
from charllm.measure.launchers.plan import Plan
from charllm.measure.launchers.slurm import (
    ALIVE,
    NEVER,
    SETUP_FAILED,
    Refused,
    ask_slurm,
    check_partition,
    setup_lines,
    submit_script,
)
from charllm.result.store import PRIVATE, explain, write_text
from charllm.sweep.case import fail_case
from charllm.sweep.chunk import CHUNKS_FILE, SPOKE
from charllm.sweep.folder import case_folder, read_case
from charllm.sweep.outcome import Outcome
from charllm.sweep.runners.work import SLURM_HOME, SLURM_WORKERS, Ended, Work

JOB_FILE, SCRIPT = "job", "job.sh"
TASKS_PER_WORKER, CASES_PER_TASK, MOST_TASKS = 4, 50, 1000
"""To start a task takes as long as fifty cases; an array has up to 1001 tasks unless Slurm is set up otherwise."""
SUBMISSIONS = 3
ASK_S, SLOWEST_S = 1.0, 10.0
"""Folder and queue are looked at this often at first, and less often while nothing happens."""
LATE_S = 2.0
"""A shared file system may show a folder so much later than it was written."""
CANCEL_S = 30.0


class Queue(NamedTuple):
    """What Slurm says of a job: array tasks by state, and why the first of them waits."""

    states: Counter[str]
    reason: str = ""

    @property
    def alive(self) -> bool:
        """Whether any of its tasks waits or runs."""
        return any(state in ALIVE for state in self.states)


class Job(NamedTuple):
    """A submitted array."""

    number: str
    place: Path


def run_on_slurm(work: Work) -> Generator[Ended, None, None]:
    """Yield outcomes as folders appear; an array that is no longer waited for is cancelled."""
    out = _check(work)
    left = set(work.numbers)
    said = ""
    for attempt in range(SUBMISSIONS):
        job, asked = _submit(work, out, sorted(left), attempt), len(left)
        work.show(f"Slurm job {job.number}: {_count(left)}")
        try:
            for number, outcome in _wait(work, out, job, left):
                left.discard(number)
                yield number, outcome
        except BaseException:
            ask_slurm(["scancel", job.number])
            raise
        if not left:
            shutil.rmtree(out / SLURM_HOME, ignore_errors=True)
            return
        said = _judge(job, nothing_ended=len(left) == asked)
        if attempt + 1 < SUBMISSIONS:
            work.show(f"Slurm job {job.number} has lost {_count(left)}{said}; submitting again")
    for number in sorted(left):
        yield number, fail_case(work.study.cases[number], f"lost in {SUBMISSIONS} Slurm jobs{said}")


def _count(left: set[int]) -> str:
    return "1 case" if len(left) == 1 else f"{len(left):,} cases"


def cancel_left(out: Path) -> None:
    """Cancel the jobs that a killed sweep has left, and see them gone: they would go on to store cases."""
    for file in out.glob(f"{SLURM_HOME}/*/{JOB_FILE}"):
        number = file.read_text(encoding="utf-8").strip()
        ask_slurm(["scancel", number])
        end_s = time.monotonic() + CANCEL_S
        while (queue := _ask_queue(number)) is not None and queue.alive and time.monotonic() < end_s:
            time.sleep(ASK_S)
    shutil.rmtree(out / SLURM_HOME, ignore_errors=True)


def _check(work: Work) -> Path:
    if work.out is None:
        raise SpecError("--runner", "slurm", "--out DIR, a folder that every node of the cluster can see")
    for tool in ("sbatch", "squeue", "scancel"):
        if shutil.which(tool) is None:
            raise SpecError("--runner", "slurm", f"a machine with Slurm: {tool} is not installed here")
    check_partition(work.engine.slurm.partition)
    return work.out.absolute()


def _submit(work: Work, out: Path, numbers: list[int], attempt: int) -> Job:
    """Divide cases into chunks and submit them as one array."""
    workers = work.workers or SLURM_WORKERS
    usual = max(workers, min(TASKS_PER_WORKER * workers, len(numbers) // CASES_PER_TASK))
    # Lost cases run one by one: a case that ends its task must not take others with it again.
    tasks = min(len(numbers), MOST_TASKS if attempt else usual, MOST_TASKS)
    place = out / SLURM_HOME / f"{os.getpid()}-{attempt}"
    try:
        place.mkdir(parents=True)
        # Neighbours are alike and take alike long: dealt out in turn, chunks take equally long.
        write_text(json.dumps([numbers[task::tasks] for task in range(tasks)]), place / CHUNKS_FILE)
        write_text(write_script(work.engine.slurm, place, tasks, workers), place / SCRIPT, PRIVATE)
        number = submit_script(work.engine.slurm, place / SCRIPT)
        write_text(number, place / JOB_FILE)
    except OSError as error:
        raise explain(out, error) from None
    return Job(number, place)


def write_script(plan: Plan, place: Path, tasks: int, workers: int) -> str:
    """Return the script of an array job, `workers` of whose tasks run at the same time."""
    asked = {
        "job-name": "charllm-sweep",
        "array": f"0-{tasks - 1}%{workers}",
        "ntasks": 1,
        "cpus-per-task": 1,
        # Slurm reads % in a file name as the start of a placeholder.
        "output": f"{str(place).replace('%', '%%')}/log-%a.txt",
        "partition": plan.partition,
        "account": plan.account,
        "time": plan.time,
    }
    lines = [f"#SBATCH --{name}={shlex.quote(str(value))}" for name, value in asked.items() if value is not None]
    lines += ["#SBATCH --requeue", "#SBATCH --open-mode=append"]
    words = shlex.join([*plan.prefix, sys.executable, "-m", "charllm.sweep.chunk", str(place)])
    body = [f"cd {shlex.quote(str(Path.cwd()))} || exit 2", *setup_lines(plan.setup, place)]
    return "\n".join(["#!/bin/bash", *lines, "", *body, f'exec {words} "$SLURM_ARRAY_TASK_ID"', ""])


def _wait(work: Work, out: Path, job: Job, left: set[int]) -> Iterator[Ended]:
    """Yield what is stored, until the job has ended and nothing more appears."""
    pause_s, over_s, shown = ASK_S, 0.0, ""
    while left:
        found = _look(out, job, left)
        yield from found
        queue = _ask_queue(job.number)
        if queue is None or queue.alive:
            shown = _report(work, job, queue, shown)
            over_s = 0.0
        else:
            over_s = over_s or time.monotonic()
            if time.monotonic() - over_s > LATE_S and not found:
                return
        pause_s = ASK_S if found or over_s else min(SLOWEST_S, 1.3 * pause_s)
        if left:
            time.sleep(pause_s)


def _look(out: Path, job: Job, left: set[int]) -> list[Ended]:
    """Return the cases that have been stored, or have failed, since the last look."""
    names = set(os.listdir(case_folder(out, 0).parent))
    stored = ((number, read_case(case_folder(out, number))) for number in sorted(left) if _name(out, number) in names)
    found = [(number, outcome) for number, outcome in stored if outcome is not None]
    for file in job.place.glob("failed-*.jsonl"):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        failed = (json.loads(line) for line in lines if line.endswith("\n"))
        found += [(entry["number"], Outcome(**entry["outcome"])) for entry in failed if entry["number"] in left]
    return found


def _name(out: Path, number: int) -> str:
    return case_folder(out, number).name


def _ask_queue(number: str) -> Queue | None:
    """Ask Slurm for the tasks of a job; None where it does not answer."""
    done = ask_slurm(["squeue", "--noheader", "--array", f"--jobs={number}", "--format=%T %r"])
    if done is None or (done.returncode and "Invalid job id" not in done.stderr):
        return None
    rows = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.strip()]
    reasons = (row[1] for row in rows if row[0] == "PENDING" and len(row) > 1)
    return Queue(Counter(row[0] for row in rows), next(reasons, ""))


def _report(work: Work, job: Job, queue: Queue | None, shown: str) -> str:
    """Say how a job stands where that has changed; one that can never start is refused."""
    if queue is not None and set(queue.states) == {"PENDING"} and queue.reason in NEVER:
        raise Refused(f"Slurm job {job.number} can never start ({queue.reason}): expected a partition and time it can")
    text = "does not answer; still trying" if queue is None else ""
    if queue is not None and not queue.states["RUNNING"]:
        text = f"waits for nodes ({queue.reason})" if queue.reason not in ("", "None") else "waits for nodes"
    if text and text != shown:
        work.show(f"Slurm job {job.number} {text}")
    return text


def _judge(job: Job, *, nothing_ended: bool) -> str:
    """Return the last line that a task of a job has printed; what no other task can do better is raised."""
    refused = job.place / SETUP_FAILED
    if refused.is_file() and nothing_ended:
        raise Refused(f"--setup failed: {refused.read_text(encoding='utf-8', errors='replace').strip()}")
    said = ""
    for log in sorted(job.place.glob("log-*.txt"), key=lambda path: path.stat().st_mtime):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        said = lines[-1].strip() if lines else said
        if said.startswith(SPOKE):
            raise CharllmError(said.removeprefix(SPOKE))
    return f" ({said})" if said else ""
