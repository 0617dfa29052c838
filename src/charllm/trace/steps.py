"""The steps of a trace: windows on the clock of its device."""

import re
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.trace.activity import Activity
from charllm.trace.classes import COMPUTE
from charllm.trace.events import NONE, OP, RANGE, RankTrace
from charllm.trace.execution import STEP_RANGE

STEP_NAMES = (
    re.compile(r"^ProfilerStep#(\d{1,18})$"),
    re.compile(rf"^{re.escape(STEP_RANGE)}(\d{{1,18}})$"),
    re.compile(r"^(?:iteration|step|train_?step|training_?step|batch)[ _#:=]*(\d{1,18})$", re.IGNORECASE),
)
"""How ranges of steps are named, the surest first."""


CUT_STEPS = 2
"""Steps left out where a trace was read up to a moment: the one it lies in, and the one the device was still at."""


class Window(NamedTuple):
    """One step on the device, or the whole trace where no steps are marked."""

    number: int | None
    """Number of the step; None for a whole trace."""
    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end_s - self.start_s


class Steps(NamedTuple):
    """The windows of a trace, and what is odd about them."""

    windows: list[Window]
    warnings: list[str]


def find_steps(trace: RankTrace, activity: Activity) -> Steps:
    """Return the steps of a trace.

    A step on the device lasts from the first event that it launched to the first event of the next step; the last one
    lasts to the end of its work, or as long as its range on the host if that is longer.
    """
    ranges = _ranges(trace)
    name = trace.path.name
    if not ranges:
        whole = _whole(activity)
        return Steps([whole] if whole else [], [f"{name}: no steps are marked; figures are of the whole trace"])
    ordered = sorted(ranges.items(), key=lambda item: float(trace.events.start_s[item[1]]))
    rows = np.array([row for _number, row in ordered], dtype=np.int64)
    starts, ends = trace.events.start_s[rows], trace.events.end_s[rows]
    warnings = []
    if (starts[1:] < ends[:-1] - 1e-9).any():
        warnings.append(f"{name}: ranges of steps overlap; each is taken to end where the next one begins")
    begins = _first_launched(trace, activity, starts)
    worked_s = float(activity.end_s.max(initial=0.0)) if trace.has_device_events else 0.0
    bounds = [*begins.tolist(), max(worked_s, float(begins[-1] + ends[-1] - starts[-1]))]
    windows = [
        Window(number, start_s, end_s)
        for (number, _row), start_s, end_s in zip(ordered, bounds, bounds[1:], strict=False)
        if end_s > start_s
    ]
    return Steps(windows if trace.whole else windows[:-CUT_STEPS] or windows, warnings)


def _ranges(trace: RankTrace) -> dict[int, int]:
    """Return the row of each step's range on the host, by number; the first where a number comes again."""
    hosts = np.flatnonzero(trace.matches(RANGE, OP))
    for pattern in STEP_NAMES:
        numbers = {at: int(found[1]) for at, text in enumerate(trace.names) if (found := pattern.match(text))}
        if not numbers:
            continue
        rows = hosts[np.isin(trace.events.name[hosts], list(numbers))]
        found_rows: dict[int, int] = {}
        for row in rows.tolist():
            found_rows.setdefault(numbers[int(trace.events.name[row])], row)
        if found_rows:
            return found_rows
    return {}


def _first_launched(trace: RankTrace, activity: Activity, starts: Floats) -> Floats:
    """Return when the first kernel of each step computed; the start on the host where the trace does not tell.

    Copies and collectives do not count: they may run ahead of the kernels that a step waits for.
    """
    computed = activity.take(activity.of_family(COMPUTE) & (activity.call != NONE))
    launched_s = trace.events.start_s[computed.call]
    order = np.argsort(launched_s, kind="stable")
    place = np.searchsorted(launched_s[order], starts)
    earliest = np.minimum.accumulate(computed.start_s[order][::-1])[::-1]
    return np.where(place < len(order), np.append(earliest, np.inf)[place], starts)


def _whole(activity: Activity) -> Window | None:
    if not len(activity.row):
        return None
    return Window(None, float(activity.start_s.min()), float(activity.end_s.max()))
