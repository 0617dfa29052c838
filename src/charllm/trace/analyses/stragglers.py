"""Which rank do the others wait for, and is it because it computes longer or because it starts late?"""

from collections.abc import Mapping
from typing import NamedTuple

from charllm.trace.analyses.breakdown import Breakdown
from charllm.trace.analyses.waits import WaitSummary

LEAST_WAIT = 0.01
"""A rank is named where it makes others wait for this share of a step, and clearly longer than others do (assumed)."""
CLEARLY = 1.5


class Straggler(NamedTuple):
    """The rank that made others wait most."""

    rank: int
    caused_wait_s: float
    cause: str
    """more work, late host, or other."""


def find_straggler(waits: WaitSummary | None, breakdowns: Mapping[int, Breakdown]) -> Straggler | None:
    """Name the rank that others wait for; None where none stands out or waits are not known."""
    if waits is None or len(waits.ranks) < 2:
        return None
    first, second = sorted(waits.ranks, key=lambda one: -one.caused_wait_s)[:2]
    step_s = breakdowns[first.rank].step_time_s
    if first.caused_wait_s < LEAST_WAIT * step_s or first.caused_wait_s < CLEARLY * second.caused_wait_s:
        return None
    others = [part for rank, part in breakdowns.items() if rank != first.rank]
    mine = breakdowns[first.rank]
    more_s = mine.compute_s - sum(part.compute_s for part in others) / len(others)
    idle_s = mine.idle_s - sum(part.idle_s for part in others) / len(others)
    half_s = first.caused_wait_s / 2
    cause = "more work" if more_s > max(half_s, idle_s) else "late host" if idle_s > half_s else "other"
    return Straggler(first.rank, first.caused_wait_s, cause)
