"""Rows of runs in one file, kept as they come.

Thousands of runs under other conditions would fill a disk with whole results; a line of the file is one row, whose key
is its request. A run that is in the file is not simulated again, so that a command that was killed goes on where it
was. The first line says what the rows depend on: version, catalog, and the sources that make a prediction.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from charllm import __version__
from charllm.catalog.tables import catalog_hash
from charllm.errors import SpecError
from charllm.reproduce.looks import Row, key_of
from charllm.reproduce.paper import Request
from charllm.reproduce.workers import spread
from charllm.result.store import write_text

FILE, FORMAT = "runs.jsonl", "charllm-rows 1"
ROOMS = ("spec", "gpu", "catalog", "layout", "workload", "network", "timeline", "simulate")
"""Whose sources decide what is predicted."""
Track = Callable[[Iterator[tuple[str, Row]], int, str], Iterable[tuple[str, Row]]]


def begin(folder: Path) -> Path:
    """Return the file of a folder, begun or to be continued; one of another version, catalog or source is refused."""
    file = folder / FILE
    if file.exists():
        with file.open(encoding="utf-8") as stream:
            if stream.readline().rstrip() != _head():
                said = "a folder that was begun with this version, catalog and sources, or a new one"
                raise SpecError("--out", str(folder), said)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(_head() + "\n", file)
    return file


def read_rows(file: Path) -> dict[str, Row]:
    """Read the rows that are kept; a line that was cut short is left out."""
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines()[1:]:
        try:
            entry = json.loads(line)
            found[entry["key"]] = entry["row"]
        except (ValueError, KeyError, TypeError):
            continue
    return found


def run_rows(requests: Sequence[Request], file: Path, workers: int, track: Track, title: str) -> dict[str, Row]:
    """Return the rows of all requests by key; those that are not kept yet are simulated, and kept as they come."""
    kept = read_rows(file)
    left = {key: request for request in requests if (key := key_of(request)) not in kept}
    if left:
        with file.open("a", encoding="utf-8") as stream:
            # A line that was cut short must not swallow the next one.
            stream.write("" if file.read_bytes().endswith(b"\n") else "\n")
            for key, row in track(spread(left, workers), len(left), title):
                stream.write(json.dumps({"key": key, "row": row}) + "\n")
                stream.flush()
                kept[key] = row
    return kept


@cache
def _head() -> str:
    source = hashlib.sha256()
    for room in ROOMS:
        for path in sorted(Path(str(resources.files("charllm") / room)).rglob("*.py")):
            source.update(path.read_bytes())
    parts = {"format": FORMAT, "charllm": __version__, "catalog": catalog_hash(), "source": source.hexdigest()[:16]}
    return json.dumps(parts)
