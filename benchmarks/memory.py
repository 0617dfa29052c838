"""Predicted against published memory, with the one fitted constant of each family held out.

The allocator's reserve is the only constant fitted on these rows: on the even-numbered ids of the sources that print
reserved or device memory. Everything else is scored on rows it was not fitted on.
"""

import statistics
from dataclasses import replace
from pathlib import Path

from charllm.catalog.resolve import resolve_run
from charllm.errors import CharllmError
from charllm.evaluate.memory import measured_bytes, read_rows, score_memory, summarise
from charllm.evaluate.published import Row, read_row
from charllm.spec.run import RunSpec
from charllm.units import GIB
from charllm.workload.memory import stage_memories
from charllm.workload.step import build_step

TABLE = Path(__file__).parent.parent / "tests" / "data" / "published_memory.csv"
FITTED_SOURCES = {"BLOOM": "device", "FP": "device", "TT": "reserved"}
FAMILIES = {
    "megatron": ("megatron", "megatron-deepspeed", "megatron-2020", "nemo", "megatron-bridge"),
    "pytorch": ("fsdp", "deepspeed", "paddle", "pytorch-eager"),
}


def main() -> None:
    rows = read_rows(str(TABLE))
    for family, frameworks in FAMILIES.items():
        print(f"reserve_fraction of {family}: {_fit(rows, frameworks):.2f} fitted on even rows")
    scores, skipped = score_memory(rows)
    held_out = [score for score in scores if not _is_fitted(score.id)]
    summary = summarise(held_out)
    print(f"memory, rows not used to fit ({len(skipped)} rows lack a setting): median |error|, 90th percentile, mean")
    for name, group in {**summary["by_source"], "all": summary}.items():
        figures = (group["median_abs_error_fraction"], group["p90_abs_error_fraction"], group["mean_error_fraction"])
        print(f"  {name:6} {group['scored']:4} rows " + " ".join(f"{100 * figure:7.1f} %" for figure in figures))


def _is_fitted(row_id: str) -> bool:
    source, number = row_id.split("-")
    return source in FITTED_SOURCES and int(number) % 2 == 0


def _fit(rows: list[Row], frameworks: tuple[str, ...]) -> float:
    """Return the fraction, in steps of 0.02, with the smallest median error on the rows it may see."""
    known: list[tuple[RunSpec, str, float]] = []
    for row in rows:
        if not _is_fitted(row["id"]):
            continue
        try:
            run = resolve_run(read_row(row))
        except CharllmError:
            continue
        if run.framework.name in frameworks:
            known.append((run, FITTED_SOURCES[row["id"].split("-")[0]], float(row["memory_gb"]) * GIB))
    candidates = [step / 50 for step in range(2, 17)]
    return min(candidates, key=lambda fraction: statistics.median(_error(*entry, fraction) for entry in known))


def _error(run: RunSpec, measure: str, measured: float, fraction: float) -> float:
    changed = replace(run, framework=replace(run.framework, reserve_fraction=fraction))
    predicted = max(measured_bytes(memory, measure) for memory in stage_memories(build_step(changed)))
    return abs(predicted / measured - 1)


if __name__ == "__main__":
    main()
