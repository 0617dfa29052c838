"""The facts of one node: its GPUs, network ports, processors, memory, disk, clock and software.

    python -m charllm.measure.preflight.facts [--name NODE] [--telemetry NAME] [--folder DIR]

prints them as one line of JSON: this is what runs on each node of a job. Files are read under `root`.
"""

import argparse
import ctypes
import json
import os
import platform
import re
import shutil
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from charllm import __version__
from charllm.measure.preflight.nvidia import describe_gpus
from charllm.measure.telemetry import open_source
from charllm.measure.telemetry.source import TelemetryError
from charllm.units import GIGA, KIB, MEGA, MICRO

Facts = dict[str, Any]
READ = (
    "temperature_c", "clock_hz", "limits", "power_instant_w", "power_limit_w", "utilization_fraction",
    "memory_used_bytes", "ecc_errors", "faults",
)  # fmt: skip
PACKAGES = ("torch", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-ml-py", "amdsmi", "numpy")
VIRTUAL = re.compile(r"^(lo|docker|veth|br-|virbr|cni|flannel|tun|tap|dummy|ip6|sit|kube|cali|vxlan)")
ROOT = Path("/")
NOT_ASKED = "not asked"
UNSYNCHRONISED = 5
"""What adjtimex(2) returns while no time service holds the clock."""


def collect_facts(telemetry: str, folder: Path, root: Path = ROOT, name: str = "") -> Facts:
    """Return everything that is known of this node; what cannot be read is left out or comes as its reason."""
    return {
        "node": name or platform.node(),
        "host": platform.node(),
        "wall_s": time.time(),
        **_gpus(telemetry, root),
        "ports": _infiniband(root),
        "interfaces": _interfaces(root),
        **_host(root),
        "disk": _disk(folder),
        "clock": _clock_state() if root == ROOT else None,
        "software": _software(),
    }


def _gpus(telemetry: str, root: Path) -> Facts:
    if telemetry == "none":
        return {"source": "none", "gpus": [], "why_no_gpu": NOT_ASKED}
    try:
        source = open_source(telemetry)
    except TelemetryError as error:
        return {"source": "none", "gpus": [], "why_no_gpu": str(error)}
    try:
        facts = source.facts
        more = describe_gpus() if facts.name == "nvml" else {}
        rows = []
        for place, identity in enumerate(facts.gpus):
            readings = dict(zip(READ, source.read(place, READ), strict=True))
            known = {name: value for name, value in readings.items() if not isinstance(value, str)}
            missing = {name: value for name, value in readings.items() if isinstance(value, str)}
            pcie = _pcie(root, identity.pci)
            row = {"uuid": identity.uuid, "name": identity.name, "number": identity.number, **known, "missing": missing}
            rows.append({**row, **pcie, **more.get(identity.uuid, {})})
        why = "" if rows else "; ".join(facts.details.values()) or f"source {facts.name} has no GPU"
        return {"source": facts.name, "gpus": rows, "driver": facts.details, "why_no_gpu": why}
    finally:
        source.close()


def _pcie(root: Path, bus: str) -> Facts:
    """Return the width of a GPU's PCIe link as the kernel shows it; its speed falls at rest and says nothing."""
    address = re.sub(r"^0000(?=[0-9a-f]{4}:)", "", bus.lower())
    place = root / "sys/bus/pci/devices" / (address or "none")
    width, most = (_number(_text(place / name)) for name in ("current_link_width", "max_link_width"))
    found = {"pcie_width": width, "pcie_width_max": most}
    return {name: int(value) for name, value in found.items() if value}


def _infiniband(root: Path) -> list[Facts]:
    ports = sorted((root / "sys/class/infiniband").glob("*/ports/*"))
    return [
        {
            "name": f"{port.parts[-3]}/{port.parts[-1]}",
            "state": _text(port / "state").rpartition(": ")[2],
            "physical": _text(port / "phys_state").rpartition(": ")[2],
            "rate_bit_per_s": (_number(_text(port / "rate")) or 0.0) * GIGA or None,
            "layer": _text(port / "link_layer"),
        }
        for port in ports
    ]


def _interfaces(root: Path) -> list[Facts]:
    places = [place for place in sorted((root / "sys/class/net").glob("*")) if not VIRTUAL.match(place.name)]
    found = []
    for place in places:
        speed = _number(_text(place / "speed"))
        rate = speed * MEGA if speed and speed > 0 else None
        found.append({"name": place.name, "state": _text(place / "operstate"), "rate_bit_per_s": rate})
    return found


def _host(root: Path) -> Facts:
    memory = dict(re.findall(r"(?m)^(\w+):\s+(\d+)", _text(root / "proc/meminfo")))
    governors = {_text(path) for path in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")}
    load = _text(root / "proc/loadavg").split()
    processors = len(re.findall(r"(?m)^processor\s*:", _text(root / "proc/cpuinfo")))
    return {
        "memory_bytes": _kib(memory.get("MemTotal")),
        "memory_available_bytes": _kib(memory.get("MemAvailable")),
        "huge_pages": int(memory["HugePages_Total"]) if "HugePages_Total" in memory else None,
        "governors": sorted(governors - {""}),
        "load": _number(load[0]) if load else None,
        "processors": processors or None,
        "shared_memory_bytes": _free_bytes(root / "dev/shm"),
    }


def _kib(text: str | None) -> float | None:
    return None if text is None else float(text) * KIB


def _free_bytes(place: Path) -> float | None:
    try:
        return float(shutil.disk_usage(place).free)
    except OSError:
        return None


def _disk(folder: Path) -> Facts:
    """Return the room in the folder of a run, or in the nearest one above it that exists."""
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    writable = os.access(place, os.W_OK)
    return {"folder": str(place), "free_bytes": _free_bytes(place), "writable": writable}


def _clock_state() -> Facts | None:
    """Return whether a time service holds the clock, and the error it estimates."""
    try:
        times = (ctypes.c_long * 32)()
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(times))
    except (OSError, AttributeError):
        return None
    # modes, offset, freq, maxerror, esterror: each takes a long.
    return None if state < 0 else {"synchronised": state != UNSYNCHRONISED, "error_s": times[4] * MICRO}


def _software() -> Facts:
    found = {"python": platform.python_version(), "kernel": platform.release(), "charllm": __version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(text: str) -> float | None:
    found = re.match(r"-?\d+(?:\.\d+)?", text)
    return float(found[0]) if found else None


def main() -> int:
    """Print the facts of this node."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="")
    parser.add_argument("--telemetry", default="auto")
    parser.add_argument("--folder", type=Path, default=Path())
    arguments = parser.parse_args()
    print(json.dumps(collect_facts(arguments.telemetry, arguments.folder, name=arguments.name)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
