"""Traffic of network interfaces with hardware behind them (``/sys/class/net``).

RDMA traffic is not in it. Interfaces over InfiniBand are left out: the port that carries them counts them (rdma.py).
"""

from charllm.measure.host.source import HostSource, Number, Roots, list_folder, named, read_words, reader_of
from charllm.units import BITS_PER_BYTE, MEGA

INFINIBAND = "32"
"""Type of an interface over InfiniBand (ARPHRD_INFINIBAND)."""
COUNTERS = {
    "ethernet_sent_bytes": "tx_bytes",
    "ethernet_received_bytes": "rx_bytes",
    "ethernet_sent_dropped": "tx_dropped",
    "ethernet_received_dropped": "rx_dropped",
}


def find_ethernet(roots: Roots) -> HostSource:
    """Return traffic and losses of every interface that is up."""
    interfaces = [
        folder
        for folder in list_folder(roots.sys / "class" / "net")
        if (folder / "device").exists()
        and read_words(folder / "operstate") != "down"
        and read_words(folder / "type") != INFINIBAND
    ]
    columns = tuple(named(quantity, folder.name) for folder in interfaces for quantity in COUNTERS)
    cells = [Number(folder / "statistics" / file).read for folder in interfaces for file in COUNTERS.values()]
    facts = {folder.name: {"rate_bytes_per_s": _rate(read_words(folder / "speed"))} for folder in interfaces}
    return HostSource(columns, reader_of(cells), {"ethernet": facts} if facts else {})


def _rate(megabits: str) -> float | None:
    """Return the rate of a link in bytes per second; virtual ones say -1 or nothing."""
    return float(megabits) * MEGA / BITS_PER_BYTE if megabits.isdecimal() else None
