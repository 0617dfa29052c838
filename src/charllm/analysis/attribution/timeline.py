"""What a GPU did while it was read: traced steps, and marked steps that did the same, on the clock of the readings."""

from typing import NamedTuple

import numpy as np

from charllm.analysis.attribution.bins import Spans
from charllm.arrays import Floats
from charllm.errors import SpecError
from charllm.measure.marks import Mark, find_steps
from charllm.measure.parts import Part
from charllm.measure.profiled import part_profiled
from charllm.measure.recording import Recording
from charllm.trace.activity import Activity
from charllm.trace.classes import COMMUNICATION, COMPUTE, MEMORY
from charllm.trace.clock import Clock, read_clock
from charllm.trace.events import Codes, RankTrace
from charllm.trace.states import States, cut, follow, join, stretch

TIERS = {COMPUTE: 0, COMMUNICATION: 1, MEMORY: 2}
"""Family of work: what a moment belongs to where several run at once, the lowest first."""
UNSEEN_FRACTION = 0.1
"""Of a traced step, at its ends: the host may begin before the first kernel and go on after the last (assumed)."""
MOST_STRETCHED = 0.05
"""A step whose work would have to be stretched or shortened by more than this is not like those traced (assumed)."""


class Traced(NamedTuple):
    """The work of one GPU on the clock of its readings, and its steps."""

    activity: Activity
    start_s: Floats
    end_s: Floats
    recorded: Spans
    """Steps that were traced; none where no steps are marked."""
    others: Spans
    """Marked steps without the profiler."""
    clock: Clock

    @property
    def spans(self) -> Spans:
        """Traced steps, or the whole trace."""
        return self.recorded or [(float(self.start_s.min()), float(self.end_s.max()))]

    def states(self, state: Codes, tiers: Codes) -> tuple[States, Spans]:
        """Return which state the GPU was in, and the windows in which that is known.

        A step that was marked but not traced is taken to have done what the traced step nearest in length did.
        """
        traced = follow(self.start_s, self.end_s, state, tiers)
        steps = [cut(traced, *span) for span in self.spans]
        lengths = np.array([end - start for start, end in self.spans])
        parts, windows = list(steps), list(self.spans)
        for start_s, end_s in self.others if self.recorded else []:
            like = steps[int(np.argmin(np.abs(lengths - (end_s - start_s))))]
            laid, factor = stretch(like, start_s, end_s)
            if abs(factor - 1) <= MOST_STRETCHED:
                parts.append(laid)
                windows.append((start_s, end_s))
        return join(parts), sorted(windows)

    def by_class(self) -> tuple[States, Spans]:
        """Return the class of work at each moment."""
        tiers = np.array([TIERS[work.family] for work in self.activity.works] or [0], np.int32)
        return self.states(self.activity.work, tiers)


def place_trace(
    trace: RankTrace, activity: Activity, recording: Recording, gpu: int, part: Part, marks: list[Mark]
) -> Traced:
    """Put a trace on the clock of the readings, and tell its steps from those that were only marked."""
    clock = _find_clock(trace, recording, gpu, part)
    profiled = part_profiled(find_steps(marks), marks)
    start_s, end_s = clock.monotonic_s(activity.start_s), clock.monotonic_s(activity.end_s)
    recorded = [span for step in profiled.recorded if _is_seen(span := (step.start_s, step.end_s), start_s, end_s)]
    # The first step after a pause of the job may hold that pause.
    others = [(step.start_s, step.end_s) for stretch in profiled.others for step in stretch[1:]]
    return Traced(activity, start_s, end_s, recorded, others, clock)


def _is_seen(span: tuple[float, float], start_s: Floats, end_s: Floats) -> bool:
    """Tell whether a trace, which may be cut short, reaches over a step."""
    least_s = UNSEEN_FRACTION * (span[1] - span[0])
    return bool(start_s.min() <= span[0] + least_s and end_s.max() >= span[1] - least_s)


def _find_clock(trace: RankTrace, recording: Recording, gpu: int, part: Part) -> Clock:
    series = recording.fast(gpu)
    wall_s = float(np.median(series.wall_s - series.times_s)) if len(series.times_s) else None
    found = read_clock(trace, wall_s)
    if found is None:
        raise SpecError("RUN", trace.path.name, "a trace with clock marks, or readings recorded with it")
    # Readings of several nodes are on the head's clock; a trace is on its own node's.
    shift_s = part.clock.moment(0.0) if part.name and found.source == "clock ranges" else 0.0
    return found._replace(offsets_s=found.offsets_s + shift_s)
