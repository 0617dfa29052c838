"""A recording on disk: rows appended as they are read, so that a kill loses at most what was buffered.

``samples.csv`` is a CSV file with a header that DuckDB and pandas open as it is, complete or cut off: a row per GPU and
beat, with a column for every quantity (its unit is in its name), empty where the beat does not read it. What could not
be read is empty too, and the last column, `missing`, says why: ``energy_j=lost clock_hz=no_permission``.
``recording.json`` says which GPUs were read and what each can tell. A row that was cut short is left out.
"""

import contextlib
import fcntl
import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from charllm.arrays import Floats
from charllm.errors import CharllmError, SpecError
from charllm.measure.quantities import BEATS, QUANTITIES
from charllm.measure.telemetry.source import Capability, GpuIdentity, Reading, SourceFacts
from charllm.result.files import HEADER_FILE, SAMPLES_FILE
from charllm.result.store import write_text
from charllm.spec.request import parse_json, read_text
from charllm.spec.shape import Cell, check_shape
from charllm.units import NANO

FORMAT, VERSION = "charllm-recording", 2
FLUSH_S, FLUSH_BYTES = 0.25, 1 << 16
LARGEST_READING = 1e30
"""No quantity reaches it in SI units; larger ones are damage, and would become infinite in sums."""
TAIL_BYTES = 1 << 20
"""Longer than any row."""

TIMES = ("beat", "gpu", "monotonic_ns", "wall_ns", "duration_ns")
"""Columns before the quantities: which beat and GPU; when its first reading was asked for; how long all took."""
MISSING = "missing"


