"""Memory of runs on an H200, predicted against read: allocated by bare loops, device memory of the trainer's runs."""

from typing import Any

from charllm.catalog.resolve import resolve_run
from charllm.evaluate.h200.loop_cases import LOOPS, request
from charllm.evaluate.h200.tables import read_table
from charllm.evaluate.h200.training_cases import TRAINING
from charllm.evaluate.memory import MemoryScore
from charllm.result.memory_verdict import judge_memory
from charllm.units import GIB
from charllm.workload.step import build_step


def loop_scores() -> list[MemoryScore]:
    """Predict the allocated memory of bare training loops."""
    return [
        _score(f"{'SPARSE' if LOOPS[name].experts else 'DENSE'}-{name}", "allocated", float(row["peak_mem_gib"]),
               request(name, LOOPS[name]))
        for name, row in read_table("loops.csv").items()
    ]  # fmt: skip


def training_scores() -> list[MemoryScore]:
    """Predict the device memory of the reference trainer's runs."""
    return [
        _score(f"TRAIN-{name}", "device", float(row["memory_used_gib"]), TRAINING[name][0])
        for name, row in read_table("training.csv").items()
    ]


def _score(name: str, measure: str, gib: float, described: dict[str, Any]) -> MemoryScore:
    memory = judge_memory(build_step(resolve_run(described))).worst
    predicted = memory.allocated_bytes if measure == "allocated" else memory.total_bytes
    return MemoryScore(name, measure, gib * GIB, predicted)
