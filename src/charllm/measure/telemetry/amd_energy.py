"""Whether a package's energy counter and its power reading tell the same.

Counters of some GPUs are wrong by large factors or stand still (ROCm/amdsmi #38, ml-energy/zeus #113).
"""

import time
from collections.abc import Callable, Sequence

CHECK_S, CHECK_READINGS, AGREE_FACTOR = 0.5, 20, 1.5
"""How long and how often power is read beside the counter; by what factor the two may differ."""
SHOWN = ("power_instant_w", "power_average_w")

Read = Callable[[int, str], float | None]
"""Reads a quantity of a package, given its leader; None where it is missing."""


def find_wrong_counters(leaders: Sequence[int], read: Read) -> dict[int, str]:
    """Return the packages whose counter and power disagree, and by how much.

    They are compared twice, for a load that begins meanwhile must not condemn a good counter.
    """
    differences: dict[int, str] = {}
    for _ in range(2):
        differences = _compare(leaders, read)
        leaders = list(differences)
    return differences


def _compare(leaders: Sequence[int], read: Read) -> dict[int, str]:
    starts = {
        leader: (time.monotonic(), energy_j) for leader in leaders if (energy_j := read(leader, "energy_j")) is not None
    }
    powers: dict[int, list[float]] = {leader: [] for leader in starts}
    for _ in range(CHECK_READINGS if starts else 0):
        time.sleep(CHECK_S / CHECK_READINGS)
        for leader, found in powers.items():
            found += [watts for name in SHOWN if (watts := read(leader, name)) is not None][:1]
    differences = {}
    for leader, (start_s, start_j) in starts.items():
        end_s, end_j = time.monotonic(), read(leader, "energy_j")
        if end_j is not None and powers[leader]:
            counted_w, shown_w = (end_j - start_j) / (end_s - start_s), sum(powers[leader]) / len(powers[leader])
            if not 1 / AGREE_FACTOR <= counted_w / shown_w <= AGREE_FACTOR:
                told = f"the energy counter grew by {counted_w:.0f} W while the sensor showed {shown_w:.0f} W"
                differences[leader] = f"GPU {leader}: {told}"
    return differences
