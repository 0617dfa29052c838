"""One node of a run as it is now, from the ends of its files."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from charllm.gpu.limits import LIMITS
from charllm.measure.host.record import HOST_FILE
from charllm.measure.live.rows import NOT_YET, Row, join_rows, parse_row, read_number, read_object
from charllm.measure.live.snapshot import GpuNow, NodeNow, Readings
from charllm.measure.live.tail import Tail, first_lines
from charllm.measure.parts import ranks_of
from charllm.measure.record import JobRecord, read_job
from charllm.measure.recording import MISSING, StoredHeader
from charllm.result.files import HEADER_FILE, SAMPLES_FILE
from charllm.spec.shape import check_shape
from charllm.units import NANO, whole_number

MOST_GPUS = 4096
"""Of a node."""
FLAT_NAME = "0"
"""Name of the only node of a run whose folder has no nodes/."""


class NodeReader:
    """Reads one node's folder; remembers what of it does not change while it is recorded."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._samples, self._host = Tail(folder / SAMPLES_FILE), Tail(folder / HOST_FILE)
        self._columns: list[str] = []
        self._header: dict[str, Any] = {}
        self._first_energy: dict[int, tuple[float, float]] = {}

    def look(self) -> tuple[NodeNow, float | None]:
        """Return the node as it is now, and the seconds since its command began."""
        self._learn()
        job = read_job(self._folder)
        rows = self._newest_rows()
        newest = max((row for found in rows.values() for row in found), key=lambda row: row.time_s, default=None)
        ranks = self._ranks(job)
        gpus = tuple(self._describe(gpu, rows, ranks) for gpu in sampled_gpus(self._header))
        age_s = None if newest is None else max(0.0, time.time() - newest.wall_s)
        begun = job.windows_s.get("command")
        elapsed = newest.time_s - begun[0] if newest is not None and begun else None
        return NodeNow(self._name, age_s, gpus, self._read_host()), elapsed

    def look_back(self, every_s: float) -> dict[int, tuple[GpuNow, ...]]:
        """Return the GPUs as they were, by time over `every_s`, as far back as the end of the recording is read."""
        self._learn()
        job = read_job(self._folder)
        newest: dict[int, dict[tuple[str, int], bytes]] = {}
        for line in Tail(self._folder / SAMPLES_FILE).newest(lambda _lines: False):
            beat, gpu, _monotonic, wall, *_rest = (*line.split(b",", 4), b"", b"", b"", b"")
            place, wall_ns = whole_number(gpu.decode(errors="replace")), whole_number(wall.decode(errors="replace"))
            if beat == b"fast" and place is not None and wall_ns is not None:
                newest.setdefault(int(wall_ns * NANO / every_s), {})[("fast", place)] = line
        ranks, gpus = self._ranks(job), sampled_gpus(self._header)
        return {
            moment: tuple(self._describe(gpu, rows, ranks) for gpu in gpus)
            for moment, lines in newest.items()
            if len(rows := {key: parsed for key, line in lines.items() if (parsed := self._parse([line]))}) == len(gpus)
        }

    def _ranks(self, job: JobRecord) -> dict[int, int]:
        """Return the rank on each GPU, as the result of the run will have it."""
        uuids = [str(identity.get("uuid", "")) for identity in self._header.get("gpus", [])]
        if self._name == FLAT_NAME:
            return {gpu: gpu for gpu in range(len(uuids))}
        return ranks_of(uuids, job, [path.stem.removeprefix("marks-") for path in self._folder.glob("marks-*.csv")])

    def _learn(self) -> None:
        if not self._columns:
            lines = first_lines(self._folder / SAMPLES_FILE)
            self._columns = lines[0].decode(errors="replace").split(",") if lines else []
        if not self._header:
            header = self._folder / HEADER_FILE
            self._header = read_object(header)
            check_shape(self._header, StoredHeader, header)

    def _read_host(self) -> Readings:
        """Return the newest readings of the host, where they are taken."""
        lines = self._host.newest(lambda lines: len(lines) > 2)
        header = first_lines(self._folder / HOST_FILE, 1 << 16)[:1]
        if not header or not lines:
            return Readings(missing={"host": "no host readings are recorded"})
        names = header[0].decode(errors="replace").split(",")
        rows = [row for line in lines[-2:] if (row := parse_row(line, names))]
        if not rows:
            return Readings(missing={"host": NOT_YET})
        quantities = [name for name in names if name not in ("monotonic_ns", "wall_ns", "duration_ns", MISSING)]
        return join_rows({"host": quantities}, 0, {("host", 0): rows[::-1]})

    def _newest_rows(self) -> dict[tuple[str, int], list[Row]]:
        """Return by beat and GPU the newest row, and of the slow beat the one before too, newest first."""
        if not self._columns:
            return {}
        beats, gpus = self._header.get("beats", {}), sampled_gpus(self._header)
        wanted = {(beat, gpu): 2 if beat == "slow" else 1 for beat in beats for gpu in gpus}
        found: dict[tuple[str, int], list[bytes]] = {}

        def collect(lines: list[bytes]) -> bool:
            """Keep the newest lines of each kind; tell whether all that are wanted were among them."""
            found.clear()
            left = sum(wanted.values())
            for line in reversed(lines):
                beat, gpu, _rest = (*line.split(b",", 2), b"", b"")[:3]
                place = whole_number(gpu.decode(errors="replace"))
                key = (beat.decode(errors="replace"), -1 if place is None else place)
                if len(found.get(key, ())) < wanted.get(key, 0):
                    found.setdefault(key, []).append(line)
                    left -= 1
                    if not left:
                        break
            return not left

        self._samples.newest(collect)
        return {key: rows for key, lines in found.items() if (rows := self._parse(lines))}

    def _parse(self, lines: Sequence[bytes]) -> list[Row]:
        return [row for line in lines if (row := parse_row(line, self._columns))]

    def _describe(self, gpu: int, rows: Mapping[tuple[str, int], list[Row]], ranks: Mapping[int, int]) -> GpuNow:
        identities = self._header.get("gpus", [])
        identity = identities[gpu] if gpu < len(identities) else {}
        readings = join_rows(self._header.get("beats", {}), gpu, rows)
        mean_w, used_j = self._energy(gpu, rows.get(("energy", gpu), []))
        if used_j is None:
            reason = readings.missing.get("energy_j", NOT_YET)
            readings.missing.update(power_mean_w=reason, energy_used_j=reason)
        bits = readings.values.get("limits")
        held = () if bits is None else tuple(name for name, bit in LIMITS.items() if int(bits) & bit and name != "idle")
        number, uuid = int(identity.get("number", gpu)), str(identity.get("uuid", ""))
        instead = readings.missing.get("power_instant_w") == "not_supported"
        power_w = readings.values.get("power_average_w" if instead else "power_instant_w")
        return GpuNow(self._name, number, uuid, ranks.get(gpu), readings, held, power_w, mean_w, used_j)

    def _energy(self, gpu: int, rows: Sequence[Row]) -> tuple[float | None, float | None]:
        """Return mean power and energy since the recording began."""
        last_j = read_number(rows[0].cells.get("energy_j", "")) if rows else None
        if not rows or last_j is None:
            return None, None
        if gpu not in self._first_energy:
            self._learn_energy()
        first_s, first_j = self._first_energy.get(gpu, (rows[0].time_s, last_j))
        if last_j < first_j:
            # The driver was loaded again: what was used before is not known.
            first_s, first_j = self._first_energy[gpu] = (rows[0].time_s, last_j)
        used_j, passed_s = last_j - first_j, rows[0].time_s - first_s
        return (used_j / passed_s if passed_s > 0 else None), used_j

    def _learn_energy(self) -> None:
        for line in first_lines(self._folder / SAMPLES_FILE)[1:]:
            for row in self._parse([line]) if line.startswith(b"energy,") else ():
                value, gpu = read_number(row.cells.get("energy_j", "")), whole_number(row.cells.get("gpu", ""))
                if value is not None and gpu is not None:
                    self._first_energy.setdefault(gpu, (row.time_s, value))


def sampled_gpus(header: Mapping[str, Any]) -> list[int]:
    """Return the places of the GPUs that are read."""
    listed = str(header.get("details", {}).get("sampled", "")).split(",")
    return sorted({number for gpu in listed if (number := whole_number(gpu)) is not None and number < MOST_GPUS})
