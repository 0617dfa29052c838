"""Traffic, state and trouble of RDMA ports (``/sys/class/infiniband/DEVICE/ports/N``).

`port_xmit_data` and `port_rcv_data` count words of 4 bytes (InfiniBand specification, PortCounters: "in 32-bit words").
Old adapters have 32 bits of them: at 100 Gb/s they start over every 1.4 s, more often than they are read, and the count
is refused as soon as that is seen. Some stay at the end of their range instead. Hardware counters (`hw_counters`) tell
packets that had to be sent again. `port_xmit_wait` counts ticks in which a port had data to send and sent none.
"""

import re
from collections.abc import Callable
from pathlib import Path

from charllm.measure.counters import Unwrapped
from charllm.measure.host.source import HostSource, Number, Roots, list_folder, named, read_words
from charllm.measure.telemetry.source import Reading
from charllm.units import BITS_PER_BYTE, GIGA

WORD_BYTES = 4
RANGE_WORDS = 2.0**32
BEAT_S = 1.0
ACTIVE = "ACTIVE"
RETRIES = ("packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "out_of_sequence", "retransmits")
ERRORS = ("symbol_error", "port_rcv_errors", "port_xmit_discards", "local_link_integrity_errors")


def find_rdma(roots: Roots) -> HostSource:
    """Return traffic and trouble of every port that is not switched off."""
    ports = [
        port
        for device in list_folder(roots.sys / "class" / "infiniband")
        for port in list_folder(device / "ports")
        if port.name.isdecimal()
    ]
    columns: list[str] = []
    cells: list[Callable[[], Reading]] = []
    facts = {}
    for port in ports:
        name = f"{port.parent.parent.name}/{port.name}"
        rate = parse_rate(read_words(port / "rate"))
        counters = {
            "nic_sent_bytes": _Traffic(port / "counters" / "port_xmit_data", rate).read,
            "nic_received_bytes": _Traffic(port / "counters" / "port_rcv_data", rate).read,
            "nic_wait_ticks": Number(port / "counters" / "port_xmit_wait").read,
            "nic_link_downs": Number(port / "counters" / "link_downed").read,
            "nic_errors": _sum_of([port / "counters" / word for word in ERRORS]),
            "nic_retries": _sum_of([port / "hw_counters" / word for word in RETRIES]),
            "nic_up": _Up(port / "state").read,
        }
        columns += [named(quantity, name) for quantity in counters]
        cells += counters.values()
        facts[name] = {
            "rate_bytes_per_s": rate,
            "state": _state(read_words(port / "state")),
            "link": read_words(port / "link_layer") or "InfiniBand",
        }
    return HostSource(tuple(columns), lambda: [cell() for cell in cells], {"rdma": facts} if facts else {})


def parse_rate(text: str) -> float | None:
    """Return the rate of a link in bytes per second: ``200 Gb/sec (4X HDR)``."""
    found = re.match(r"\s*([\d.]+)\s*Gb/sec", text)
    return float(found[1]) * GIGA / BITS_PER_BYTE if found else None


class _Traffic:
    """Bytes of one direction of a port."""

    def __init__(self, path: Path, rate_bytes_per_s: float | None) -> None:
        self._file, self._words = Number(path), Unwrapped(RANGE_WORDS)
        self._last = 0.0
        self._refused = False
        self._may_wrap = (rate_bytes_per_s or 0.0) / WORD_BYTES * BEAT_S <= RANGE_WORDS / 2

    def read(self) -> Reading:
        """Return bytes since some beginning, or why they cannot be told."""
        words = self._file.read()
        if isinstance(words, str):
            return words
        stuck = words == RANGE_WORDS - 1 == self._last
        went_round = words < self._last < RANGE_WORDS and not self._may_wrap
        self._refused |= stuck or went_round
        self._last = words
        return "implausible" if self._refused else self._words.add(words) * WORD_BYTES


class _Up:
    def __init__(self, path: Path) -> None:
        self._file = Number(path)

    def read(self) -> Reading:
        """Return 1 while the port is active."""
        text = self._file.text()
        return text if isinstance(text, str) else float(_state(text.decode(errors="replace")) == ACTIVE)


def _state(text: str) -> str:
    """Return the word of a state: ``4: ACTIVE``."""
    return text.rpartition(":")[2].strip() or "unknown"


def _sum_of(paths: list[Path]) -> Callable[[], Reading]:
    """Return what adds up those counters that a port has."""
    files = [Number(path) for path in paths if path.exists()]

    def read() -> Reading:
        readings = [file.read() for file in files]
        known = [reading for reading in readings if not isinstance(reading, str)]
        if known:
            return sum(known)
        return next((reading for reading in readings if isinstance(reading, str)), "not_supported")

    return read
