"""What would take too long to simulate is refused, with the estimate."""

import math
import time
from typing import Any

import pytest

from benchmarks.loop_speed import llama405
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.simulate.predict import predict
from charllm.simulate.steady import build_machine
from charllm.simulate.work import LONGEST_S, check_rounds, estimate_rounds_s
from charllm.spec.request import merge
from charllm.workload.step import build_step

LLAMA: dict[str, Any] = {"model": "llama3-8b", "cluster": "charllm-ppt-h200"}
TOO_LONG: dict[str, tuple[dict[str, Any], str]] = {
    "nodes": ({"cluster": {"nodes": 100_000}}, "cluster.nodes: got 800,000 GPUs"),
    "stages": (
        {"model": {"layers": 4096}, "cluster": {"nodes": 512}, "parallelism": {"pp": 4096}},
        "parallelism.pp: got 1,048,576 passes",
    ),
    "slow links": ({"cluster": {"fabric": {"nic_bandwidth_mb_per_s": 1}}, "parallelism": {"tp": 32}}, "step time: got"),
    "long sequences": ({"training": {"seq_length": 2**24}}, "step time: got"),
    "many different GPUs": (
        {"model": {"layers": 128}, "cluster": {"nodes": 8000}, "parallelism": {"tp": 8},
         "conditions": {"silicon_spread_fraction": 0.1}, "training": {"global_batch_size": 80_000}},
        "step time: got",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TOO_LONG)
def test_what_takes_too_long_is_refused_with_the_estimate(what: str) -> None:
    change, message = TOO_LONG[what]
    begun_s = time.process_time()
    with pytest.raises(SpecError) as caught:
        predict(resolve_run(merge(LLAMA, change)), ignore_memory=True)
    assert message in str(caught.value)
    assert "to simulate, not about" in str(caught.value)
    assert time.process_time() - begun_s < 20


def test_16384_gpus_that_all_differ_are_simulated() -> None:
    step = build_step(resolve_run(llama405(nodes=2048, spread=0.03)))
    machine = build_machine(step)
    assert len(machine.gpus) == 16_384
    check_rounds(machine, LONGEST_S)
    assert 3 < estimate_rounds_s(machine) < 6


def test_a_limit_can_be_lifted() -> None:
    run = resolve_run(merge(LLAMA, {"cluster": {"nodes": 64}}))
    with pytest.raises(SpecError, match="at most 0 s to simulate"):
        predict(run, longest_s=0.01)
    assert predict(run, longest_s=math.inf).result.metrics["step_time_s"] > 0


@pytest.mark.parametrize("length", [{"seconds_s": 1e9}, {"steps": 100_000_000}])
def test_a_run_of_years_ends_where_its_temperature_does(length: dict[str, float]) -> None:
    begun_s = time.process_time()
    steady, long = (predict(resolve_run(merge(LLAMA, {"conditions": asked}))).result.metrics for asked in ({}, length))
    assert time.process_time() - begun_s < 10
    assert long["step_time_s"] == pytest.approx(steady["step_time_s"], rel=2e-3)
    assert long["temperature_mean_c"] == pytest.approx(steady["temperature_mean_c"], abs=0.5)
