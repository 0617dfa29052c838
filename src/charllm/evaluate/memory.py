"""Predicted memory against published memory, each source in the meaning it prints: allocated, reserved or device.

Which source prints which is listed in spellings.toml. Of the model of memory one constant is fitted on these rows, what
the allocator of Megatron, DeepSpeed and Paddle holds beyond its use; `held_out` fits it again without each source.
"""

import csv
import io
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

from charllm.errors import CharllmError, SpecError
from charllm.evaluate.corrections import source_of
from charllm.evaluate.scores import Skipped, describe_errors
from charllm.evaluate.spellings import HERE, Row, spellings
from charllm.evaluate.time import resolve_row
from charllm.spec.grades import is_untuned
from charllm.spec.request import read_text
from charllm.spec.run import RunSpec
from charllm.units import GIB
from charllm.workload.memory import FRAGMENTATION, StageMemory, rank_memories
from charllm.workload.step import build_step

COLUMNS = ("id", "model", "gpu", "n_gpus", "framework", "seq", "gbs")


MEANINGS: dict[str, Callable[[StageMemory], float]] = {
    "allocated": lambda memory: memory.allocated_bytes,
    "reserved": lambda memory: memory.reserved_bytes,
    "device": lambda memory: memory.total_bytes,
}
"""What a source may mean by memory: how a rank's memory shows it."""
CANDIDATES = tuple(step / 100 for step in range(10, 35))
"""Values of reserve_fraction that a fit tries."""


class MemoryScore(NamedTuple):
    """One row: what was printed, and what is predicted in the same meaning."""

    id: str
    measure: str
    measured_bytes: float
    predicted_bytes: float

    @property
    def error_fraction(self) -> float:
        """Prediction over measurement, minus one."""
        return self.predicted_bytes / self.measured_bytes - 1


PUBLISHED = str(HERE / "data" / "published_training_results.csv")
"""The table that ships with the package."""


def read_rows(path: str = PUBLISHED) -> list[Row]:
    """Read a table of published results."""
    rows: list[Row] = list(csv.DictReader(io.StringIO(read_text(path, "FILE")), restval=""))
    absent = [column for column in COLUMNS if not rows or column not in rows[0]]
    if absent:
        raise SpecError("FILE", path, f"a CSV with the columns {', '.join(absent)}")
    return rows


class MemoryRow(NamedTuple):
    """One published row that prints memory, resolved."""

    id: str
    measure: str
    measured_bytes: float
    run: RunSpec

    @property
    def is_fitted(self) -> bool:
        """Whether the fitted constant enters its prediction."""
        return self.measure != "allocated" and self.run.framework.reserve_fraction > FRAGMENTATION

    def score(self, reserve_fraction: float | None = None) -> MemoryScore:
        """Predict it, with another constant where one is given and would enter."""
        run = self.run
        if reserve_fraction is not None and self.is_fitted:
            run = replace(run, framework=replace(run.framework, reserve_fraction=reserve_fraction))
        predicted = max(map(MEANINGS[self.measure], rank_memories(build_step(run))))
        return MemoryScore(self.id, self.measure, self.measured_bytes, predicted)


def resolve_rows(rows: Iterable[Row]) -> tuple[list[MemoryRow], list[Skipped]]:
    """Resolve every row that prints memory, or say why not."""
    found, skipped = [], []
    for row in rows:
        if not row.get("memory_gb"):
            continue
        measure = spellings()["memory"].get(source_of(row["id"]).lower(), "device")
        try:
            run, memory_gib = resolve_row(row), float(row["memory_gb"].replace(",", ""))
            if not 0 < memory_gib < inf:
                raise SpecError("memory_gb", row["memory_gb"], "a number above 0")
            found.append(MemoryRow(row["id"], measure, memory_gib * GIB, run))
        except (CharllmError, ValueError) as error:
            skipped.append(Skipped(row["id"], str(error)))
    return found, skipped


def tuned_rows() -> list[MemoryRow]:
    """Return the rows that ship with charllm of tuned runs, on which the constant is fitted."""
    return [row for row in resolve_rows(read_rows())[0] if not is_untuned(row.run)]


def score_memory(rows: Iterable[Row]) -> tuple[list[MemoryScore], list[Skipped]]:
    """Predict the memory of every row that prints one."""
    found, skipped = resolve_rows(rows)
    return [row.score() for row in found], skipped


def held_out(rows: Sequence[MemoryRow]) -> list[MemoryScore]:
    """Predict every row with the constant fitted on the other sources alone; most rows do not depend on it."""
    fitted = [row for row in rows if row.is_fitted]
    without = {
        source: fit_reserve([row for row in fitted if source_of(row.id) != source])
        for source in {source_of(row.id) for row in fitted}
    }
    return [row.score(without.get(source_of(row.id))) for row in rows]


def fit_reserve(rows: Sequence[MemoryRow]) -> float | None:
    """Return the candidate with the smallest median error, None where there are no rows."""

    def median_error(fraction: float) -> float:
        return statistics.median(abs(row.score(fraction).error_fraction) for row in rows)

    return min(CANDIDATES, key=median_error) if rows else None


def summarise(scores: Sequence[MemoryScore]) -> dict[str, Any]:
    """Return median, 90th percentile and bias of the errors: in all, by meaning and by source."""
    whole = describe_errors([score.error_fraction for score in scores])
    return {
        **whole,
        "by_meaning": _describe_by(scores, lambda score: score.measure),
        "by_source": _describe_by(scores, lambda score: source_of(score.id)),
    }


def _describe_by(scores: Sequence[MemoryScore], key: Callable[[MemoryScore], str]) -> dict[str, Any]:
    groups: dict[str, list[float]] = {}
    for score in scores:
        groups.setdefault(key(score), []).append(score.error_fraction)
    return {name: describe_errors(group) for name, group in groups.items()}
