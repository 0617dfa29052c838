"""Predicted memory against published memory, each source in the measure it printed."""

import csv
import io
from collections.abc import Iterable
from typing import Any, NamedTuple

from charllm.catalog.resolve import resolve_run
from charllm.errors import CharllmError, SpecError
from charllm.evaluate.corrections import source_of
from charllm.evaluate.published import Row, read_row
from charllm.evaluate.scores import describe_errors
from charllm.evaluate.spellings import HERE, spellings
from charllm.spec.request import read_text
from charllm.units import GIB
from charllm.workload.memory import StageMemory, stage_memories
from charllm.workload.step import build_step

COLUMNS = ("id", "model", "gpu", "n_gpus", "framework", "seq", "gbs")


class MemoryScore(NamedTuple):
    """One row: what was printed, and what is predicted in the same measure."""

    id: str
    measure: str
    measured_bytes: float
    predicted_bytes: float

    @property
    def error_fraction(self) -> float:
        """Prediction over measurement, minus one."""
        return self.predicted_bytes / self.measured_bytes - 1


class Skipped(NamedTuple):
    """A row that was not scored, and why."""

    id: str
    reason: str


PUBLISHED = str(HERE / "data" / "published_training_results.csv")
"""The table that ships with the package."""


def read_rows(path: str = PUBLISHED) -> list[Row]:
    """Read a table of published results."""
    rows: list[Row] = list(csv.DictReader(io.StringIO(read_text(path, "FILE"))))
    absent = [column for column in COLUMNS if not rows or column not in rows[0]]
    if absent:
        raise SpecError("FILE", path, f"a CSV with the columns {', '.join(absent)}")
    return rows


def score_memory(rows: Iterable[Row]) -> tuple[list[MemoryScore], list[Skipped]]:
    """Predict the memory of every row that prints one."""
    scores, skipped = [], []
    for row in rows:
        if not row.get("memory_gb"):
            continue
        try:
            scores.append(_score(row))
        except (CharllmError, ValueError) as error:
            skipped.append(Skipped(row["id"], str(error)))
    return scores, skipped


def _score(row: Row) -> MemoryScore:
    measure = spellings()["memory"].get(source_of(row["id"]).lower(), "device")
    memories = stage_memories(build_step(resolve_run(read_row(row))))
    predicted = max(measured_bytes(memory, measure) for memory in memories)
    return MemoryScore(row["id"], measure, float(row["memory_gb"]) * GIB, predicted)


def measured_bytes(memory: StageMemory, measure: str) -> float:
    """Return the part of a rank's memory that a measure shows."""
    return {
        "allocated": memory.allocated_bytes,
        "reserved": memory.reserved_bytes,
        "device": memory.total_bytes,
    }[measure]


def summarise(scores: list[MemoryScore]) -> dict[str, Any]:
    """Return median, 90th percentile and bias of the errors, in all and by source."""
    by_source: dict[str, list[float]] = {}
    for score in scores:
        by_source.setdefault(source_of(score.id), []).append(score.error_fraction)
    whole = describe_errors([score.error_fraction for score in scores])
    return {**whole, "by_source": {name: describe_errors(group) for name, group in by_source.items()}}
