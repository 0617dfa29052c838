"""The answers of a run in words: what is known, and nothing of what is not."""

from typing import Any

import pytest

from charllm.result import answers
from charllm.result.metrics import fill_metrics
from charllm.result.result import RunResult

GPU = {"name": "h200", "memory_bytes": 150e9, "clock_max_hz": 1.98e9}
SPEC: dict[str, Any] = {
    "model": {"name": "m"},
    "framework": {"name": "megatron"},
    "parallelism": {"tp": 2, "cp": 1, "pp": 2, "dp": 1, "ep": 1},
    "training": {"precision": "bf16", "global_batch_size": 8, "micro_batch_size": 1, "seq_length": 32},
    "cluster": {"name": "h200x4", "nodes": 1, "node": {"gpus": 4, "gpu": GPU}},
}


def run_with(spec: dict[str, Any] | None = None, gpus: list[dict[str, Any]] | None = None, **known: Any) -> RunResult:
    return RunResult("measured", SPEC if spec is None else spec, fill_metrics(known), gpus or [])


def test_a_run_of_which_nothing_is_known_has_no_answers() -> None:
    assert answers.answer_lines(run_with()) == []


@pytest.mark.parametrize(
    ("seconds", "text"), [(31.66, "31.66 s"), (0.25, "0.2500 s"), (0.080781, "80.78 ms"), (3e-5, "0.03 ms")]
)
def test_times_are_written_in_the_unit_that_reads_best(seconds: float, text: str) -> None:
    assert answers.answer_time(run_with(step_time_s=seconds)) == text


def test_energy_of_a_step_is_told_only_where_steps_are_known() -> None:
    known: dict[str, Any] = {"power_mean_w": 500.0, "energy_per_step_j": 9e5}
    assert answers.answer_power(run_with(**known)) == "500 W per GPU"
    assert answers.answer_power(run_with(**known, step_time_s=1.0)) == "500 W per GPU, 900 kJ per step"
    assert answers.answer_power(run_with(power_peak_sensor_w=700.0)) == "peak 700 W, 25 ms average"


def test_throttling_that_was_not_read_is_not_told_as_none() -> None:
    assert answers.answer_clock(run_with(clock_mean_hz=1.5e9)) == "1500 of 1980 MHz"
    unread: dict[str, Any] = {"power": None, "thermal": None, "brake": None}
    assert answers.answer_throttling(run_with(throttled_time_fraction=unread)) == ""
    never = {"power": 0.0, "thermal": 0.0, "brake": 0.0}
    assert answers.answer_throttling(run_with(throttled_time_fraction=never)) == "not throttled"


def test_memory_is_told_against_the_smallest_gpu() -> None:
    mixed = {**SPEC["cluster"], "mixed": [{"node": {"gpu": {"memory_bytes": 80 * 2.0**30}}, "nodes": [0]}]}
    result = run_with({**SPEC, "cluster": mixed}, memory_peak_bytes=60 * 2.0**30, fits=True, memory_rank=3)
    assert answers.answer_memory(result) == "fits: 60.0 of 80.0 GiB on rank 3"
    assert answers.answer_memory(run_with({}, memory_peak_bytes=60 * 2.0**30)) == "60.0 GiB"


def test_the_pacing_gpus_are_the_slow_ones_of_the_stage_that_the_step_waits_for() -> None:
    path = [{"stage": 1, "node": 0, "seconds": 5.0}]
    clocks = (1.0e9, 1.9e9, 1.5e9, 1.7e9)
    rows = [{"rank": at, "node": 0, "slot": at, "stage": at // 2, "clock_mean_hz": hz} for at, hz in enumerate(clocks)]
    breakdown_s = {"compute": 5.0, "straggler_wait": 0.5}
    result = run_with(gpus=rows, critical_path=path, step_time_s=5.5, breakdown_s=breakdown_s)
    assert [row["rank"] for row in answers.pacing_gpus(result)] == [2]
    told = "stage 1 on node 0, 5.000 s of the critical path; its slowest GPU is in slot 2 at 1500 MHz, 6.2 % below"
    assert answers.answer_pace(result).startswith(told)
    alike = [{**row, "clock_mean_hz": 1.5e9} for row in rows]
    assert answers.pacing_gpus(run_with(gpus=alike, critical_path=path)) == []


def test_a_run_is_described_by_its_spec_its_command_or_its_files() -> None:
    assert answers.describe_spec(SPEC).startswith("m on h200x4 (4 x h200), megatron, bf16; tp 2 x pp 2; batch 8")
    assert answers.describe_spec({"command": ["python", "train.py"]}) == "python train.py"
    assert answers.describe_spec({"converted": ["a.csv", "b.csv"]}) == "converted from a.csv, b.csv"
    assert answers.describe_spec({"odd": 1}) == "spec not known"
    assert (
        answers.answer_memory(run_with({"cluster": {"mixed": [3], "node": {"gpu": GPU}}}, memory_peak_bytes=2.0**30))
        == "1.0 GiB"
    )
