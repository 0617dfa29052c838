"""A study on disk, which one sweep at a time may write.

    study.json          the study, and the version and catalog it was begun with
    runs/0003/          the fourth case, there whole or not at all: case.json (its outcome), result.json

Nothing is kept anywhere else: a case is done when its folder is there.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from charllm import __version__
from charllm.catalog.tables import catalog_hash
from charllm.errors import SpecError
from charllm.result.files import CASE_FILE, STUDY_FILE
from charllm.result.store import RESULT_FILE, explain, write_text
from charllm.spec.request import Table, parse_json, read_text
from charllm.spec.shape import check_shape
from charllm.sweep.axes import list_settings
from charllm.sweep.outcome import Outcome, StudyResult, from_line
from charllm.sweep.study import Study, unfold

FORMAT, VERSION = "charllm-study", 1
LOCK_FILE, RUNS = ".lock", "runs"
LOCK_WAIT_S, LOCK_POLL_S = 10.0, 0.05
"""Workers of a sweep that was killed hold its folder for an instant longer."""
MAX_CHANGES = 5
KEPT = (("charllm", "charllm"), ("catalog", "catalog"), ("signals", "--signals"), ("measured", "--measure"))
"""What must be the same when a study is continued: its key, and what it is called."""


class Header(TypedDict):
    """The shape of study.json."""

    format: str
    version: int
    name: str
    charllm: str
    catalog: str
    signals: bool
    measured: NotRequired[dict[str, Any] | None]
    files: NotRequired[dict[str, str]]
    table: dict[str, Any]


def case_folder(out: Path, number: int) -> Path:
    """Return the folder of a case."""
    return out / RUNS / f"{number:04d}"


@contextmanager
def claimed(out: Path) -> Iterator[int]:
    """Hold a folder against other sweeps; the operating system lets go of it when its last holder ends or is killed.

    Yields the open lock, for workers to hold too: a folder is free only when nobody can write into it any more.
    """
    if out.exists() and not _may_hold_study(out):
        raise SpecError("--out", str(out), "a folder that does not exist yet, an empty one, or that of a study")
    try:
        (out / RUNS).mkdir(parents=True, exist_ok=True)
        lock = os.open(out / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise explain(out, error) from None
    try:
        _lock(lock, out)
        yield lock
    finally:
        os.close(lock)


def _may_hold_study(out: Path) -> bool:
    """Tell whether a study may be written here: a sweep may have been killed before it had written its first file."""
    if not out.is_dir():
        return False
    begun = all(entry.name.startswith(".") or entry.name == RUNS for entry in out.iterdir())
    return begun or (out / STUDY_FILE).exists()


def _lock(lock: int, out: Path) -> None:
    end_s = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > end_s:
                owner = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
                said = f"a folder that no other sweep is writing (process {owner} is)"
                raise SpecError("--out", str(out), said) from None
            time.sleep(LOCK_POLL_S)
        except OSError as error:
            raise SpecError("--out", str(out), f"a file system with locks ({error.strerror or error})") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)


def begin(out: Path, study: Study, *, resume: bool, signals: bool, measured: Table | None = None) -> dict[int, Outcome]:
    """Write down what is swept, or check that it is still the same; return the cases that are done, by number."""
    header = _describe(study, signals=signals, measured=measured)
    # A damaged case is refused before anything is written.
    found = read_cases(out, study)
    if (out / STUDY_FILE).exists():
        if not resume:
            raise SpecError("--out", str(out), "a folder that does not exist yet, or --resume to continue this sweep")
        changes = _changes(load_header(out), header)
        if changes:
            listed = "; ".join(changes[:MAX_CHANGES])
            more = f"; and {len(changes) - MAX_CHANGES} more" if len(changes) > MAX_CHANGES else ""
            said = f"the study that was started in this folder, or another --out; changed since: {listed}{more}"
            raise SpecError("--resume", str(out), said)
    else:
        try:
            write_text(json.dumps(header, indent=1), out / STUDY_FILE)
        except OSError as error:
            raise explain(out, error) from None
    done = {number: outcome for number, outcome in found.items() if _is_whole(case_folder(out, number))}
    kept = {case_folder(out, number) for number in done}
    for place in (out / RUNS).iterdir():
        # Drafts of a sweep that was killed, and what a failing disk has spoiled.
        if place.is_file():
            place.unlink()
        elif place not in kept:
            shutil.rmtree(place, ignore_errors=True)
    return done


def _is_whole(folder: Path) -> bool:
    """Tell whether the files of a case have outlived a loss of power: those that were not on the disk yet are empty."""
    file = folder / RESULT_FILE
    return not file.exists() or file.stat().st_size > 0


def read_cases(out: Path, study: Study) -> dict[int, Outcome]:
    """Return the cases that are done, by number."""
    found = ((number, read_case(case_folder(out, number))) for number in range(len(study.cases)))
    return {number: outcome for number, outcome in found if outcome is not None}


def read_case(folder: Path) -> Outcome | None:
    """Return the outcome of a stored case; None where it is not done."""
    try:
        return from_line((folder / CASE_FILE).read_text(encoding="utf-8"), folder / CASE_FILE)
    except (OSError, UnicodeDecodeError):
        return None


def load_study_folder(out: Path) -> StudyResult:
    """Read a study back, as far as it is done."""
    header = load_header(out)
    study = unfold(str(header["name"]), header["table"])
    done = read_cases(out, study)
    return StudyResult(study, tuple(done[number] for number in sorted(done)))


def _describe(study: Study, *, signals: bool, measured: Table | None) -> Table:
    """Return all that the outcomes of a study depend on."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": study.name,
        "charllm": __version__,
        "catalog": catalog_hash(),
        "signals": signals,
        "measured": measured,
        "files": _files(study.table),
        "table": study.table,
    }


