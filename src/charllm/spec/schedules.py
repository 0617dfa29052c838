"""Pipeline schedules, each declared once: what the description of a run, its memory and its time have to know of it.

The order of its passes is in timeline/schedules.py, its microbatches in flight in workload/liveness.py.
"""

from typing import NamedTuple


class Schedule(NamedTuple):
    """What tells one schedule from another."""

    puts_off_weights: bool = False
    """Whether weight gradients are computed apart from a backward pass, and later."""
    always_hides: tuple[str, ...] = ()
    """Axes whose communication it hides under compute, whether or not that is asked for."""
    both_ends: bool = False
    """Whether microbatches enter at either end, so that a rank holds two stages."""
    trains: bool = True
    """Whether a backward pass follows the forward pass, and an update the passes."""
    interleaves: bool = False
    """Whether a stage may hold several chunks (vpp)."""


SCHEDULES = {
    "1f1b": Schedule(),
    "gpipe": Schedule(),
    "interleaved": Schedule(interleaves=True),
    "zero-bubble": Schedule(puts_off_weights=True),
    "dualpipe": Schedule(puts_off_weights=True, always_hides=("pp", "ep"), both_ends=True),
    "forward-only": Schedule(trains=False, interleaves=True),
}


def hiding_schedules(axis: str) -> tuple[str, ...]:
    """List the schedules that always hide the communication of an axis."""
    return tuple(name for name, schedule in SCHEDULES.items() if axis in schedule.always_hides)
