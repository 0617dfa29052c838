"""Rows of a recording as readings: the newest of each quantity, and rates of counters between two."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from charllm.measure.live.snapshot import Readings
from charllm.measure.quantities import COUNTERS
from charllm.measure.recording import MISSING
from charllm.units import NANO

NOT_YET = "not read yet"
HOST_COUNTERS = (
    "cpu_energy_j", "memory_energy_j", "platform_energy_j", "nic_sent_bytes", "nic_received_bytes", "disk_read_bytes",
    "disk_written_bytes", "disk_busy_s", "ethernet_sent_bytes", "ethernet_received_bytes",
    "ethernet_sent_dropped", "ethernet_received_dropped", "nic_link_downs", "nic_errors", "nic_retries",
    "cpu_pressure_s", "memory_pressure_s", "io_pressure_s",
)  # fmt: skip
"""Quantities of a host that only grow."""


class Row(NamedTuple):
    """One row: when it was read, its cells by column, and why some are empty."""

    time_s: float
    wall_s: float
    cells: dict[str, str]
    reasons: dict[str, str]


def parse_row(line: bytes, columns: Sequence[str]) -> Row | None:
    """Read a line under some columns; None where it was cut short or is no row."""
    cells = line.decode(errors="replace").split(",")
    table = dict(zip(columns, cells, strict=False))
    if len(cells) != len(columns) or not (table.get("monotonic_ns", "") + table.get("wall_ns", "")).isdecimal():
        return None
    time_s, wall_s = (int(table.get(name) or 0) * NANO for name in ("monotonic_ns", "wall_ns"))
    return Row(time_s, wall_s, table, read_reasons(table.get(MISSING, "")))


def join_rows(beats: Mapping[str, Sequence[str]], gpu: int, rows: Mapping[tuple[str, int], list[Row]]) -> Readings:
    """Return the newest reading of every quantity, from the beat that reads it."""
    found = Readings()
    for beat, names in beats.items():
        newest = rows.get((beat, gpu), [])
        for name in names:
            value = read_number(newest[0].cells.get(name, "")) if newest else None
            if value is None:
                found.missing[name] = newest[0].reasons.get(name, "not_supported") if newest else NOT_YET
            else:
                found.values[name] = value
        if len(newest) > 1:
            found.rates_per_s.update(_rates(names, newest[0], newest[1]))
    return found


def _rates(names: Sequence[str], newest: Row, before: Row) -> dict[str, float]:
    """Return how fast counters grow; one that was reset has no rate now."""
    passed_s, rates = newest.time_s - before.time_s, {}
    for name in names:
        now, then = read_number(newest.cells.get(name, "")), read_number(before.cells.get(name, ""))
        if is_counter(name) and now is not None and then is not None and now >= then and passed_s > 0:
            rates[name] = (now - then) / passed_s
    return rates


def is_counter(name: str) -> bool:
    """Tell whether a quantity of a GPU or host only grows."""
    bare = name.partition(":")[0]
    return bare in COUNTERS or bare in HOST_COUNTERS


def read_reasons(cell: str) -> dict[str, str]:
    """Read the last cell of a row: why each quantity is missing."""
    return dict(word.split("=", 1) for word in cell.split() if "=" in word)


def read_number(cell: str) -> float | None:
    """Return the number in a cell; None where there is none."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read_object(path: Path) -> dict[str, Any]:
    """Return the table in a JSON file; an empty one where it cannot be read now."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
