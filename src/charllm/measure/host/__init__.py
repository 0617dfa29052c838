"""Readings of the machine around the GPUs. Adding a source: its own file, and one line in SOURCES."""

from collections.abc import Callable
from pathlib import Path

from charllm.measure.host.cpu import find_cpu
from charllm.measure.host.ethernet import find_ethernet
from charllm.measure.host.hwmon import find_hwmon
from charllm.measure.host.ipmi import find_ipmi, tool_at_hand
from charllm.measure.host.memory import find_disk, find_memory
from charllm.measure.host.rapl import find_rapl
from charllm.measure.host.rdma import find_rdma
from charllm.measure.host.redfish import find_redfish
from charllm.measure.host.source import HostSource, Roots
from charllm.measure.settings import check_host

SOURCES: dict[str, Callable[[Roots], HostSource]] = {
    "rapl": find_rapl,
    "cpu": find_cpu,
    "memory": find_memory,
    "rdma": find_rdma,
    "ethernet": find_ethernet,
    "disk": find_disk,
    "hwmon": find_hwmon,
    "ipmi": find_ipmi,
    "redfish": find_redfish,
}
"""Name: what finds its columns on this machine; none where there is nothing to read."""


def find_host(asked: str, roots: Roots | None = None) -> dict[str, HostSource]:
    """Return the sources that have something to read: all of them, none, or all and a Redfish file."""
    name, detail = check_host(asked)
    if name == "none":
        return {}
    roots = roots or Roots(ipmitool=tool_at_hand())
    roots = roots._replace(redfish=Path(detail)) if detail else roots
    found = {source: find(roots) for source, find in SOURCES.items()}
    return {source: one for source, one in found.items() if one.columns}
