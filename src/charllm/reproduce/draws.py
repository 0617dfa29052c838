"""Intervals of effects: the unknown conditions, their ranges, and seeded draws over all of them at once.

An effect is stated at nominal conditions. Its interval spans 90 % of the draws, widened where needed to hold that
effect.
"""

from collections.abc import Sequence
from functools import cache
from math import sqrt
from typing import NamedTuple

import numpy as np

from charllm.network.constants import NETWORK
from charllm.reproduce.conditions import Setting
from charllm.result.uncertainty import LEVEL, errors

DRAWS, SEED = 40, 16
BEST_NIC_SHARE = 0.95
"""Most of its NICs that a collective was ever measured to reach (network/constants.py)."""


class Range(NamedTuple):
    """The two ends between which a condition is drawn evenly, in words, and why."""

    label: str
    low: float
    high: float
    source: str


@cache
def ranges() -> dict[str, Range]:
    """Return every condition that intervals are drawn over; those derived from held-out errors follow their file."""
    known = errors()
    own, exposed = (sqrt(3) * known["step_time"]["spreads"][part] for part in ("own", "exposed"))
    power = known["h200"]["power_mean_w"]
    return {
        "inlet_c": Range("inlet, C", 18.0, 35.0, "assumed: ASHRAE recommended and allowable inlets, classes A1 and A2"),
        "flow": Range("airflow, x nominal", 0.75, 1.25, "assumed: fan speeds are not recorded"),
        "preheat": Range(
            "preheat, x assumed", 0.0, 2.0, "derived: bounds from public traces (catalog/nodes/hgx.toml)"
        ),
        "spread": Range("silicon spread of leakage power", 0.0, 0.1, "assumed: GPUs of one product"),
        "rate": Range(
            "GEMM rate, x calibrated", 1 - own, 1 + own, "derived: held-out spread of compute-bound step times"
        ),
        "energy": Range(
            "kernel energy, x calibrated", 1 - power["high"], 1 - power["low"],
            "derived: 90 % of mean-power readings on H200 boards",
        ),
        "link_share": Range(
            "NVLink bandwidth, x calibrated", 0.93, 1.07, "measured: spread between A100, H200, B200 nodes (NCCL)"
        ),
        "nic_share": Range(
            "NIC bandwidth, x calibrated", 1 - exposed, BEST_NIC_SHARE / NETWORK.nic_fraction,
            "derived: held-out spread of exposed communication, up to the best published share of the line rate",
        ),
        "latency": Range(
            "message latency, x calibrated", 0.5, 1.75, "published: protocols of NCCL's tuning model, 4 to 14 us a step"
        ),
    }  # fmt: skip


@cache
def draws(count: int = DRAWS) -> tuple[Setting, ...]:
    """Return settings drawn evenly over all ranges (a Latin hypercube), the same ones every time."""
    random = np.random.default_rng(SEED)
    columns = {
        name: one.low + (one.high - one.low) * (random.permutation(count) + random.random(count)) / count
        for name, one in ranges().items()
    }
    return tuple(
        Setting(**{name: float(values[place]) for name, values in columns.items()}, seed=SEED + place)
        for place in range(count)
    )


def interval(nominal: float | None, drawn: Sequence[float | None]) -> list[float] | None:
    """Return the ends between which 90 % of drawn effects lie, widened where needed to hold the nominal effect.

    Nominal conditions are no average ones (all GPUs are identical, for instance), so that draws may lie on one side.
    None where the nominal run or all but one of the draws are not possible.
    """
    known = [value for value in drawn if value is not None]
    if nominal is None or len(known) < 2:
        return None
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return [min(float(low), nominal), max(float(high), nominal)]
