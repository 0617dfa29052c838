"""Kineto traces of a few steps of a job, beside its marks and on their clock.

`charllm measure --profile 3` and `charllm train --profile 3` set ``CHARLLM_PROFILE=3@5``: after the fifth
``charllm.mark.step()`` of a process, torch's profiler warms up for one step, records three, and leaves
``kineto-rank-N.json.gz`` in the folder of the marks. What starts and stops the profiler lies in the phase "profile" of
the marks, so that its cost is seen and left out of the job's own step time.

Both clocks are read in the trace itself: the name of each `CLOCK` range holds the monotonic time just before it began.
With ranges back to back, each time lies between the end of one and the start of the next.
"""

import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from charllm.errors import SpecError

WriteMark = Callable[[str, str, str], None]
"""Writes the kind, name and value of a mark."""
PROFILE_VARIABLE = "CHARLLM_PROFILE"
CLOCK = "charllm.clock "
"""Name of a range that tells the monotonic clock, followed by nanoseconds."""
PHASE_RANGE = "charllm.phase "
"""Name of a range that stands for a marked phase, followed by the phase."""
PHASE = "profile"
DEFAULT_FIRST = 5
WARMUP_STEPS = 1
TICKS = 8
"""Clock ranges at each end of a trace: the tightest of them counts."""


class ProfiledSteps(NamedTuple):
    """How many steps to record, after how many marked steps."""

    steps: int
    first: int = DEFAULT_FIRST

    def __str__(self) -> str:
        return f"{self.steps}@{self.first}"


def parse_profile(text: str, field: str = "--profile") -> ProfiledSteps:
    """Read `STEPS` or `STEPS@FIRST`."""
    found = re.fullmatch(r"(\d+)(?:@(\d+))?", text)
    if found is None or int(found[1]) < 1:
        raise SpecError(field, text, "STEPS or STEPS@FIRST: steps to record, and after how many marked steps")
    return ProfiledSteps(int(found[1]), DEFAULT_FIRST if found[2] is None else int(found[2]))


TRACE_FILES = "kineto-rank-*.json.gz"


def trace_path(folder: Path, rank: int) -> Path:
    """Return where the trace of a rank is kept."""
    return folder / TRACE_FILES.replace("*", str(rank))


class StepProfiler:
    """Starts and stops torch's profiler as steps are marked; one trace, then it is done."""

    def __init__(self, wanted: ProfiledSteps, path: Path) -> None:
        self._wanted, self._path = wanted, path
        self._seen = 0
        self._profiler: Any = None

    def after_step(self, write_mark: WriteMark) -> None:
        """Do what is due after a marked step; nothing in a process that does not use torch."""
        self._seen += 1
        since = self._seen - self._wanted.first
        if "torch" not in sys.modules or not 0 <= since <= WARMUP_STEPS + self._wanted.steps:
            return
        if self._profiler is None and since == 0:
            write_mark("begin", PHASE, "")
            self._start()
        elif self._profiler is not None:
            self._go_on(since, write_mark)

    def _start(self) -> None:
        from torch.profiler import schedule

        self._profiler = make_profiler(schedule(wait=0, warmup=WARMUP_STEPS, active=self._wanted.steps, repeat=1))
        self._profiler.start()

    def _go_on(self, since: int, write_mark: WriteMark) -> None:
        last = since == WARMUP_STEPS + self._wanted.steps
        if last:
            tell_clock()
        self._profiler.step()
        if since == WARMUP_STEPS:
            tell_clock()
        if last:
            self._profiler.export_chrome_trace(str(self._path))
            self._profiler.stop()
            self._profiler = None
            write_mark("end", PHASE, "")


def make_profiler(schedule: Any = None) -> Any:
    """Return torch's profiler of what runs on the host and on its GPUs."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
    return profile(activities=activities, schedule=schedule)


def tell_clock() -> None:
    """Leave ranges in the trace whose names tell the monotonic clock."""
    from torch.profiler import record_function

    for _ in range(TICKS):
        with record_function(f"{CLOCK}{time.monotonic_ns()}"):
            pass


def name_range(phase: str) -> Any:
    """Return a range of the profiler that stands for a marked phase."""
    from torch.profiler import record_function

    return record_function(f"{PHASE_RANGE}{phase}")


def armed_profiler(environment: Mapping[str, str], folder: str | None) -> StepProfiler | None:
    """Return the profiler that the variables of a job ask for."""
    text = environment.get(PROFILE_VARIABLE)
    if not text or folder is None:
        return None
    path = trace_path(Path(folder), int(environment.get("RANK", "0")))
    return StepProfiler(parse_profile(text, PROFILE_VARIABLE), path)
