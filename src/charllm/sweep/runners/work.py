"""What a runner is given: the cases of a study that are left, where they are stored, and what it may use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from charllm.measure.launchers.plan import LOCAL, SLURM, Plan
from charllm.spec.fields import choice, count, line
from charllm.sweep.case import Task
from charllm.sweep.folder import case_folder
from charllm.sweep.outcome import Outcome
from charllm.sweep.study import Study

RAY = "ray"
SLURM_WORKERS, SLURM_HOME = 16, ".slurm"
"""Cases that run at the same time as Slurm's jobs, by default."""
Ended = tuple[int, Outcome]
"""Number of a case, and how it ended."""


AS_ARRAY = Plan(SLURM)


@dataclass(frozen=True, slots=True)
class Engine:
    """Which runner works through a study, and with what."""

    runner: str = choice(
        f"where cases are simulated: processes of this machine ({LOCAL}), {SLURM} array jobs, or {RAY}",
        (LOCAL, SLURM, RAY), LOCAL,
    )  # fmt: skip
    workers: int | None = count(
        f"cases to run at the same time (default: {LOCAL} 1, {SLURM} {SLURM_WORKERS}, {RAY} all CPUs)", 1, 4096, None
    )
    slurm: Plan = AS_ARRAY
    """Partition, account, time and setup of Slurm's jobs."""
    address: str | None = line(
        "Ray cluster to join (default: start Ray on this machine)", None, flag="--address ADDRESS"
    )


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
