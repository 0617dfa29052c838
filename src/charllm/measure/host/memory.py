"""Memory in use, by the machine and by NUMA node, and bytes of its disks (``/proc/meminfo``, ``/sys/devices``)."""

import re

from charllm.measure.host.source import HostSource, Number, Roots, list_folder, named
from charllm.measure.telemetry.source import Reading
from charllm.units import KIB, MILLI


def find_memory(roots: Roots) -> HostSource:
    """Return memory in use and swapped out, and of each NUMA node memory in use and pages wanted but not had there."""
    whole = Number(roots.proc / "meminfo")
    nodes = [
        node for node in list_folder(roots.sys / "devices" / "system" / "node") if re.fullmatch(r"node\d+", node.name)
    ]
    files = [(Number(node / "meminfo"), Number(node / "numastat")) for node in nodes]
    columns = ["memory_used_bytes", "swap_used_bytes"]
    for node in nodes:
        columns += [named("numa_used_bytes", node.name[4:]), named("numa_foreign_pages", node.name[4:])]

    def read() -> list[Reading]:
        text = whole.text()
        cells = [_less(text, "MemTotal", "MemAvailable"), _less(text, "SwapTotal", "SwapFree")]
        for usage, misses in files:
            cells += [_less(usage.text(), "MemTotal", "MemFree"), _value(misses.text(), "numa_foreign")]
        return cells

    total = _value(whole.text(), "MemTotal")
    return HostSource(tuple(columns), read, {} if isinstance(total, str) else {"memory_bytes": total * KIB})


def _less(text: bytes | str, total: str, free: str) -> Reading:
    """Return what is in use: the total without what is free, both in KiB."""
    found = [_value(text, name) for name in (total, free)]
    numbers = [value for value in found if not isinstance(value, str)]
    if len(numbers) < 2:
        return next(value for value in found if isinstance(value, str))
    return (numbers[0] - numbers[1]) * KIB


def _value(text: bytes | str, name: str) -> Reading:
    if isinstance(text, str):
        return text
    found = re.search(rb"\b%s:?\s+(\d+)" % name.encode(), text)
    return float(found[1]) if found else "not_supported"


SECTOR_BYTES = 512
"""The kernel counts in these, whatever the disk has."""
READ_FIELD, WRITTEN_FIELD, BUSY_FIELD = 5, 9, 12


def find_disk(roots: Roots) -> HostSource:
    """Return bytes read and written, and the time in which disks had work, all disks together."""
    disks = {disk.name.encode() for disk in list_folder(roots.sys / "block") if (disk / "device").exists()}
    file = Number(roots.proc / "diskstats")

    def read() -> list[Reading]:
        text = file.text()
        if isinstance(text, str):
            return [text] * 3
        rows = [words for line in text.split(b"\n") if len(words := line.split()) > BUSY_FIELD and words[2] in disks]
        if not rows:
            return ["not_supported"] * 3
        read_sectors, written, busy_ms = (
            sum(int(words[field]) for words in rows) for field in (READ_FIELD, WRITTEN_FIELD, BUSY_FIELD)
        )
        return [float(read_sectors * SECTOR_BYTES), float(written * SECTOR_BYTES), busy_ms * MILLI]

    return HostSource(("disk_read_bytes", "disk_written_bytes", "disk_busy_s"), read)
