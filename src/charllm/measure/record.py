"""What a recording is of, beside its readings: `job.json`."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from charllm.result.store import explain, write_text

JOB_FILE, SPEC_FILE, PREDICTED_FILE = "job.json", "spec.json", "predicted.json"
"""What is recorded; and its spec, left in the marks folder by a job that knows its own (`charllm train` does)."""
NODES = "nodes"
"""The folder of a run on several nodes that holds one folder for each."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What a recording is of."""

    origin: str = "measured"
    spec: dict[str, Any] = field(default_factory=dict)
    gpus: list[str] | None = None
    """UUIDs of the GPUs that were sampled; None for all."""
    rate_hz: float = 100.0
    details: dict[str, Any] = field(default_factory=dict)
    windows_s: dict[str, list[float]] = field(default_factory=dict)
    """idle, command, cooldown: start and end on the monotonic clock; a command that runs has no end yet."""
    ended: bool = False
    """False until the job has ended: a record that stays so was interrupted."""

    def write(self, folder: Path) -> "JobRecord":
        """Store it beside the readings."""
        try:
            write_text(json.dumps(asdict(self), indent=1), folder / JOB_FILE)
        except OSError as error:
            raise explain(folder, error) from None
        return self


def read_job(folder: Path) -> JobRecord:
    """Read what a recording is of; one that nothing is known of is a measured one of all GPUs."""
    try:
        return JobRecord(**read_json(folder / JOB_FILE))
    except TypeError:
        return JobRecord()


def read_json(path: Path) -> Any:
    """Return what a JSON file holds; None where it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
