"""Work through a study on this machine: in this process, or in several."""

from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from charllm.catalog.resolve import resolve_run
from charllm.errors import CharllmError, DoesNotFit, SpecError
from charllm.result.store import save_run
from charllm.simulate.predict import simulate
from charllm.sweep.outcome import Outcome, from_line, summarise
from charllm.sweep.study import Case, Study
from charllm.workload.step import build_step
from charllm.workload.table import tabulate_step

OUTCOMES_FILE = "outcomes.jsonl"


def run_case(case: Case, folder: Path | None = None) -> Outcome:
    """Simulate one case, store it when there is a folder for it, and say what became of it."""
    try:
        spec = resolve_run(case.request)
        result = simulate(spec)
        if folder is not None:
            save_run(result, folder, tabulate_step(build_step(spec)))
    except CharllmError as error:
        return Outcome(case.name, error.exit_code, str(error), {})
    if result.metrics["fits"]:
        return Outcome(case.name, 0, "; ".join(result.warnings), summarise(result))
    reason = next(warning for warning in result.warnings if warning.startswith("memory"))
    return Outcome(case.name, DoesNotFit.exit_code, reason, summarise(result))


def run_study(study: Study, workers: int, out: Path | None, *, resume: bool) -> Generator[Outcome, None, None]:
    """Yield the outcome of every case; with a folder, each is on disk before it is yielded."""
    done = read_outcomes(out) if out and resume else {}
    if out:
        _prepare(out, resume=resume)
    yield from (done[case.name] for case in study.cases if case.name in done)
    waiting = [(case, _folder(out, index)) for index, case in enumerate(study.cases) if case.name not in done]
    if workers <= 1:
        fresh: Iterator[Outcome] = (run_case(case, folder) for case, folder in waiting)
        yield from _noted(fresh, out)
        return
    with ProcessPoolExecutor(workers) as pool:
        chunk = max(1, len(waiting) // (workers * 8))
        cases, folders = [case for case, _ in waiting], [folder for _, folder in waiting]
        yield from _noted(pool.map(run_case, cases, folders, chunksize=chunk), out)


def _prepare(out: Path, *, resume: bool) -> None:
    if out.exists() and not resume and any(out.iterdir()):
        raise SpecError("--out", str(out), "a folder that does not exist yet, or --resume")
    try:
        (out / "runs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError("--out", str(out), f"a folder that can be written ({error.strerror or error})") from None


def _folder(out: Path | None, index: int) -> Path | None:
    return out / "runs" / f"{index:04d}" if out else None


def _noted(outcomes: Iterator[Outcome], out: Path | None) -> Iterator[Outcome]:
    if out is None:
        yield from outcomes
        return
    with (out / OUTCOMES_FILE).open("a", encoding="utf-8") as file:
        for outcome in outcomes:
            file.write(outcome.to_line() + "\n")
            file.flush()
            yield outcome


def read_outcomes(out: Path) -> dict[str, Outcome]:
    """Return the outcomes stored in a folder, by case."""
    file = out / OUTCOMES_FILE
    if not file.exists():
        return {}
    read = (from_line(line) for line in file.read_text(encoding="utf-8").splitlines())
    return {outcome.case: outcome for outcome in read if outcome is not None}
