"""Find what is weak in a run."""

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from charllm.analysis.doctor.examine import examine
from charllm.api.keywords import as_path
from charllm.api.signature import public
from charllm.report.doctor import render_examination
from charllm.result.result import RunResult, to_frame
from charllm.stored import load_one_run

if TYPE_CHECKING:
    from pandas import DataFrame


NAMES = ("verdict", "gpus", "nodes", "findings", "unusual", "not_judged")
"""Keys of a diagnosis as a table."""


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis:
    """What is weak in a run, the costliest first."""

    verdict: str
    """One sentence."""
    findings: list[dict[str, Any]]
    """What is weak (name, kind, cause, node, gpus), its cost with an interval, its evidence and remedies."""
    unusual: list[dict[str, Any]]
    """Readings far from those of the peers that do not slow the job."""
    not_judged: list[str]
    """Tests that could not be made, and why."""
    gpus: int
    nodes: int

    def as_table(self) -> dict[str, Any]:
        """Return everything as a plain table."""
        return {name: getattr(self, name) for name in NAMES}

    def to_json(self) -> str:
        """Return everything as JSON, as ``charllm doctor --json`` prints it."""
        return json.dumps(self.as_table(), indent=2, allow_nan=False)

    def to_frame(self) -> "DataFrame":
        """Return a row per finding as a pandas DataFrame."""
        return to_frame(self.findings)

    def __repr__(self) -> str:
        return render_examination(self.as_table())


@public
def doctor(run: RunResult | str | PathLike[str]) -> Diagnosis:
    """Name the GPU, link, node or host that slows a run, with the cause, the cost and what to do about it.

    `run` is a result, or the folder (or result.json) it is stored in. Only telemetry and counters that a real job has
    are used; sensor noise is added to a simulated run.

    >>> import charllm
    >>> healthy = charllm.simulate(model="llama3-8b", cluster="h200x32", tp=2)
    >>> charllm.doctor(healthy).verdict
    'no weak GPU, link, node or host found'
    """
    folder = None
    if not isinstance(run, RunResult):
        path = as_path(run, "run")
        run = load_one_run(path)
        folder = path if path.is_dir() else Path(path).parent
    return Diagnosis(**examine(run, folder).as_table())
