"""How long is the device at work in each phase that the program names: prefill, decode, rollout, update?

A phase is a range of the profiler that `charllm.mark.phase` opened, or any that is named as in USUAL.
Work belongs to the innermost such range around its launch, also where it runs after the range has ended on the host.
Its time is that from the first to the last work of each range; it is busy while any of that work runs.
Ignores: launches from threads without such a range (autograd runs backward on a thread of its own).
"""

from typing import NamedTuple

import numpy as np

from charllm.profile import PHASE_RANGE
from charllm.trace.analyses.kernels import in_steps
from charllm.trace.events import NONE, RANGE
from charllm.trace.intervals import merge
from charllm.trace.links import enclosing
from charllm.trace.run import TracedRank

USUAL = ("prefill", "decode", "rollout", "log_probabilities", "reward", "update", "weight_transfer")
"""Names that are read as phases wherever they were given."""


class PhaseRow(NamedTuple):
    """One phase in a mean step of one rank."""

    phase: str
    times: float
    """Ranges in a step."""
    seconds: float
    busy_fraction: float
    """Of these seconds."""
    share: float
    """Of the device's busy time in all phases and outside of them."""


def phase_rows(rank: TracedRank) -> list[PhaseRow]:
    """Return the phases of a rank in the order in which they begin; none where the program names none."""
    trace, here, steps = rank.trace, in_steps(rank), max(1, len(rank.windows))
    named = {number: phase for number, name in enumerate(trace.names) if (phase := _phase_of(name))}
    spans = np.flatnonzero(trace.matches(RANGE) & np.isin(trace.events.name, list(named)))
    around = enclosing(trace, spans, here.call)
    whole_s = merge(here.start_s, here.end_s).total_s
    found: dict[str, list[tuple[float, float]]] = {}
    for span in np.unique(around[around != NONE]).tolist():
        inside = around == span
        start_s, end_s = here.start_s[inside], here.end_s[inside]
        times = (float(end_s.max() - start_s.min()), merge(start_s, end_s).total_s)
        found.setdefault(named[int(trace.events.name[span])], []).append(times)
    rows = []
    for phase, ranges in found.items():
        seconds, busy_s = (sum(column) for column in zip(*ranges, strict=True))
        shares = (busy_s / seconds, busy_s / whole_s) if busy_s else (0.0, 0.0)
        rows.append(PhaseRow(phase, len(ranges) / steps, seconds / steps, *shares))
    return rows


def _phase_of(name: str) -> str | None:
    """Return the phase that a range stands for; None for other ranges."""
    if name.startswith(PHASE_RANGE):
        return name.removeprefix(PHASE_RANGE)
    return name if name in USUAL else None
