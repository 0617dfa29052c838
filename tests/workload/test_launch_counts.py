"""What a profiler shows for an op, counted from its shape: as in traced steps on an H200."""

import csv
from collections import defaultdict
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.evaluate.h200.tables import READINGS
from charllm.trace.simulated import CLASS_OF_KERNEL, MEMORY, compared_class
from charllm.workload.launch_counts import attention_events, gemm_events
from charllm.workload.launches import launched
from charllm.workload.op import is_communication
from charllm.workload.step import build_step
from charllm.workload.sync import optimizer_ops
from charllm.workload.totals import stage_ops

TRACED = READINGS / "traced_classes.csv"
H200 = 132
DENSE = {"base": "llama3-8b", "layers": 4, "vocab": 32000}
SPARSE = {"base": "mixtral-8x7b", "layers": 2}
SMALL = {"base": "gpt3-1.3b", "dropout_fraction": 0.0}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dense": (DENSE, {"micro_batch_size": 2, "global_batch_size": 4, "clip_gradients": True}),
    "recompute": (DENSE, {"micro_batch_size": 2, "global_batch_size": 4, "recompute": "full"}),
    "moe-grouped": (SPARSE, {"grouped_gemm": True}),
    "moe-looped": (SPARSE, {}),
    "host-bound": (SMALL, {"seq_length": 2048}),
}


def counted(case: str) -> dict[str, float]:
    """Count what a step of the reference trainer launches, by class."""
    model, training = CASES[case]
    asked = {"seq_length": 4096, "micro_batch_size": 1, "global_batch_size": 2, **training}
    run = resolve_run({"cluster": "h200x1", "framework": "reference", "model": model, "training": asked})
    step = build_step(run)
    listed = [(op, times) for op, times, _phase in stage_ops(step, 0) if op.kind not in ("optimizer", "clip")]
    found: dict[str, float] = defaultdict(float)
    for op, times in [*listed, *((op, 1.0) for op in optimizer_ops(step, 0))]:
        for one in () if is_communication(op) else launched(op, run):
            found[compared_class(CLASS_OF_KERNEL.get(one.shape.kind, MEMORY))] += times * one.times * one.events
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_step_launches_as_many_kernels_of_each_class_as_its_trace_shows(case: str) -> None:
    table = csv.DictReader(TRACED.read_text().splitlines())
    rows = [row for row in table if row["case"] == case and row["traced_launches"]]
    found = counted(case)
    assert len(rows) == 5
    for row in rows:
        assert found[row["class"]] == pytest.approx(float(row["traced_launches"]), rel=0.035), row["class"]
    traced = sum(float(row["traced_launches"]) for row in rows)
    assert sum(found.values()) == pytest.approx(traced, rel=0.015)


@pytest.mark.parametrize(
    ("m", "n", "k", "events"),
    [
        (4096, 4096, 4096, 2),  # more blocks than two waves: a counter is cleared
        (8192, 1024, 4096, 1),
        (2048, 2048, 8192, 1),
        (4096, 8, 4096, 2),  # too few blocks: the sum is split, and added up by a second kernel
        (2048, 50257, 2048, 1),  # not aligned: another library
    ],
)
def test_a_product_shows_one_kernel_or_two(m: int, n: int, k: int, events: int) -> None:
    assert gemm_events(m, n, k, H200) == events


def test_attention_adds_up_the_heads_of_groups_in_backward() -> None:
    assert attention_events("forward", grouped=True) == attention_events("forward", grouped=False) == 2
    assert attention_events("backward", grouped=True) == attention_events("backward", grouped=False) + 2
