"""What host readings say about one window of time: the host's part of a result's row of a node."""

from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.sensor import without_resets
from charllm.measure.gaps import bound_unread, find_gaps
from charllm.measure.host.rdma import ACTIVE
from charllm.measure.host.record import HostRecording

ROW_S = 1.0
"""Readings come once a second: a shorter window may have none."""
NO_PLATFORM_POWER = "no power meter of the whole node (IPMI DCMI, Redfish, ACPI or RAPL psys) could be read"


class HostWindow(NamedTuple):
    """One machine in one window; what was not read is None."""

    row: dict[str, Any]
    """Columns of a node's row."""
    system_power_mean_w: float | None
    system_power_bounds_w: tuple[float, float] | None
    """Between what it lies, where a part of the time was not read and no counter went on."""
    nic_sent_bytes: float | None
    nic_utilization_fraction: float | None


def look_host(host: HostRecording, start_s: float, end_s: float) -> HostWindow:
    """Describe a machine between two times of the monotonic clock."""
    duration_s = end_s - start_s
    grown = {name: _grown(host, name, start_s, end_s) for name in COUNTED}
    sent, received = (_all_links(host, grown, direction) for direction in ("sent", "received"))
    system_w = _system_power_w(host, grown, start_s, end_s)
    meter = _find_meter(host)
    unread = 0.0 if meter is None else find_gaps(host.times_s, start_s, end_s).unread_s / duration_s
    read = None if meter is None else _inside(host.times_s, meter, start_s, end_s)
    bounds = None if not unread or system_w is None or read is None else bound_unread(system_w, read, unread)
    use = _utilization(host, start_s, end_s)
    row = {
        "power_mean_w": system_w,
        "cpu_power_mean_w": _rate(grown["cpu_energy_j"], duration_s),
        "memory_power_mean_w": _rate(grown["memory_energy_j"], duration_s),
        "cpu_load_fraction": _mean(host, "cpu_load_fraction", start_s, end_s),
        "cpu_clock_mean_hz": _mean(host, "cpu_clock_hz", start_s, end_s),
        "cpu_pressure_fraction": _rate(grown["cpu_pressure_s"], duration_s),
        "memory_used_peak_bytes": _extreme(host, "memory_used_bytes", start_s, end_s),
        "nic_sent_bytes": sent,
        "nic_received_bytes": received,
        "nic_sent_bytes_per_s": _rate(sent, duration_s),
        "nic_received_bytes_per_s": _rate(received, duration_s),
        "nic_utilization_fraction": use,
        "nic_retries": grown["nic_retries"],
        "nic_link_downs": grown["nic_link_downs"],
        "disk_read_bytes": grown["disk_read_bytes"],
        "disk_written_bytes": grown["disk_written_bytes"],
        "inlet_mean_c": _mean(host, "inlet_c", start_s, end_s),
        "fan_mean_hz": _mean(host, "fan_hz", start_s, end_s),
    }
    return HostWindow(row, system_w, bounds, sent, use)


COUNTED = (
    "cpu_energy_j", "memory_energy_j", "platform_energy_j", "cpu_pressure_s", "nic_sent_bytes", "nic_received_bytes",
    "ethernet_sent_bytes", "ethernet_received_bytes", "nic_retries", "nic_link_downs", "disk_read_bytes",
    "disk_written_bytes",
)  # fmt: skip


def _grown(host: HostRecording, quantity: str, start_s: float, end_s: float) -> float | None:
    """Return how much the counters of a quantity grew, all together; None where one was not read throughout."""
    found = [_grown_one(host.times_s, values, start_s, end_s) for values in host.of(quantity).values()]
    return None if not found or None in found else sum(value for value in found if value is not None)


def _grown_one(times_s: Floats, values: Floats, start_s: float, end_s: float) -> float | None:
    known = np.isfinite(values)
    times, counts = times_s[known], values[known]
    if len(times) < 2 or times[0] > start_s + ROW_S or times[-1] < end_s - ROW_S:
        return None
    edges = np.interp([start_s, end_s], times, without_resets(counts))
    return float(edges[1] - edges[0])


def _all_links(host: HostRecording, grown: dict[str, float | None], direction: str) -> float | None:
    """Return the bytes of RDMA ports and of Ethernet together; None where one of them was refused."""
    names = [f"{kind}_{direction}_bytes" for kind in ("nic", "ethernet")]
    there = [name for name in names if host.of(name) or host.why(name) not in (None, "not_supported")]
    found = [grown[name] for name in there]
    return None if not found or None in found else sum(value for value in found if value is not None)


def _utilization(host: HostRecording, start_s: float, end_s: float) -> float | None:
    """Return the bytes sent over those that could have been: of RDMA ports that are up, else of Ethernet."""
    for quantity, kind in (("nic_sent_bytes", "rdma"), ("ethernet_sent_bytes", "ethernet")):
        links = host.facts.get(kind, {})
        sent = could = 0.0
        for instance, values in host.of(quantity).items():
            link = links.get(instance, {})
            grown = _grown_one(host.times_s, values, start_s, end_s)
            if grown is not None and link.get("rate_bytes_per_s") and link.get("state", ACTIVE) == ACTIVE:
                sent += grown
                could += link["rate_bytes_per_s"] * (end_s - start_s)
        if could:
            return sent / could
    return None


def _find_meter(host: HostRecording) -> Floats | None:
    """Return the readings of the first meter that tells the power of the whole node."""
    meters = host.of("system_power_w")
    return next((meters[name] for name in ("acpi", "dcmi", "redfish") if name in meters), None)


def _system_power_w(host: HostRecording, grown: dict[str, float | None], start_s: float, end_s: float) -> float | None:
    """Return the power of the whole node from the first meter that tells it."""
    meter = _find_meter(host)
    if meter is not None:
        return _mean_of(host.times_s, meter, start_s, end_s)
    return _rate(grown["platform_energy_j"], end_s - start_s)


def _inside(times_s: Floats, values: Floats, start_s: float, end_s: float) -> Floats:
    """Return the readings in a window; of one too short to have any, the last before its end."""
    inside = values[(times_s >= start_s) & (times_s <= end_s)]
    if not len(inside):
        inside = values[(times_s >= start_s - ROW_S) & (times_s <= end_s)][-1:]
    return inside[np.isfinite(inside)]


def _mean_of(times_s: Floats, values: Floats, start_s: float, end_s: float) -> float | None:
    found = _inside(times_s, values, start_s, end_s)
    return float(np.mean(found)) if len(found) else None


def _mean(host: HostRecording, quantity: str, start_s: float, end_s: float) -> float | None:
    """Return the mean over time and over the things of a kind."""
    found = [_mean_of(host.times_s, values, start_s, end_s) for values in host.of(quantity).values()]
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if known else None


def _extreme(host: HostRecording, quantity: str, start_s: float, end_s: float) -> float | None:
    found = [_inside(host.times_s, values, start_s, end_s) for values in host.of(quantity).values()]
    known = [float(np.max(values)) for values in found if len(values)]
    return max(known) if known else None


def _rate(amount: float | None, duration_s: float) -> float | None:
    return None if amount is None or duration_s <= 0 else amount / duration_s
