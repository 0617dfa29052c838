"""The stored runs and studies under one folder: listed in bounded time, and nothing outside of it is ever opened."""

import os
import stat
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from charllm.errors import CharllmError, SpecError, Words
from charllm.measure.live.watcher import Watcher
from charllm.measure.record import JOB_FILE, NODES
from charllm.report.page.planned import PLAN_FILE, check_plan, is_plan
from charllm.result.answers import describe_spec
from charllm.result.files import SAMPLES_FILE, STUDY_FILE
from charllm.result.result import from_json
from charllm.result.store import RESULT_FILE
from charllm.spec.request import dotted_fields, parse_json, read_text
from charllm.units import MIB, format_bytes

MOST_FOLDERS, MOST_ENTRIES, DEEPEST = 20_000, 1_000, 6
LONGEST_S = 2.0
"""What is not looked at by then is left out, and said so."""
MOST_TITLE_BYTES, MOST_FILE_BYTES = int(4 * MIB), int(256 * MIB)
"""A larger result is listed by its name alone; a larger file is not opened."""
TOLD_APART = ("parallelism", "training", "conditions")
"""Parts of a spec whose settings tell runs with the same title apart."""
MOST_DIFFERENCES = 4
STORED_FILES = (RESULT_FILE, STUDY_FILE, PLAN_FILE)
RECORDING_FILES = (SAMPLES_FILE, JOB_FILE, NODES)
Entry = dict[str, Any]


class Skipped(NamedTuple):
    """A folder that is not listed, and why."""

    path: str
    reason: str


