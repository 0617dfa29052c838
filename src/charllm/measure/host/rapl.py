"""Energy of processors and their memory, from RAPL through the kernel's powercap files; AMD's too.

``/sys/class/powercap/intel-rapl:N`` is a package, its subzones are cores, memory and so on; `psys` is the whole
platform where the board wires it. A counter starts over after `max_energy_range_uj`: after 11 minutes at 400 W. Since
Linux 5.10 only root may read `energy_uj` (CVE-2020-8694).
"""

from collections.abc import Callable
from pathlib import Path

from charllm.measure.counters import Unwrapped
from charllm.measure.host.source import HostSource, Number, Roots, list_folder, named, read_words, reader_of
from charllm.measure.telemetry.source import Reading
from charllm.units import MICRO

QUANTITIES = {"package": "cpu_energy_j", "dram": "memory_energy_j", "psys": "platform_energy_j"}
"""First word of a zone's name: column. Other zones are part of a package."""


def find_rapl(roots: Roots) -> HostSource:
    """Return the energy of every package and its memory."""
    columns, cells = [], []
    zones = [zone for zone in list_folder(roots.sys / "class" / "powercap") if zone.name.startswith("intel-rapl:")]
    for zone in zones:
        # A zone of memory is named by its package: both are called intel-rapl:0...
        kind, package = read_words(zone / "name").partition("-")[0], zone.name.split(":")[1]
        if kind in QUANTITIES:
            columns.append(named(QUANTITIES[kind], package))
            cells.append(_counter(zone))
    return HostSource(tuple(columns), reader_of(cells))


def _counter(zone: Path) -> Callable[[], Reading]:
    energy = Number(zone / "energy_uj", MICRO)
    try:
        range_j = float(read_words(zone / "max_energy_range_uj")) * MICRO
    except ValueError:
        range_j = 2**32 * MICRO
    count = Unwrapped(range_j)

    def read() -> Reading:
        reading = energy.read()
        return reading if isinstance(reading, str) else count.add(reading)

    return read