class RecordingError(CharllmError):
    """A recording that cannot be written on: a full disk, a folder that is gone."""

    def __init__(self, folder: Path, error: OSError) -> None:
        super().__init__(f"cannot write the recording in {folder}: {error.strerror or error}; what is written is kept")


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
        self._folder = folder
        # Where the cells of a beat go in a row.
        self._places = {beat: [list(QUANTITIES).index(name) for name in names] for beat, names in BEATS.items()}
        try:
            write_text(json.dumps(header, indent=1), folder / HEADER_FILE)
            self._file = os.open(folder / SAMPLES_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            with contextlib.suppress(OSError):
                # Tells others that this recording still grows; where there are no locks, it seems not to.
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RecordingError(folder, error) from None
        # A sampler that was started again goes on in the same file.
        header_row = ",".join((*TIMES, *QUANTITIES, MISSING)) + "\n"
        self._buffer = [] if os.fstat(self._file).st_size else [header_row]
        self._size = 0
        self._flushed_ns = 0

    def write(self, beat: str, gpu: int, times_ns: tuple[int, int, int], readings: Sequence[Reading]) -> None:
        """Add one row: monotonic and wall time of its first reading, how long all took, and the readings."""
        cells = [""] * len(QUANTITIES)
        missing = []
        for place, name, reading in zip(self._places[beat], BEATS[beat], readings, strict=True):
            if not isinstance(reading, str) and math.isfinite(reading):
                # Every digit, for a counter may have 10 before the point; and a point always, so that a column of
                # noughts is still one of real numbers.
                cells[place] = repr(float(reading))
            else:
                missing.append(f"{name}={reading if isinstance(reading, str) else 'not_finite'}")
        row = f"{beat},{gpu},{times_ns[0]},{times_ns[1]},{times_ns[2]},{','.join(cells)},{' '.join(missing)}\n"
        self._buffer.append(row)
        self._size += len(row)
        if self._size >= FLUSH_BYTES or times_ns[0] - self._flushed_ns >= FLUSH_S / NANO:
            self.flush(times_ns[0])

    def flush(self, now_ns: int) -> None:
        """Hand buffered rows to the operating system; where the disk is full, the file still ends with a whole row."""
        data = memoryview("".join(self._buffer).encode())
        self._buffer.clear()
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                cut_torn_row(self._folder / SAMPLES_FILE)
            raise RecordingError(self._folder, error) from None
        self._size = 0
        self._flushed_ns = now_ns

    def close(self) -> None:
        """Write what is left."""
        try:
            self.flush(0)
        finally:
            os.close(self._file)


def cut_torn_row(path: Path) -> None:
    """Remove what a kill or a full disk has left of a row at the end of a file of rows."""
    if not path.is_file():
        return
    with path.open("r+b") as file:
        start = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
        file.seek(start)
        file.truncate(start + file.read(TAIL_BYTES).rfind(b"\n") + 1)


def is_growing(folder: Path) -> bool:
    """Tell whether a sampler is still writing a recording."""
    try:
        file = os.open(folder / SAMPLES_FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False


@dataclass(frozen=True, slots=True)
class Series:
    """One beat of one GPU: times and columns; what is missing is NaN, with its reason counted."""

    times_s: Floats
    """Monotonic."""
    wall_s: Floats
    duration_s: Floats
    columns: dict[str, Floats]
    reasons: dict[str, dict[int, str]] = field(default_factory=dict)
    """Quantity: row: why it was not read."""

    @property
    def missing(self) -> dict[str, Counter[str]]:
        """Quantity: reason: readings."""
        return {quantity: Counter(rows.values()) for quantity, rows in self.reasons.items()}

    def known(self, quantity: str) -> tuple[Floats, Floats]:
        """Return times and values of a quantity where it was read; none where it was read on another beat."""
        values = self.columns.get(quantity, np.full(len(self.times_s), np.nan))
        read = np.isfinite(values)
        return self.times_s[read], values[read]


@dataclass(frozen=True, slots=True)
class Recording:
    """What was read of each GPU."""

    facts: SourceFacts
    series: dict[int, dict[str, Series]]
    """GPU's place: beat: series."""

    @property
    def sampled(self) -> list[int]:
        """Places of the GPUs that were read; a machine may have more than a job may use."""
        return [gpu for gpu, beats in self.series.items() if any(len(series.times_s) for series in beats.values())]

    def known(self, gpu: int, quantity: str) -> tuple[Floats, Floats]:
        """Return times and values of a quantity where it was read."""
        return self.series_of(gpu, quantity).known(quantity)

    def series_of(self, gpu: int, quantity: str) -> Series:
        """Return the beat that a quantity was read on."""
        for series in self.series[gpu].values():
            if quantity in series.columns:
                return series
        raise KeyError(quantity)

    def power_quantity(self, gpu: int) -> str:
        """Name the power that was read of a GPU: instant, or where there is none the mean over a second."""
        read = self.series_of(gpu, "power_instant_w").columns["power_instant_w"]
        return "power_instant_w" if np.isfinite(read).any() else "power_average_w"

    def power(self, gpu: int) -> tuple[Floats, Floats]:
        """Return times and readings of board power."""
        return self.known(gpu, self.power_quantity(gpu))

    def fast(self, gpu: int) -> Series:
        """Return what was read on every beat."""
        return self.series[gpu]["fast"]


class StoredGpu(TypedDict, total=False):
    """The shape of a GPU in a recording's header."""

    uuid: str
    name: str
    number: int
    pci: str
    package: str


class StoredCapability(TypedDict, total=False):
    """The shape of a capability in a recording's header."""

    supported: bool
    reason: str
    call_s: float


class StoredHeader(TypedDict, total=False):
    """The shape of recording.json."""

    source: str
    gpus: list[StoredGpu]
    beats: dict[str, list[str]]
    capabilities: dict[str, dict[str, StoredCapability]]
    details: dict[str, Cell]


def read_recording(folder: Path) -> Recording:
    """Read a recording back, whole or cut off; a quantity it does not know is missing, not supported."""
    header = _read_header(folder)
    try:
        facts = _read_facts(header)
        columns = {beat: tuple(map(str, names)) for beat, names in header["beats"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        found = f"{type(error).__name__}: {error}"
        raise SpecError(
            "recording", str(folder), f"a header with source, gpus, beats, capabilities ({found})"
        ) from None
    rows = _read_rows(folder, columns)
    known = {name for names in columns.values() for name in names}
    absent = {beat: tuple(name for name in names if name not in known) for beat, names in BEATS.items()}
    series = {
        gpu: {
            beat: _series(rows.get((beat, gpu), []), (*columns.get(beat, ()), *absent.get(beat, ())))
            for beat in {**BEATS, **columns}
        }
        for gpu in range(len(facts.gpus))
    }
    return Recording(facts, series)


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER_FILE
    header = parse_json(read_text(path, "recording"), str(path), "recording")
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise SpecError("recording", str(path), f"a file in the format {FORMAT}")
    if header.get("version") != VERSION:
        raise SpecError("recording", f"{path}, version {header.get('version')}", f"version {VERSION}")
    check_shape(header, StoredHeader, path)
    return header


def _read_facts(header: Mapping[str, Any]) -> SourceFacts:
    gpus = tuple(GpuIdentity(**identity) for identity in header["gpus"])
    capabilities = {
        uuid: {name: Capability(**found) for name, found in table.items()}
        for uuid, table in header["capabilities"].items()
    }
    return SourceFacts(header["source"], gpus, capabilities, dict(header["details"]))


class _Row(NamedTuple):
    times_s: tuple[float, float, float]
    readings: dict[str, Reading]


def _read_rows(folder: Path, beats: Mapping[str, tuple[str, ...]]) -> dict[tuple[str, int], list[_Row]]:
    """Read the rows of each beat and GPU; one that cannot be read is left out."""
    try:
        data = (folder / SAMPLES_FILE).read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SpecError("recording", str(folder), f"a readable {SAMPLES_FILE} ({error.strerror or error})") from None
    lines = data[: data.rfind(b"\n") + 1].decode(errors="replace").split("\n")
    names = lines[0].split(",")
    places = {
        beat: {name: names.index(name) for name in quantities if name in names} for beat, quantities in beats.items()
    }
    rows: dict[tuple[str, int], list[_Row]] = {}
    for cells in (line.split(",") for line in lines[1:]):
        if cells[0] not in places or len(cells) != len(names):
            continue
        try:
            monotonic_s, wall_s, duration_s = (int(cell) * NANO for cell in cells[2:5])
            row = _Row((monotonic_s, wall_s, duration_s), _readings(cells, places[cells[0]]))
            rows.setdefault((cells[0], int(cells[1])), []).append(row)
        except (ValueError, OverflowError):
            continue
    return rows


def _readings(cells: list[str], places: Mapping[str, int]) -> dict[str, Reading]:
    """Return the readings of a row: numbers, or the reasons in its last cell."""
    reasons = dict(word.split("=", 1) for word in cells[-1].split())
    return {name: reasons[name] if name in reasons else _number(cells[place]) for name, place in places.items()}


def _number(cell: str) -> Reading:
    value = float(cell)
    return value if abs(value) < LARGEST_READING else "not_finite"


def _series(rows: list[_Row], names: tuple[str, ...]) -> Series:
    times = np.array([row.times_s for row in rows], dtype=np.float64).reshape(-1, 3)
    columns: dict[str, Floats] = {}
    reasons: dict[str, dict[int, str]] = {}
    for name in names:
        # A quantity that is newer than the recording could not be read then.
        readings = [row.readings.get(name, "not_supported") for row in rows]
        columns[name] = np.array([np.nan if isinstance(value, str) else value for value in readings], dtype=np.float64)
        unread = {number: value for number, value in enumerate(readings) if isinstance(value, str)}
        if unread:
            reasons[name] = unread
    return Series(times[:, 0], times[:, 1], times[:, 2], columns, reasons)
