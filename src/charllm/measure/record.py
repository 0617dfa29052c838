"""What a recording is of, beside its readings: `job.json`."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypedDict

from charllm.errors import SpecError
from charllm.result.result import all_finite
from charllm.result.shape import Origin, check_spec
from charllm.result.store import explain, write_text
from charllm.spec.shape import check_shape

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


class SlurmState(TypedDict, total=False):
    """What is known of the job of a record in Slurm."""

    job_id: str | int | None
    state: str | None
    reason: str | None
    nodes: str | None


class Details(TypedDict, total=False):
    """What is read of how a job ran."""

    notes: list[str]
    slurm: SlurmState | None
    nodes: int | None
    node_rank: int
    ranks_per_node: int | None
    exit_code: int | None
    profile: str | None
    command: list[str]
    environment: dict[str, str]


class StoredJob(TypedDict, total=False):
    """The shape of job.json."""

    origin: Origin
    spec: dict[str, Any]
    gpus: list[str] | None
    rate_hz: float
    details: Details
    windows_s: dict[str, list[float]]
    ended: bool


def read_job(folder: Path) -> JobRecord:
    """Read what a recording is of; one that nothing is known of is a measured one of all GPUs."""
    path = folder / JOB_FILE
    found = _load(path)
    if not isinstance(found, dict):
        return JobRecord()
    check_shape(found, Any, path)
    check_shape(found, StoredJob, path)
    for name, window in found.get("windows_s", {}).items():
        if len(window) not in (1, 2):
            raise SpecError(f"{path}, windows_s.{name}", window, "its start, and its end once it has ended")
    if found.get("rate_hz", 1.0) <= 0:
        raise SpecError(f"{path}, rate_hz", found["rate_hz"], "a rate above 0")
    check_spec(found.get("spec", {}), path)
    return JobRecord(**{entry.name: found[entry.name] for entry in fields(JobRecord) if entry.name in found})


def read_json(path: Path) -> Any:
    """Return what a JSON file holds; None where it cannot be read, or holds what is no number."""
    found = _load(path)
    return found if all_finite(found) else None


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
