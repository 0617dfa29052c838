"""GPUs that differ: groups of like temperatures, and single GPUs apart from all others.

A GPU is an outlier in a quantity where its distance to the nearest other GPU is large, and either it lies outside the
interval in which the next of its fellows would be found in all but 1 of 500 cases (Student's t, its fellows alone), or
that distance is half as large again as any between neighbours among its fellows, who may form groups themselves.
Ignores: two GPUs that are alike apart, which hide each other among fewer than eight.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

LEAST_GPUS = 4
USUAL_K_PER_W = 0.05
"""Of a GPU of 400 to 1000 W with its heat sink; used only to compare GPUs whose power is nearly the same."""
STUDENT = {2: 22.3, 3: 10.2, 4: 7.17, 5: 5.89, 6: 5.21, 7: 4.79, 10: 4.14, 15: 3.73, 30: 3.39, 1000: 3.1}
"""Freedom: Student's t that 1 of 500 exceeds in size."""
RANGE_FRACTION = 0.5
LONE_FLOORS, LONE_GAPS = 4.0, 1.5
"""A lone GPU is this many floors from the nearest other, and this many times as far as those are from each other."""
GROUP_GAP_K, GROUP_GAPS = 3.0, 2.2
"""Two groups are apart by at least this, and by this many times the usual distance of neighbours."""
FLOORS = {"temperature_c": 1.5, "power_w": 0.015, "clock_hz": 0.005}
"""Differences below this are nothing: kelvins, or a share of the median."""


class TemperatureGroup(NamedTuple):
    """GPUs of like temperature."""

    gpus: tuple[int, ...]
    temperature_c: float
    """Mean of its GPUs."""
    place: str | None = None
    """front or rear, where the node's layout is known and all are of one."""


class Outlier(NamedTuple):
    """One GPU apart from all others in one quantity."""

    gpu: int
    quantity: str
    """temperature_c (at equal power), power_w or clock_hz."""
    when: str
    """load or idle."""
    value: float
    others: float
    """Median of its fellows."""
    score: float
    """Standard errors between them."""


def group_temperatures(temperature_c: Mapping[int, float]) -> list[TemperatureGroup]:
    """Part GPUs where neighbours in temperature are far apart; coolest first."""
    order = sorted(temperature_c, key=lambda gpu: temperature_c[gpu])
    if not order:
        return []
    gaps = np.diff([temperature_c[gpu] for gpu in order])
    least = max(GROUP_GAP_K, GROUP_GAPS * float(np.median(gaps))) if len(gaps) else GROUP_GAP_K
    groups: list[list[int]] = [[order[0]]]
    for gpu, gap in zip(order[1:], gaps, strict=True):
        if gap >= least:
            groups.append([])
        groups[-1].append(gpu)
    return [TemperatureGroup(tuple(sorted(one)), float(np.mean([temperature_c[gpu] for gpu in one]))) for one in groups]


def find_outliers(values: Mapping[int, float], quantity: str, when: str) -> list[Outlier]:
    """Return the GPUs that are apart from all others in one quantity."""
    if len(values) < LEAST_GPUS:
        return []
    found = []
    for gpu, value in values.items():
        others = np.array([other for one, other in values.items() if one != gpu])
        floor = FLOORS[quantity] * (1.0 if quantity == "temperature_c" else abs(float(np.median(others))))
        spread = max(float(np.std(others, ddof=1)), floor / 2) * (1 + 1 / len(others)) ** 0.5
        score = abs(value - float(np.mean(others))) / spread
        gap = float(np.min(np.abs(others - value)))
        apart = score >= _student(len(others) - 1) and gap >= max(2 * floor, RANGE_FRACTION * float(np.ptp(others)))
        lone = gap >= max(LONE_FLOORS * floor, LONE_GAPS * float(np.diff(np.sort(others)).max()))
        if apart or lone:
            found.append(Outlier(gpu, quantity, when, value, float(np.median(others)), score))
    return found


def _student(freedom: int) -> float:
    known = sorted(STUDENT)
    inverse = [1 / one for one in reversed(known)]
    return float(np.interp(1 / freedom, inverse, [STUDENT[one] for one in reversed(known)]))


def at_equal_power(
    temperature_c: Mapping[int, float], power_w: Mapping[int, float], k_per_w: float
) -> dict[int, float]:
    """Return temperatures as they would be if every GPU drew the median power."""
    usual_w = float(np.median(list(power_w.values()))) if power_w else 0.0
    return {gpu: degrees - k_per_w * (power_w.get(gpu, usual_w) - usual_w) for gpu, degrees in temperature_c.items()}


def strongest(outliers: Sequence[Outlier]) -> list[Outlier]:
    """Keep the clearest finding for each GPU and quantity."""
    best: dict[tuple[int, str], Outlier] = {}
    for one in outliers:
        key = (one.gpu, one.quantity)
        if key not in best or one.score > best[key].score:
            best[key] = one
    return sorted(best.values(), key=lambda one: -one.score)