def _files(value: Any) -> dict[str, str]:
    """Return a fingerprint of every file that a study names (a model, a cluster, a placement)."""
    if isinstance(value, Mapping):
        return {name: mark for item in value.values() for name, mark in _files(item).items()}
    if isinstance(value, list):
        return {name: mark for item in value for name, mark in _files(item).items()}
    if isinstance(value, str) and Path(value).suffix in (".toml", ".json") and Path(value).is_file():
        return {value: hashlib.sha256(read_text(value, "STUDY").encode()).hexdigest()}
    return {}


def load_header(out: Path) -> Table:
    """Read what a folder was begun with: the study, and all that its outcomes depend on."""
    path = out / STUDY_FILE
    header = parse_json(read_text(path, "STUDY"), str(path), "STUDY")
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise SpecError("STUDY", str(path), f"a file in the format {FORMAT}")
    check_shape(header, Header, path)
    if header.get("version") != VERSION:
        raise SpecError("STUDY", f"{path}, version {header.get('version')}", f"version {VERSION}")
    return header


def _changes(before: Table, now: Table) -> list[str]:
    """Say in which points the study differs from the one that a folder was begun with."""
    found = [f"{what} {before.get(name)} -> {now[name]}" for name, what in KEPT if before.get(name) != now[name]]
    old_files, new_files = before.get("files", {}), now["files"]
    found += [f"file {name}" for name in {**old_files, **new_files} if old_files.get(name) != new_files.get(name)]
    if before["table"] != now["table"]:
        found += _case_changes(unfold("before", before["table"]), unfold("now", now["table"]))
    return found


def _case_changes(before: Study, now: Study) -> list[str]:
    old = {case.name: list_settings(case.request) for case in before.cases}
    new = {case.name: list_settings(case.request) for case in now.cases}
    found = [f"case '{name}' was removed" for name in old if name not in new]
    found += [f"case '{name}' is new" for name in new if name not in old]
    for name in (name for name in new if name in old):
        fields = dict.fromkeys((*old[name], *new[name]))
        found += [
            f"case '{name}': {field} {old[name].get(field)} -> {new[name].get(field)}"
            for field in fields
            if old[name].get(field) != new[name].get(field)
        ]
    if not found and [case.name for case in before.cases] != [case.name for case in now.cases]:
        found.append("the order of the cases")
    return found
