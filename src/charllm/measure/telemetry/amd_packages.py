"""Which of a machine's AMD devices share a package, and so its power sensor, energy counter and power cap.

An MI250 is two dies (GCDs) with a PCI address each. Its first die reports the power, energy and cap of both; the other
reports 0 for all three (Linux, drivers/gpu/drm/amd/pm/swsmu/smu13/aldebaran_ppt.c: "valid power data is available only
from primary die"), which ``rocm-smi`` shows as "N/A (Secondary die)"; the first is "usually one above or below". An
MI300X that is split (DPX, QPX, CPX) is several devices that differ in the last digit of their PCI address.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

ADDRESS = re.compile(r"^(?:([0-9a-f]+):)?([0-9a-f]+):([0-9a-f]+)\.([0-9a-f]+)$", re.IGNORECASE)


class Device(NamedTuple):
    """What is asked of a device to find its package."""

    pci: str
    name: str
    tells_power: bool


class Package(NamedTuple):
    """Devices under one power sensor, by place; the first of them reads it."""

    leader: int
    members: tuple[int, ...]


def board_of(pci: str) -> str:
    """Return a PCI address without its function: what the partitions of one GPU have in common."""
    return pci.rpartition(".")[0] or pci


def group_packages(devices: Sequence[Device]) -> list[Package]:
    """Join partitions of one GPU, then each silent die with a neighbour of its kind that reports power."""
    boards: dict[str, list[int]] = {}
    for place in sorted(range(len(devices)), key=lambda place: _order(devices[place].pci)):
        boards.setdefault(board_of(devices[place].pci) or str(place), []).append(place)
    rows = list(boards.values())
    talking = [any(devices[place].tells_power for place in row) for row in rows]
    joined: dict[int, list[int]] = {number: [*row] for number, row in enumerate(rows) if talking[number]}
    for number, row in enumerate(rows):
        if talking[number]:
            continue
        near = [other for other in (number - 1, number + 1) if _may_lead(devices, rows, joined, other, row)]
        joined.setdefault(near[0] if near else number, []).extend(row)
    return [_package(devices, places) for places in joined.values()]


def _may_lead(
    devices: Sequence[Device], rows: list[list[int]], joined: dict[int, list[int]], other: int, row: list[int]
) -> bool:
    """Tell whether a neighbour reports power, is of the same kind, and has no second die yet."""
    if not 0 <= other < len(rows) or other not in joined:
        return False
    leads = any(devices[place].tells_power for place in rows[other])
    return leads and len(joined[other]) == len(rows[other]) and devices[rows[other][0]].name == devices[row[0]].name


def _package(devices: Sequence[Device], places: list[int]) -> Package:
    leader = next((place for place in places if devices[place].tells_power), places[0])
    return Package(leader, tuple(places))


def _order(pci: str) -> tuple[int, ...]:
    found = ADDRESS.match(pci)
    return tuple(int(part or "0", 16) for part in found.groups()) if found else (1 << 32,)
