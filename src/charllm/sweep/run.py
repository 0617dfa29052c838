"""Work through a study: simulate its cases on a runner, or measure them one after another."""

from array import array
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from pathlib import Path

from charllm.errors import SpecError
from charllm.spec.flags import check_flags
from charllm.sweep.folder import begin, claimed
from charllm.sweep.measured import Measuring, check_measuring, measure_case, prepare
from charllm.sweep.outcome import StudyResult
from charllm.sweep.runners import RUNNERS
from charllm.sweep.runners.work import RAY, SLURM_HOME, Ended, Engine, Work
from charllm.sweep.study import Study

LOCALLY = Engine()

Progress = Callable[[Iterator[Ended], int, str], Iterator[Ended]]
"""Yields what it is given; it is told how many there will be and of which study."""


def run_study(
    study: Study,
    *,
    engine: Engine = LOCALLY,
    out: Path | None = None,
    resume: bool = False,
    signals: bool = False,
    measuring: Measuring | None = None,
    progress: Progress = lambda ended, _total, _title: ended,
    show: Callable[[str], None] = lambda _text: None,
) -> StudyResult:
    """Simulate or measure every case; with a folder, each case is stored as it ends and `resume` continues a sweep.

    Killed at any moment and continued, on the same runner or on another, it gives the same result as undisturbed. Cases
    whose worker was killed are `failed`: they are not stored, and `resume` tries them again.
    """
    _check(engine, out, resume=resume, signals=signals, measuring=measuring)
    how = None if measuring is None else measuring.as_table()
    with claimed(out) if out is not None else nullcontext() as lock:
        if out is not None and (out / SLURM_HOME).is_dir():
            from charllm.sweep.runners.slurm import cancel_left

            cancel_left(out)
        if out is not None and measuring is not None:
            prepare(out)
        done = begin(out, study, resume=resume, signals=signals, measured=how) if out is not None else {}
        left = array("q", (number for number in range(len(study.cases)) if number not in done))
        if left:
            with closing(_run(Work(study, left, engine, out, lock, signals, show), measuring)) as ended:
                done |= dict(progress(ended, len(left), study.name))
    return StudyResult(study, tuple(done[number] for number in range(len(study.cases))))


def _run(work: Work, measuring: Measuring | None) -> Generator[Ended, None, None]:
    if measuring is not None:
        return ((number, measure_case(work.task(number), number, measuring)) for number in work.numbers)
    return RUNNERS[work.engine.runner](work)


def _check(engine: Engine, out: Path | None, *, resume: bool, signals: bool, measuring: Measuring | None) -> None:
    """Refuse what cannot be asked for together."""
    check_flags(engine)
    if engine.address is not None and engine.runner != RAY:
        raise SpecError("--address", engine.address, "--runner ray with this flag")
    if out is None and (resume or signals):
        raise SpecError("--resume" if resume else "--signals", "no folder", "--out DIR")
    if measuring is not None:
        check_measuring(measuring, workers=engine.workers or 1, signals=signals)
        if out is None:
            raise SpecError("--measure", "no folder", "--out DIR")
