"""Open what charllm has stored: a run, a study, an op benchmark; a record that was killed is finished first."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from charllm.errors import MissingExtra, SpecError
from charllm.result.files import CASE_FILE, HEADER_FILE, STUDY_FILE
from charllm.result.result import RunResult
from charllm.result.store import RESULT_FILE, load_run

if TYPE_CHECKING:
    from charllm.analysis.characterize import Character
    from charllm.sweep.outcome import StudyResult

OPS_FILE, OPS_LOG = "ops.csv", "ops.jsonl"
MAX_NAMED = 5


class OpsResult(NamedTuple):
    """The rows of an op benchmark."""

    rows: list[dict[str, Any]]


def load(path: Path, field: str = "PATH") -> RunResult | StudyResult | OpsResult:
    """Return what a folder holds, or what is in a result.json; a folder of anything else is refused."""
    study = path.parent if path.is_file() and path.name == STUDY_FILE else path
    if (study / STUDY_FILE).is_file():
        from charllm.sweep.folder import load_study_folder

        return load_study_folder(study)
    if path.is_file():
        return load_run(path)
    if (path / OPS_FILE).is_file() or (path / OPS_LOG).is_file():
        return OpsResult(_load_ops(path))
    if (path / RESULT_FILE).is_file():
        return load_run(path)
    if path.is_dir():
        from charllm.measure.finish import finish_record, is_record

        if is_record(path):
            return finish_record(path)
    raise SpecError(field, str(path), _describe_expected(path))


def load_one_run(path: Path) -> RunResult:
    """Return the run that a folder holds; a folder of something else is refused."""
    found = load(path, "RUN")
    if not isinstance(found, RunResult):
        raise SpecError("RUN", str(path), "the folder of one run" + _inside(path / "runs"))
    return found


def read_character(folder: Path) -> Character | None:
    """Say what the recording of a measured run shows; None for a folder without one."""
    from charllm.analysis.characterize import characterize
    from charllm.measure.parts import is_recording, merge, read_parts
    from charllm.measure.record import read_job

    if not is_recording(folder):
        return None
    job = read_job(folder)
    parts = read_parts(folder, job)
    whole = merge(job, parts)
    return characterize(whole.recording, whole.marks, {gpu: parts[at.node].name for gpu, at in whole.places.items()})


def _load_ops(folder: Path) -> list[dict[str, Any]]:
    """Read the table of an op benchmark; one that was killed is tabulated from the ops that had ended."""
    if not (folder / OPS_FILE).is_file():
        _tabulate_ops(folder)
    with (folder / OPS_FILE).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _tabulate_ops(folder: Path) -> None:
    try:
        from charllm.measure.bench.run import read_runs
        from charllm.measure.bench.suite import full_suite
        from charllm.measure.bench.table import tabulate, to_csv
        from charllm.measure.recording import read_recording
        from charllm.result.store import write_text
    except ImportError:
        raise MissingExtra("finishing an op benchmark needs torch", "torch") from None
    write_text(to_csv(tabulate(full_suite(), read_runs(folder), read_recording(folder))), folder / OPS_FILE)


def _describe_expected(path: Path) -> str:
    from charllm.sweep.folder import read_case

    if not path.exists():
        return "the folder of a run or of a study (no such file or folder)"
    rejected = read_case(path) if (path / CASE_FILE).is_file() else None
    if rejected is not None:
        return f"a case that was simulated; this one was rejected ({rejected.message})"
    return f"a folder with {RESULT_FILE}, {STUDY_FILE} or {HEADER_FILE}{_inside(path)}"


def _inside(folder: Path) -> str:
    """Name the runs and studies inside a folder, for one who has named the folder above them."""
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    known = [str(place) for place in places if any((place / name).is_file() for name in KNOWN)]
    more = f", ... ({len(known)} in all)" if len(known) > MAX_NAMED else ""
    return f"; such as {', '.join(known[:MAX_NAMED])}{more}" if known else ""


KNOWN = (RESULT_FILE, STUDY_FILE, HEADER_FILE)
