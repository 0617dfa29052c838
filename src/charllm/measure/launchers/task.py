"""What the agent of every node is told: the command, how it is recorded, and the plan; one file in the run's folder."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from charllm.measure.launchers.plan import Plan, read_plan
from charllm.measure.record import read_json
from charllm.measure.settings import AS_USUAL, MeasureSettings
from charllm.result.store import PRIVATE, write_text

TASK_FILE = "task.json"


@dataclass(frozen=True, slots=True)
class Task:
    """A command to run and record on every node of a plan."""

    command: tuple[str, ...]
    plan: Plan
    settings: MeasureSettings = AS_USUAL

    def write(self, folder: Path) -> None:
        """Store it where every node finds it; only its owner may read it, for a command may hold a secret."""
        write_text(json.dumps(asdict(self), indent=1), folder / TASK_FILE, PRIVATE)


def read_task(folder: Path) -> Task | None:
    """Read it back; None where the folder cannot be seen."""
    table = read_json(folder / TASK_FILE)
    if not isinstance(table, dict):
        return None
    return Task(tuple(table["command"]), read_plan(table["plan"]), MeasureSettings(**table["settings"]))
