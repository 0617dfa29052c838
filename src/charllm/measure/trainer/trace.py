"""torch's execution trace of a rank: every operator and collective of the steps after the first."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch


class StepTrace:
    """Writes `rank-N.json` (Chakra's schema) into a folder; begins after the first step, which also sets things up."""

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file, self.observer = folder / f"rank-{rank}.json", None
        self.profiler: Any = None

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Trace one step under the name `charllm step N`."""
        if number == 2:
            self._begin()
        with torch.profiler.record_function(f"charllm step {number}"):
            yield

    def _begin(self) -> None:
        observer = torch.profiler.ExecutionTraceObserver()
        observer.register_callback(str(self.file))
        observer.start()
        self.observer = observer

    def close(self) -> None:
        """Finish the file."""
        if self.observer is not None:
            self.observer.stop()
            self.observer.unregister_callback()
            self.observer = None
