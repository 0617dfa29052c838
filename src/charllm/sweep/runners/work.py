"""What a runner is given: the cases of a study that are left, where they are stored, and what it may use."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from charllm.measure.launchers.plan import SLURM, Plan
from charllm.sweep.case import Task
from charllm.sweep.folder import case_folder
from charllm.sweep.outcome import Outcome
from charllm.sweep.study import Study

Ended = tuple[int, Outcome]
"""Number of a case, and how it ended."""


class Engine(NamedTuple):
    """Which runner works through a study, and with what."""

    runner: str = "local"
    workers: int | None = None
    """Cases that run at the same time; None leaves it to the runner."""
    slurm: Plan = Plan(SLURM)
    """Partition, account, time and setup of Slurm's jobs."""
    address: str | None = None
    """Address of a Ray cluster; None starts one on this machine."""


class Work(NamedTuple):
    """The cases that are left of a study."""

    study: Study
    numbers: Sequence[int]
    engine: Engine
    out: Path | None = None
    lock: int | None = None
    """Open lock of the folder, for processes to hold that write into it."""
    signals: bool = False
    show: Callable[[str], None] = lambda _text: None
    """Takes a line about the state of the runner."""

    @property
    def workers(self) -> int | None:
        """Cases that run at the same time."""
        return self.engine.workers

    def task(self, number: int) -> Task:
        """Return a case as a task."""
        folder = None if self.out is None else case_folder(self.out, number)
        return Task(self.study.cases[number], folder, self.signals)