def list_store(root: Path | None) -> dict[str, Any]:
    """List what lies under a folder, newest first."""
    if root is None:
        return {"store": None, "entries": [], "skipped": [], "note": "no store was given: charllm serve STORE"}
    entries: list[Entry] = []
    skipped: list[Skipped] = []
    end_s = time.monotonic() + LONGEST_S
    for seen, folder in enumerate(_walk(root, root, skipped)):
        if seen >= MOST_FOLDERS or len(entries) >= MOST_ENTRIES or time.monotonic() > end_s:
            skipped.append(
                Skipped("", f"only the first {seen:,} folders were looked at, which hold {len(entries):,} runs")
            )
            break
        try:
            entry = _describe(root, folder)
        except (CharllmError, OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            reason = str(error) if isinstance(error, CharllmError) else f"cannot be read ({type(error).__name__})"
            skipped.append(Skipped(_relative(root, folder), reason))
            continue
        if entry is not None:
            entries.append(entry)
    _tell_apart(entries)
    entries.sort(key=lambda entry: -entry["when"])
    return {"store": root.name, "entries": entries, "skipped": [each._asdict() for each in skipped], "note": ""}


def _tell_apart(entries: list[Entry]) -> None:
    """Add to runs that share a title the settings in which they differ."""
    shared: dict[str, list[Entry]] = {}
    for entry in entries:
        shared.setdefault(entry["title"], []).append(entry)
    for alike in shared.values():
        tables = [entry.pop("settings", {}) for entry in alike]
        names = [name for name in dict.fromkeys(chain(*tables)) if len({str(table.get(name)) for table in tables}) > 1]
        for entry, table in zip(alike, tables, strict=True):
            told = [f"{name.rpartition('.')[2]} {table.get(name)}" for name in names[:MOST_DIFFERENCES]]
            entry["title"] = "; ".join([entry["title"], *told])


def find_inside(root: Path | None, path: str) -> Path:
    """Return a folder of the store, or refuse: a path that leads out of it, and a folder with files that do."""
    if root is None:
        raise SpecError("path", path, "a store to look in: charllm serve STORE")
    if not path or "\0" in path or len(path) > 1000 or Path(path).is_absolute() or ".." in Path(path).parts:
        raise SpecError("path", path, "a path inside the store, as listed")
    try:
        folder = (root / path).resolve(strict=True)
        inside = folder.is_relative_to(root.resolve()) and folder.is_dir()
    except (OSError, RuntimeError, ValueError):
        inside = False
    if not inside:
        raise SpecError("path", path, "a folder inside the store (it may have been deleted)")
    _check_files(root.resolve(), folder, path)
    return folder


def is_stored(folder: Path) -> bool:
    """Tell whether a folder holds a finished run, a study or a plan."""
    return any((folder / name).is_file() for name in STORED_FILES)


def _check_files(root: Path, folder: Path, path: str) -> None:
    """Refuse a folder with links that lead out of the store, pipes and devices, and files too large to open."""
    pending, seen = [folder], 0
    while pending:
        with os.scandir(pending.pop()) as items:
            for item in items:
                seen += 1
                if seen > MOST_FOLDERS:
                    raise SpecError("path", path, f"a run of at most {MOST_FOLDERS:,} files")
                if item.is_dir(follow_symlinks=False):
                    pending.append(Path(item.path))
                else:
                    _check_file(root, Path(item.path), path)


def _check_file(root: Path, file: Path, path: str) -> None:
    if not file.resolve().is_relative_to(root):
        raise SpecError("path", path, f"a run without links out of the store (link {file.name})")
    try:
        found = file.stat()
    except OSError:
        # A link to nothing is not opened by anybody.
        return
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise SpecError("path", path, f"plain files only ({file.name} is none)")
    if found.st_size > MOST_FILE_BYTES and file.suffix != ".csv":
        raise SpecError("path", path, f"files of at most {format_bytes(MOST_FILE_BYTES)} ({file.name})")


def _walk(root: Path, folder: Path, skipped: list[Skipped], depth: int = 0) -> Iterator[Path]:
    """Yield folders that may hold something, newest first; hidden ones and links are not entered."""
    try:
        with os.scandir(folder) as items:
            below = [item for item in items if not item.name.startswith(".")]
    except OSError as error:
        skipped.append(Skipped(_relative(root, folder), error.strerror or "cannot be read"))
        return
    yield folder
    if _holds(folder) or depth == DEEPEST:
        return
    folders = [item for item in below if item.is_dir(follow_symlinks=False)]
    for item in sorted(folders, key=_modified, reverse=True):
        yield from _walk(root, Path(item.path), skipped, depth + 1)


def _modified(item: "os.DirEntry[str]") -> float:
    try:
        return item.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def _holds(folder: Path) -> bool:
    return any((folder / name).exists() for name in (*STORED_FILES, *RECORDING_FILES))


def _relative(root: Path, folder: Path) -> str:
    return folder.relative_to(root).as_posix()


def _describe(root: Path, folder: Path) -> Entry | None:
    """Describe one folder in a line; None where it holds nothing of ours."""
    if (folder / STUDY_FILE).exists():
        return _study(root, folder)
    if (folder / RESULT_FILE).exists():
        return _run(root, folder)
    if (folder / PLAN_FILE).exists():
        return _plan(root, folder)
    if any((folder / name).exists() for name in RECORDING_FILES):
        return _recording(root, folder)
    return None


def _run(root: Path, folder: Path) -> Entry:
    file = _plain_file(root, folder / RESULT_FILE)
    when = file.stat().st_mtime
    if file.stat().st_size > MOST_TITLE_BYTES:
        return _entry(root, folder, "run", "", folder.name, when, note="large: described when it is opened")
    result = from_json(read_text(file, "path", MOST_TITLE_BYTES), RESULT_FILE)
    title = describe_spec(result.spec) if isinstance(result.spec, dict) else folder.name
    fits = result.metrics.get("fits")
    note = "does not fit in memory" if fits is False else ""
    kind = "measured" if result.origin == "measured" else "run"
    settings = {
        name: value for name, value in dotted_fields(result.spec).items() if name.partition(".")[0] in TOLD_APART
    }
    return {**_entry(root, folder, kind, result.origin, title, when, note=note), "settings": settings}


def _study(root: Path, folder: Path) -> Entry:
    file = _plain_file(root, folder / STUDY_FILE)
    table = parse_json(read_text(file, "path", MOST_TITLE_BYTES), STUDY_FILE, "path")
    described = table.get("study", table)
    title = str(described.get("name", folder.name))
    about = str(described.get("about", ""))[:200]
    origin = "measured" if table.get("measured") else "simulated"
    return _entry(root, folder, "study", origin, title, file.stat().st_mtime, note=about)


def _plan(root: Path, folder: Path) -> Entry:
    file = _plain_file(root, folder / PLAN_FILE)
    table = parse_json(read_text(file, "path", MOST_FILE_BYTES), PLAN_FILE, "path")
    if not is_plan(table):
        raise SpecError(PLAN_FILE, Words("something else"), "what `charllm plan --json` prints")
    check_plan(table, PLAN_FILE)
    best = str(table["best"][0]["strategy"]) if table["best"] else "no strategy keeps every limit"
    return _entry(root, folder, "plan", "simulated", f"plan: {best}", file.stat().st_mtime)


def _recording(root: Path, folder: Path) -> Entry:
    """Describe a measurement without a result yet: it runs, or it was killed and can be finished."""
    for name in RECORDING_FILES:
        if (folder / name).is_symlink():
            _plain_file(root, folder / name)
    snapshot = Watcher(folder).look()
    note = "" if snapshot.state == "running" else f"no result yet; `charllm show {folder}` finishes it"
    when = folder.stat().st_mtime
    return _entry(root, folder, "recording", "measured", folder.name, when, state=snapshot.state, note=note)


def _plain_file(root: Path, file: Path) -> Path:
    """Return a file of the store, or refuse what is none or lies elsewhere."""
    if not file.is_file() or not file.resolve().is_relative_to(root.resolve()):
        raise SpecError(file.name, Words("a link out of the store, or no plain file"), "a file that charllm wrote")
    return file


def _entry(
    root: Path, folder: Path, kind: str, origin: str, title: str, when: float, *, state: str = "ended", note: str = ""
) -> Entry:
    path = _relative(root, folder)
    return {"path": path, "kind": kind, "title": title, "origin": origin, "when": when, "state": state, "note": note}
