"""What the network bench found: a row for each case, appended as it is measured, and a header that says of what.

``nccl.csv`` opens as it is in pandas and DuckDB, complete or cut off; ``nccl.json`` holds layout, machine and software.
"""

import csv
import fcntl
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from charllm.errors import SpecError
from charllm.measure.bench.nccl_suite import COLLECTIVES, CollectiveCase
from charllm.measure.recording import cut_torn_row
from charllm.result.store import write_text
from charllm.spec.request import parse_json, read_text
from charllm.workload.op import bus_fraction

ROWS_FILE, HEADER_FILE = "nccl.csv", "nccl.json"
FORMAT, VERSION = "charllm-nccl", 1
SAME: dict[str, Callable[[Any], object]] = {
    "layout": lambda layout: layout,
    "ranks": lambda ranks: ranks,
    "backend": lambda backend: backend,
    "node_of_rank": lambda nodes: [nodes.index(node) for node in nodes],
}
"""Parts of the header that rows of one table share, and what of each counts: nodes may be met in another order."""


class CollectiveRow(NamedTuple):
    """One case as measured; a case without a result says why in `error`."""

    group: str
    mode: str
    collective: str
    message_bytes: int
    ranks: int
    ranks_per_node: int
    """Members of one group on one node."""
    active_ranks_per_node: int
    """Ranks of a node that communicate at the same time, over all groups."""
    groups: int
    """Groups that communicate at the same time."""
    seconds_s: float | None = None
    """Median over repeats; a repeat ends when its slowest rank has finished."""
    p10_s: float | None = None
    p90_s: float | None = None
    interval_fraction: float | None = None
    """Half the 95 % interval of the median, over the median."""
    repeats: int = 0
    calls: int = 0
    """Calls in each repeat, back to back."""
    launched: str = ""
    """graph: the calls of a repeat as one CUDA graph; eager: one by one, so that the host may set the pace."""
    algorithm_bytes_per_s: float | None = None
    bus_bytes_per_s: float | None = None
    fastest_group_s: float | None = None
    slowest_group_s: float | None = None
    slowest_group_ranks: str = ""
    backend: str = ""
    start_monotonic_s: float | None = None
    end_monotonic_s: float | None = None
    start_wall_s: float | None = None
    error: str = ""

    @property
    def case(self) -> CollectiveCase:
        """What was measured."""
        return CollectiveCase(self.group, self.mode, self.collective, self.message_bytes)


NUMBERS = {
    name: int if kind is int else float
    for name, kind in CollectiveRow.__annotations__.items()
    if kind in (int, float | None)
}


def bandwidths(collective: str, message_bytes: int, ranks: int, seconds_s: float) -> tuple[float, float]:
    """Return algorithm and bus bandwidth, as nccl-tests defines both."""
    algorithm = message_bytes / seconds_s
    return algorithm, algorithm * bus_fraction(collective, ranks)


class RowWriter:
    """Appends rows to a table, each handed to the operating system at once."""

    def __init__(self, folder: Path) -> None:
        path = folder / ROWS_FILE
        self._file = path.open("a", encoding="utf-8", newline="")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise SpecError("--out", str(folder), "a table that no other command is writing") from None
        except OSError:
            # A file system without locks.
            pass
        cut_torn_row(path)
        self._writer = csv.writer(self._file, lineterminator="\n")
        if self._file.tell() == 0:
            self._writer.writerow(CollectiveRow._fields)
            self._file.flush()

    def write(self, row: CollectiveRow) -> None:
        """Add one row."""
        self._writer.writerow(["" if cell is None else cell for cell in row])
        self._file.flush()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def open_table(folder: Path, header: Mapping[str, Any]) -> list[CollectiveRow]:
    """Begin a table, or go on with one of the same layout and machine; returns the rows that it has."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / HEADER_FILE).exists():
            return _resume(folder, header)
        if any(folder.iterdir()):
            raise SpecError("--out", str(folder), "an empty folder, or one that `charllm bench nccl` has begun")
        write_text(json.dumps({"format": FORMAT, "version": VERSION, **header}, indent=1), folder / HEADER_FILE)
    except OSError as error:
        raise SpecError("--out", str(folder), f"a folder that can be written ({error.strerror or error})") from None
    return []


def _resume(folder: Path, header: Mapping[str, Any]) -> list[CollectiveRow]:
    before = read_header(folder)
    for name, counts in SAME.items():
        if name not in before or counts(before[name]) != counts(header[name]):
            possible = f"a run as the one before ({name} {before.get(name)}), or another folder"
            raise SpecError("--out", f"{folder} with {name} {header.get(name)}", possible)
    return read_rows(folder) if (folder / ROWS_FILE).exists() else []


def read_header(folder: Path) -> dict[str, Any]:
    """Read what a table is of."""
    path = folder / HEADER_FILE
    header = parse_json(read_text(path, "RUN"), str(path), "RUN")
    if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("version") != VERSION:
        raise SpecError("RUN", str(path), f"a file in the format {FORMAT}, version {VERSION}")
    return header


def is_table(path: Path) -> bool:
    """Tell whether a folder or a CSV file holds a table of collectives."""
    file = path / ROWS_FILE if path.is_dir() else path
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        names = opened.readline(1 << 16).decode(errors="replace").strip().split(",")
    return {"collective", "message_bytes", "seconds_s"} <= set(names)


def read_rows(path: Path) -> list[CollectiveRow]:
    """Read the rows of a folder or a CSV file; a row that was cut short is left out, of two alike the last counts."""
    file = path / ROWS_FILE if path.is_dir() else path
    text = read_text(file, "FILE")
    lines = text[: text.rfind("\n") + 1].splitlines()
    found: dict[tuple[object, ...], CollectiveRow] = {}
    for number, cells in enumerate(csv.DictReader(lines), start=2):
        row = _read_row(cells, f"{file}, line {number}")
        found[row.case, row.ranks, row.ranks_per_node, row.active_ranks_per_node] = row
    return list(found.values())


def _read_row(cells: Mapping[str, Any], where: str) -> CollectiveRow:
    values: dict[str, Any] = {}
    for name in CollectiveRow._fields:
        text = (cells.get(name) or "").strip()
        if name not in NUMBERS:
            values[name] = text
        elif text:
            values[name] = _number(text, NUMBERS[name], f"{where}: {name}")
    for name in ("message_bytes", "ranks"):
        if name not in values:
            raise SpecError(f"{where}: {name}", None, "a whole number")
    if values["collective"] not in COLLECTIVES:
        raise SpecError(f"{where}: collective", values["collective"], f"one of {', '.join(COLLECTIVES)}")
    # A table of another tool need not say where its ranks were: one node then, and nobody beside them.
    values.setdefault("ranks_per_node", values["ranks"])
    values.setdefault("active_ranks_per_node", values["ranks_per_node"])
    values.setdefault("groups", 1)
    return CollectiveRow(**values)


def _number(text: str, kind: type, where: str) -> float | int:
    try:
        value: float | int = kind(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise SpecError(where, text, "a whole number" if kind is int else "a number from 0 on")
    return value
