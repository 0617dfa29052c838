"""Predicted against measured memory: published rows by meaning, as they are and held out by source, and H200 loops."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.device.loop_cases import LOOPS
from benchmarks.device.predict_loops import request
from benchmarks.device.training_cases import TRAINING
from charllm.catalog.resolve import resolve_run
from charllm.evaluate.memory import MemoryScore, fit_reserve, held_out, read_rows, resolve_rows, summarise
from charllm.units import GIB
from charllm.workload.memory import worst_memory
from charllm.workload.step import build_step

READINGS = Path(__file__).parent / "device" / "h200"


def main() -> None:
    rows, skipped = resolve_rows(read_rows())
    fitted = fit_reserve([row for row in rows if row.is_fitted])
    print(f"reserve_fraction of allocators that cache: {fitted:.2f} fitted on all sources")
    print(f"median |error|, 90th percentile, mean ({len(skipped)} rows lack a setting)")
    _print("as it is", [row.score() for row in rows])
    _print("held out by source", held_out(rows))
    _print("H200 loops", [*loop_scores(), *training_scores()])


def loop_scores() -> list[MemoryScore]:
    """Predict the allocated memory of bare training loops that an H200 ran."""
    return [
        _score(f"{'SPARSE' if LOOPS[name].experts else 'DENSE'}-{name}", "allocated", gib, request(name, LOOPS[name]))
        for name, gib in _read("loops.csv", "peak_mem_gib")
    ]


def training_scores() -> list[MemoryScore]:
    """Predict the device memory of the reference trainer's runs on an H200."""
    return [
        _score(f"TRAIN-{name}", "device", gib, TRAINING[name][0])
        for name, gib in _read("training.csv", "memory_used_gib")
    ]


def _read(file: str, column: str) -> Iterable[tuple[str, float]]:
    with (READINGS / file).open(encoding="utf-8") as lines:
        return [(row["name"], float(row[column])) for row in csv.DictReader(lines) if not row.get("error")]


def _score(name: str, measure: str, gib: float, described: dict[str, Any]) -> MemoryScore:
    memory = worst_memory(build_step(resolve_run(described)))
    predicted = memory.allocated_bytes if measure == "allocated" else memory.total_bytes
    return MemoryScore(name, measure, gib * GIB, predicted)


def _print(title: str, scores: list[MemoryScore]) -> None:
    summary = summarise(scores)
    print(title)
    for name, group in {**summary["by_meaning"], **summary["by_source"], "all": summary}.items():
        figures = (group["median_abs_error_fraction"], group["p90_abs_error_fraction"], group["mean_error_fraction"])
        print(f"  {name:10} {group['scored']:4} rows " + " ".join(f"{100 * figure:7.1f} %" for figure in figures))


if __name__ == "__main__":
    main()
