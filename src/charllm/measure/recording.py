"""A recording on disk: a header, and rows appended as they are read, so that a kill loses at most what was buffered.

``recording.json`` says which GPUs, which columns each beat has and what each GPU can tell; ``samples.csv`` holds a row
per GPU and beat: ``beat,gpu,monotonic_ns,wall_ns,duration_ns,value,value,...``. A value that could not be read is a
``!`` and the reason. A last row cut short is ignored.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from charllm.errors import SpecError
from charllm.measure.quantities import BEATS, QUANTITIES
from charllm.measure.telemetry.source import Capability, GpuIdentity, Reading, SourceFacts
from charllm.units import NANO

FORMAT, VERSION = "charllm-recording", 1
HEADER_FILE, SAMPLES_FILE = "recording.json", "samples.csv"
FLUSH_S, FLUSH_BYTES = 0.25, 1 << 16

Floats = NDArray[np.float64]


class RecordingWriter:
    """Appends rows to a recording; what is older than FLUSH_S is with the operating system."""

    def __init__(self, folder: Path, facts: SourceFacts, details: Mapping[str, Any]) -> None:
        header = {
            "format": FORMAT,
            "version": VERSION,
            "source": facts.name,
            "details": {**facts.details, **details},
            "gpus": [identity._asdict() for identity in facts.gpus],
            "beats": {beat: list(columns) for beat, columns in BEATS.items()},
            "capabilities": {
                uuid: {name: asdict(capability) for name, capability in found.items()}
                for uuid, found in facts.capabilities.items()
            },
        }
        (folder / HEADER_FILE).write_text(json.dumps(header, indent=1), encoding="utf-8")
        self._file = os.open(folder / SAMPLES_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._buffer: list[str] = []
        self._size = 0
        self._flushed_ns = 0

    def write(self, beat: str, gpu: int, times_ns: tuple[int, int, int], readings: Sequence[Reading]) -> None:
        """Add one row: monotonic and wall time of its first reading, how long all took, and the readings."""
        cells = ",".join(f"!{reading}" if isinstance(reading, str) else f"{reading:.9g}" for reading in readings)
        row = f"{beat},{gpu},{times_ns[0]},{times_ns[1]},{times_ns[2]},{cells}\n"
        self._buffer.append(row)
        self._size += len(row)
        if self._size >= FLUSH_BYTES or times_ns[0] - self._flushed_ns >= FLUSH_S / NANO:
            self.flush(times_ns[0])

    def flush(self, now_ns: int) -> None:
        """Hand buffered rows to the operating system."""
        data = memoryview("".join(self._buffer).encode())
        while data:
            data = data[os.write(self._file, data) :]
        self._buffer.clear()
        self._size = 0
        self._flushed_ns = now_ns

    def close(self) -> None:
        """Write what is left."""
        self.flush(0)
        os.close(self._file)


@dataclass(frozen=True, slots=True)
class Series:
    """One beat of one GPU: times and columns; what is missing is NaN, with its reason counted."""

    times_s: Floats
    """Monotonic."""
    wall_s: Floats
    duration_s: Floats
    columns: dict[str, Floats]
    missing: dict[str, Counter[str]] = field(default_factory=dict)
    """Quantity: reason: readings."""

    def known(self, quantity: str) -> tuple[Floats, Floats]:
        """Return times and values of a quantity where it was read."""
        values = self.columns[quantity]
        read = np.isfinite(values)
        return self.times_s[read], values[read]


@dataclass(frozen=True, slots=True)
class Recording:
    """What was read of each GPU."""

    facts: SourceFacts
    series: dict[int, dict[str, Series]]
    """GPU's place: beat: series."""

    def known(self, gpu: int, quantity: str) -> tuple[Floats, Floats]:
        """Return times and values of a quantity where it was read."""
        return self.series_of(gpu, quantity).known(quantity)

    def series_of(self, gpu: int, quantity: str) -> Series:
        """Return the beat that a quantity is read on."""
        return self.series[gpu][QUANTITIES[quantity].beat]

    def fast(self, gpu: int) -> Series:
        """Return what was read on every beat."""
        return self.series[gpu]["fast"]


def read_recording(folder: Path) -> Recording:
    """Read a recording back, whole or cut off."""
    try:
        header = json.loads((folder / HEADER_FILE).read_text(encoding="utf-8"))
        text = (folder / SAMPLES_FILE).read_text(encoding="utf-8") if (folder / SAMPLES_FILE).exists() else ""
    except (OSError, ValueError) as error:
        raise SpecError("recording", str(folder), f"a folder with {HEADER_FILE} and {SAMPLES_FILE} ({error})") from None
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise SpecError("recording", header.get("format"), f"{FORMAT} version {VERSION}")
    facts = _read_facts(header)
    columns = {beat: tuple(names) for beat, names in header["beats"].items()}
    rows: dict[tuple[str, int], list[list[str]]] = {}
    complete = text[: text.rfind("\n") + 1]
    for line in complete.splitlines():
        cells = line.split(",")
        if len(cells) > 5 and cells[0] in columns and len(cells) == 5 + len(columns[cells[0]]):
            rows.setdefault((cells[0], int(cells[1])), []).append(cells)
    series = {
        gpu: {beat: _series(rows.get((beat, gpu), []), names) for beat, names in columns.items()}
        for gpu in range(len(facts.gpus))
    }
    return Recording(facts, series)


def _read_facts(header: Mapping[str, Any]) -> SourceFacts:
    gpus = tuple(GpuIdentity(**identity) for identity in header["gpus"])
    capabilities = {
        uuid: {name: Capability(**found) for name, found in table.items()}
        for uuid, table in header["capabilities"].items()
    }
    return SourceFacts(header["source"], gpus, capabilities, header["details"])


def _series(rows: list[list[str]], names: tuple[str, ...]) -> Series:
    clock_ns = np.array([[int(cell) for cell in row[2:5]] for row in rows], dtype=np.int64).reshape(-1, 3)
    clock_s: Floats = clock_ns.astype(np.float64) * NANO
    columns: dict[str, Floats] = {}
    missing: dict[str, Counter[str]] = {}
    for place, name in enumerate(names, start=5):
        cells = [row[place] for row in rows]
        columns[name] = np.array([np.nan if cell.startswith("!") else float(cell) for cell in cells], dtype=np.float64)
        reasons = Counter(cell[1:] for cell in cells if cell.startswith("!"))
        if reasons:
            missing[name] = reasons
    return Series(clock_s[:, 0], clock_s[:, 1], clock_s[:, 2], columns, missing)
