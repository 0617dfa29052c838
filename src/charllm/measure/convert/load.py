"""Which part of a recording is the job: files of other tools begin and end on an idle machine, and do not say so."""

from collections.abc import Sequence

import numpy as np

from charllm.arrays import Floats
from charllm.measure.convert.settle import NodeReadings, Settled

RISE_FRACTION = 0.25
"""The job begins where total power has risen by this share of the way from the lowest level to the highest."""
LEAST_RATIO = 2.0
"""Power that does not double is taken as one job."""
LEAST_REST_S = 3.0


def find_windows(nodes: Sequence[NodeReadings], first_s: float, last_s: float) -> dict[str, list[float]]:
    """Return idle, command and cooldown: what lies before, in and after the time in which power is above idle."""
    whole = {"command": [first_s, last_s]}
    read = [power for node in nodes for series in node.series if (power := _power(series)) is not None]
    if not read:
        return whole
    grid = np.unique(np.concatenate([times for times, _ in read]))
    total = np.sum([np.interp(grid, times, watts) for times, watts in read], axis=0)
    low, high = np.percentile(total, [2, 95])
    if high <= low or high < LEAST_RATIO * low:
        return whole
    busy = np.flatnonzero(total > low + RISE_FRACTION * (high - low))
    start_s, end_s = float(grid[busy[0]]), float(grid[busy[-1]])
    found = {"command": [start_s if start_s - first_s >= LEAST_REST_S else first_s,
                         end_s if last_s - end_s >= LEAST_REST_S else last_s]}  # fmt: skip
    if found["command"][0] > first_s:
        found["idle"] = [first_s, found["command"][0]]
    if found["command"][1] < last_s:
        found["cooldown"] = [found["command"][1], last_s]
    return found


def _power(series: dict[str, Settled]) -> tuple[Floats, Floats] | None:
    for quantity in ("power_instant_w", "power_average_w"):
        one = series.get(quantity)
        if one is not None:
            known = np.isfinite(one.values)
            if np.count_nonzero(known) > 3:
                return one.times_s[known], one.values[known]
    return None
