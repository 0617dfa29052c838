"""Traffic of disks (``/proc/diskstats``), those with hardware behind them added up."""

from charllm.measure.host.source import HostSource, Number, Roots, list_folder
from charllm.measure.telemetry.source import Reading
from charllm.units import MILLI

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
