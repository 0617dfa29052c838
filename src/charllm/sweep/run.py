"""Work through a study on this machine: in this process, or in several."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from pathlib import Path

from charllm.errors import SpecError
from charllm.sweep.case import Task, run_case
from charllm.sweep.folder import begin, case_folder, claimed
from charllm.sweep.measured import Measuring, check_measuring, measure_case, prepare
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
    measuring: Measuring | None = None,
    progress: Progress = lambda ended, _total, _title: ended,
) -> StudyResult:
    """Simulate or measure every case; with a folder, each case is stored as it ends and `resume` continues a sweep.

    Killed at any moment and continued, it gives the same result as undisturbed. Cases whose worker was killed are
    `failed`: they are not stored, and `resume` tries them again.
    """
    if not 1 <= workers <= MAX_WORKERS:
        raise SpecError("--workers", workers, f"1 to {MAX_WORKERS}")
    if out is None and (resume or signals):
        raise SpecError("--resume" if resume else "--signals", "no folder", "--out DIR")
    if measuring is not None:
        check_measuring(measuring, workers=workers, signals=signals)
        if out is None:
            raise SpecError("--measure", "no folder", "--out DIR")
    how = None if measuring is None else measuring.as_table()
    with claimed(out) if out is not None else nullcontext() as lock:
        if out is not None and measuring is not None:
            prepare(out)
        done = begin(out, study, resume=resume, signals=signals, measured=how) if out is not None else {}
        tasks = [
            Numbered(number, Task(case, case_folder(out, number) if out is not None else None, signals))
            for number, case in enumerate(study.cases)
            if number not in done
        ]
        with closing(_run(tasks, workers, lock, measuring)) as ended:
            done |= dict(progress(ended, len(tasks), study.name))
    return StudyResult(study, tuple(done[number] for number in range(len(study.cases))))


def _run(
    tasks: list[Numbered], workers: int, lock: int | None, measuring: Measuring | None
) -> Generator[Ended, None, None]:
    if measuring is not None:
        return ((number, measure_case(task, number, measuring)) for number, task in tasks)
    if workers == 1:
        return ((number, run_case(task)) for number, task in tasks)
    return run_in_workers(tasks, min(workers, len(tasks)), lock)
