"""Measure code of this process: the sampler runs beside it, its steps are marked as it goes."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from charllm import mark
from charllm.errors import CharllmError
from charllm.measure.job import SPEC_FILE, Job, Windows, conclude, prepare_folder, watching
from charllm.measure.launch import sampling, wait_idle
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


@contextmanager
def measure_here(
    job: Job, gpus: Sequence[str], environment: Mapping[str, str], spec: Mapping[str, Any] | None = None
) -> Iterator[Session]:
    """Record while the block inside runs, and summarise it when it ends, also where it ends in an exception."""
    prepare_folder(job.folder)
    if spec is not None:
        write_text(json.dumps(dict(spec)), job.folder / SPEC_FILE)
    session = Session(job.folder)
    windows, exit_code = None, FAILED
    try:
        with sampling(job.folder, job.telemetry, job.rate_hz, gpus):
            idle = wait_idle(job.idle_s)
            start_s = time.monotonic()
            try:
                with mark.recording_to(str(job.folder)), watching(job.folder) if job.watch else nullcontext():
                    yield session
                exit_code = 0
            finally:
                end_s = time.monotonic()
                windows = Windows(idle, (start_s, end_s), wait_idle(job.cooldown_s))
    finally:
        if windows is not None:
            session._result = conclude(job.folder, gpus, job.rate_hz, windows, job.command, exit_code, environment)
