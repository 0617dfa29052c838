"""Work through a study on this machine: in this process, or in several."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from pathlib import Path

from charllm.errors import SpecError
from charllm.sweep.case import Task, run_case
from charllm.sweep.folder import begin, case_folder, claimed
from charllm.sweep.outcome import Outcome, StudyResult
from charllm.sweep.pool import Numbered, run_in_workers
from charllm.sweep.study import Study

MAX_WORKERS = 256

Ended = tuple[int, Outcome]
Progress = Callable[[Iterator[Ended], int, str], Iterator[Ended]]
"""Yields what it is given; it is told how many there will be and of which study."""


def run_study(
    study: Study,
    *,
    workers: int = 1,
    out: Path | None = None,
    resume: bool = False,
    signals: bool = False,
    progress: Progress = lambda ended, _total, _title: ended,
) -> StudyResult:
    """Simulate every case of a study; with a folder, each case is stored as it ends and `resume` continues a sweep.

    Killed at any moment and continued, it gives the same result as undisturbed. Cases whose worker was killed are
    `failed`: they are not stored, and `resume` tries them again.
    """
    if not 1 <= workers <= MAX_WORKERS:
        raise SpecError("--workers", workers, f"1 to {MAX_WORKERS}")
    if out is None and (resume or signals):
        raise SpecError("--resume" if resume else "--signals", "no folder", "--out DIR")
    with claimed(out) if out is not None else nullcontext() as lock:
        done = begin(out, study, resume=resume, signals=signals) if out is not None else {}
        tasks = [
            Numbered(number, Task(case, case_folder(out, number) if out is not None else None, signals))
            for number, case in enumerate(study.cases)
            if number not in done
        ]
        with closing(_run(tasks, workers, lock)) as ended:
            done |= dict(progress(ended, len(tasks), study.name))
    return StudyResult(study, tuple(done[number] for number in range(len(study.cases))))


def _run(tasks: list[Numbered], workers: int, lock: int | None) -> Generator[Ended, None, None]:
    if workers == 1:
        return ((number, run_case(task)) for number, task in tasks)
    return run_in_workers(tasks, min(workers, len(tasks)), lock)
