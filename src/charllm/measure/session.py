"""Measure code of this process: the sampler runs beside it, its steps are marked as it goes."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from charllm import mark
from charllm.errors import CharllmError
from charllm.measure.job import Job, conclude, describe_job, prepare_folder
from charllm.measure.launch import Ended, wait_idle
from charllm.measure.live.observe import observed
from charllm.measure.record import SPEC_FILE
from charllm.measure.sampling import sampling
from charllm.profile import StepProfiler, trace_path
from charllm.result.result import RunResult
from charllm.result.store import write_text

FAILED = 1
"""Exit code of a block that ended in an exception, as of a script that does."""


class Session:
    """What a ``with`` block sees of the measurement around it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._result: RunResult | None = None

    @property
    def result(self) -> RunResult:
        """The measured run, once the block has ended."""
        if self._result is None:
            raise CharllmError("the result of a measurement is there when its with block has ended")
        return self._result

    def step(self, number: int | None = None, *, tokens: int | None = None) -> None:
        """Mark the end of a step, with the tokens it worked on; takes microseconds and waits for nothing."""
        mark.step(number, tokens=tokens)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Mark the beginning and the end of a phase: ``with job.phase("forward"): ...``."""
        return mark.phase(name)

    def point(self, name: str, value: float | None = None) -> None:
        """Mark a moment, with a value if there is one (a loss, say)."""
        mark.point(name, value)


def _profiler(job: Job) -> StepProfiler | None:
    profiled = job.settings.profiled
    return None if profiled is None else StepProfiler(profiled, trace_path(job.folder, 0))


@contextmanager
def measure_here(
    job: Job, gpus: Sequence[str], environment: Mapping[str, str], spec: Mapping[str, Any] | None = None
) -> Iterator[Session]:
    """Record while the block inside runs, and summarise it when it ends, also where it ends in an exception."""
    settings = job.settings
    prepare_folder(job.folder)
    if spec is not None:
        write_text(json.dumps(dict(spec)), job.folder / SPEC_FILE)
    session = Session(job.folder)
    record, exit_code = describe_job(job, gpus, environment).write(job.folder), FAILED
    windows: dict[str, list[float]] = {}
    try:
        with sampling(job.folder, settings, gpus):
            windows = {"idle": list(wait_idle(settings.idle_s)), "command": [time.monotonic()]}
            record = replace(record, windows_s=windows).write(job.folder)
            try:
                with (
                    mark.recording_to(str(job.folder)),
                    mark.profiling_by(_profiler(job)),
                    observed(job.folder, watch=settings.watch, prometheus=settings.prometheus),
                ):
                    yield session
                exit_code = 0
            finally:
                windows["command"].append(time.monotonic())
                windows["cooldown"] = list(wait_idle(settings.cooldown_s))
    finally:
        if "cooldown" in windows:
            session._result = conclude(record, job.folder, windows, Ended(exit_code))
