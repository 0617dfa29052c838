"""Temperatures, fans and power that the kernel's sensor drivers show (``/sys/class/hwmon``).

Inlet: a sensor whose label says so (inlet, intake, ambient, front panel). Processors: `coretemp` and `k10temp`, the
sensor of the package. System power: `power_meter`, the ACPI power meter of the whole server; one that says what it
measures (`power1_oem_info`, on Grace: "Module Power Socket 0") is of that part and not counted. Sensors of GPUs are
theirs.
"""

import re
from collections.abc import Callable
from pathlib import Path

from charllm.measure.host.source import HostSource, Number, Roots, list_folder, named, read_words, reader_of
from charllm.measure.telemetry.source import Reading
from charllm.units import MICRO, MILLI

INLET = re.compile(r"inlet|intake|ambient|front panel", re.IGNORECASE)
CPU_LABELS = {"coretemp": re.compile(r"(Package|Physical) id \d+"), "k10temp": re.compile(r"Tctl")}
ON_BOARD = ("amdgpu", "nouveau", "xe", "nvme", "mlx5")
"""Drivers whose fans and temperatures are of a card, not of the machine."""


def find_hwmon(roots: Roots) -> HostSource:
    """Return inlet and processor temperatures, fans and system power."""
    columns: list[str] = []
    cells: list[Callable[[], Reading]] = []
    for folder in list_folder(roots.sys / "class" / "hwmon"):
        for column, cell in _of_driver(folder, read_words(folder / "name")).items():
            name = column if column not in columns else f"{column}-{folder.name}"
            columns.append(name)
            cells.append(cell)
    return HostSource(tuple(columns), reader_of(cells))


def _of_driver(folder: Path, driver: str) -> dict[str, Callable[[], Reading]]:
    if driver in ON_BOARD:
        return {}
    found: dict[str, Callable[[], Reading]] = {}
    for file in list_folder(folder):
        sensor, _, kind = file.name.partition("_")
        label = read_words(folder / f"{sensor}_label") or f"{driver}-{sensor}"
        if kind == "input" and sensor.startswith("fan"):
            found[named("fan_hz", label)] = Number(file, 1 / 60).read
        elif kind == "input" and sensor.startswith("temp") and INLET.search(label):
            found[named("inlet_c", label)] = Number(file, MILLI).read
        elif kind == "input" and driver in CPU_LABELS and CPU_LABELS[driver].fullmatch(label):
            found[named("cpu_temperature_c", f"{label}-{folder.name}")] = Number(file, MILLI).read
        elif driver == "power_meter" and file.name == "power1_average" and not read_words(folder / "power1_oem_info"):
            found[named("system_power_w", "acpi")] = Number(file, MICRO).read
    return found
