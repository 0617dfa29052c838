"""The steps and phases that the job of a measured run has marked, as tables of its result."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import median

from charllm.measure.marks import LOSS, Mark, find_phases, find_steps, leading_marks
from charllm.measure.recording import Recording
from charllm.profile import PHASE as PROFILE_PHASE
from charllm.result.columns import Columns, columns_of

Span = tuple[float, float]


def tabulate_marks(recording: Recording, marks: Mapping[str, list[Mark]]) -> dict[str, Columns]:
    """Return the steps of the process that marked most, since the first reading, and the seconds of its phases.

    A phase is the median over steps of its seconds in one.
    """
    firsts = [times[0] for gpu in recording.series if len(times := recording.fast(gpu).times_s)]
    marked = leading_marks(marks)
    steps = [(step.start_s, step.end_s) for step in find_steps(marked)] if firsts else []
    first_s = float(min(firsts, default=0.0))
    losses = [(mark.time_s - first_s, mark.name, to_finite(mark.value)) for mark in marked if is_loss(mark)]
    kept: dict[str, Columns] = {"losses": columns_of(("t_s", "name", "loss"), losses)} if losses and firsts else {}
    if not steps:
        return kept
    rows = [(start_s - first_s, end_s - first_s) for start_s, end_s in steps]
    spans = {name: found for name, found in find_phases(marked).items() if name != PROFILE_PHASE}
    phases = [(name, _median_in_step_s(steps, found)) for name, found in spans.items()]
    return {**kept, "steps": columns_of(("start_s", "end_s"), rows), "phases": columns_of(("phase", "seconds"), phases)}


def is_loss(mark: Mark) -> bool:
    """Tell whether a mark is a point that tells a loss."""
    return mark.kind == "point" and LOSS in mark.name.lower()


def to_finite(text: str) -> float | None:
    """Read a number of a mark; None for what is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


def _median_in_step_s(steps: Sequence[Span], spans: Sequence[Span]) -> float:
    """Return how long a phase lasts within a step, median over steps; a phase belongs to the step in which it ends."""
    ends = [end_s for _start_s, end_s in steps]
    within_s = [0.0] * len(steps)
    for start_s, end_s in spans:
        at = bisect_left(ends, end_s)
        if at < len(steps) and start_s >= steps[at][0]:
            within_s[at] += end_s - start_s
    return median(within_s)
