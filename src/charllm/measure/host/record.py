"""Host readings on disk: ``host.csv``, a row a second, and ``host.json``, which says what does not change.

As in ``samples.csv``, what could not be read is empty and the last column, `missing`, says why. A column of one of
several things of a kind has its name behind a colon: ``nic_sent_bytes:mlx5_0/1``.
"""

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from charllm.arrays import Floats
from charllm.measure.host.source import HostSource
from charllm.measure.telemetry.source import Reading
from charllm.result.store import write_text
from charllm.units import NANO

HOST_FILE, FACTS_FILE = "host.csv", "host.json"
TIMES = ("monotonic_ns", "wall_ns", "duration_ns")
MISSING = "missing"


class HostWriter:
    """Reads every source and appends a row, which is with the operating system at once."""

    def __init__(self, folder: Path, sources: Mapping[str, HostSource]) -> None:
        self._sources = list(sources.values())
        self._columns = [column for source in self._sources for column in source.columns]
        facts = {name: value for source in self._sources for name, value in source.facts.items()}
        write_text(json.dumps({"sources": list(sources), **facts}, indent=1), folder / FACTS_FILE)
        self._file = os.open(folder / HOST_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if not os.fstat(self._file).st_size:
            self._write(",".join((*TIMES, *self._columns, MISSING)))
        self.read_ns = 0

    def beat(self) -> None:
        """Read everything once."""
        start_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        readings = [reading for source in self._sources for reading in _read(source)]
        duration_ns = time.monotonic_ns() - start_ns
        cells, missing = [], []
        for column, reading in zip(self._columns, readings, strict=True):
            known = not isinstance(reading, str) and math.isfinite(reading)
            cells.append(repr(float(reading)) if known else "")
            if not known:
                missing.append(f"{column}={reading if isinstance(reading, str) else 'not_finite'}")
        self._write(f"{start_ns},{wall_ns},{duration_ns},{','.join(cells)},{' '.join(missing)}")
        self.read_ns += time.monotonic_ns() - start_ns

    def close(self) -> None:
        """Let go of the file and of what runs beside."""
        for source in self._sources:
            source.close()
        os.close(self._file)

    def _write(self, row: str) -> None:
        os.write(self._file, f"{row}\n".encode())


def _read(source: HostSource) -> list[Reading]:
    """Read a source; a file in a form that nobody has met yet costs its own columns and never the recording."""
    try:
        return source.read()
    except (OSError, ValueError, LookupError, ArithmeticError):
        return ["error"] * len(source.columns)


@dataclass(frozen=True, slots=True)
class HostRecording:
    """What was read of a machine; what is missing is NaN."""

    times_s: Floats
    """Monotonic."""
    columns: dict[str, Floats]
    reasons: dict[str, str]
    """Column: why it was never read, or not at last."""
    facts: dict[str, Any]

    def of(self, quantity: str) -> dict[str, Floats]:
        """Return the columns of a quantity, by what each is of."""
        found = {name.partition(":")[2]: values for name, values in self.columns.items()
                 if name.partition(":")[0] == quantity}  # fmt: skip
        return {instance: values for instance, values in found.items() if np.isfinite(values).any()}

    def why(self, quantity: str) -> str | None:
        """Return why a quantity could not be read, where it was asked for."""
        return next((word for name, word in self.reasons.items() if name.partition(":")[0] == quantity), None)


def read_host(folder: Path) -> HostRecording | None:
    """Read host readings back, whole or cut off; None where there are none."""
    try:
        lines = (folder / HOST_FILE).read_bytes().decode(errors="replace").split("\n")[:-1]
    except OSError:
        return None
    if len(lines) < 2:
        return None
    names = lines[0].split(",")
    rows = [cells for line in lines[1:] if len(cells := line.split(",")) == len(names) and cells[0].isdecimal()]
    table = np.array([[_number(cell) for cell in row[:-1]] for row in rows], dtype=np.float64).reshape(
        -1, len(names) - 1
    )
    reasons = dict(word.split("=", 1) for row in rows for word in row[-1].split() if "=" in word)
    columns = {name: table[:, place] for place, name in enumerate(names[:-1]) if name not in TIMES}
    return HostRecording(table[:, 0] * NANO, columns, reasons, _read_facts(folder))


def _number(cell: str) -> Reading:
    try:
        return float(cell) if cell else float("nan")
    except ValueError:
        return float("nan")


def _read_facts(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / FACTS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
