"""Steps of a job that were recorded by a profiler: which they are, and what recording cost them."""

from itertools import groupby
from statistics import median
from typing import Any, NamedTuple

from charllm.measure.marks import FEWEST_STEPS, Mark, Step, find_phases
from charllm.profile import PHASE


class Profiled(NamedTuple):
    """The steps of a job, apart: those under the profiler, and those that it had no part in."""

    recorded: list[Step]
    others: list[list[Step]]
    """Steps one after the other, before the profiler and after it."""

    @property
    def longest(self) -> list[Step]:
        """The longest stretch of steps without the profiler."""
        return max(self.others, key=len, default=[])

    def as_table(self) -> dict[str, Any]:
        """Return what profiling cost: the median step with it and without; the fraction needs some of each."""
        usual = [step.end_s - step.start_s for stretch in self.others for step in stretch[1:]]
        slow = [step.end_s - step.start_s for step in self.recorded]
        known = bool(slow) and len(usual) >= FEWEST_STEPS
        return {
            "steps": len(self.recorded),
            "step_time_s": median(slow) if slow else None,
            "step_time_without_s": median(usual) if usual else None,
            "cost_fraction": median(slow) / median(usual) - 1 if known else None,
        }


def part_profiled(steps: list[Step], marks: list[Mark]) -> Profiled:
    """Part the steps of a process by its marks of the profiler; steps that it began or ended in are in neither part."""
    windows = find_phases(marks).get(PHASE, [])

    def under(step: Step) -> bool | None:
        if any(start_s <= step.start_s and step.end_s <= end_s for start_s, end_s in windows):
            return True
        return None if any(step.end_s > start_s and step.start_s < end_s for start_s, end_s in windows) else False

    stretches = [(state, list(group)) for state, group in groupby(steps, under)]
    recorded = [step for state, group in stretches if state for step in group]
    return Profiled(recorded, [group for state, group in stretches if state is False])
