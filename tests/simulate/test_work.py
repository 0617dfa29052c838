"""What would take too long to simulate is refused, with the estimate."""

import math
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.loop_speed import llama405
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.simulate.predict import predict
from charllm.simulate.steady import build_machine
from charllm.simulate.work import (
    LONGEST_S,
    _duration,
    check_length,
    check_passes,
    check_rounds,
    check_size,
    estimate_rounds_s,
    passes_of,
    slices_of,
)
from charllm.spec.request import merge
from charllm.units import format_bytes
from charllm.workload.step import build_step
from tests.timeline.unlimited import time_at_highest_clock

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


def run_with(batch: int, nodes: int = 1, **degrees: Any) -> Any:
    change = {"cluster": {"nodes": nodes}, "parallelism": degrees, "training": {"global_batch_size": batch}}
    return resolve_run(merge({"model": "llama3-8b", "cluster": {"base": "h200x8"}}, change))


def test_passes_are_counted_by_microbatch_chunk_and_direction() -> None:
    assert passes_of(run_with(32, pp=4, tp=2)) == 2 * 4 * 32
    assert passes_of(run_with(32, pp=4, tp=2, vpp=2)) == 2 * 8 * 32
    # Weight gradients that are put off are passes of their own.
    assert passes_of(run_with(32, pp=4, tp=2, schedule="zero-bubble")) == 3 * 4 * 32


def test_gpus_and_passes_are_refused_from_where_they_take_longer_than_allowed() -> None:
    # 60 us a GPU, 20 us a pass.
    eight, many = run_with(32), run_with(1000, pp=4, tp=2)
    check_size(eight, 8 * 60.001e-6)
    with pytest.raises(SpecError, match=r"cluster.nodes: got 8 GPUs"):
        check_size(eight, 8 * 59.99e-6)
    check_passes(many, 8000 * 20.001e-6)
    with pytest.raises(SpecError, match=r"training.global_batch_size: got 8,000 passes in a step"):
        check_passes(many, 8000 * 19.99e-6)
    with pytest.raises(SpecError, match=r"parallelism.pp: got 64 passes"):
        check_passes(run_with(4, pp=8), 1e-6)


def test_a_round_is_as_many_slices_and_boxes_as_each_gpu_works_through() -> None:
    # Two stages of four GPUs: a forward pass of 3 slices twice and one of 2, a backward pass of 4 slices thrice.
    spans = np.array([[0, 3, 2], [3, 5, 1], [5, 9, 3]])
    slices = SimpleNamespace(spans=spans, first=np.array([0, 2, 3]))
    turns = np.array([[stage, program] for stage in range(2) for program in (0, 1) for _ in range(10)])
    machine: Any = SimpleNamespace(
        slices=slices, turns=turns, gpus=np.zeros(8), open_s=4.0, board=SimpleNamespace(tick_s=0.025),
        run=SimpleNamespace(parallelism=SimpleNamespace(pp=2)),
    )  # fmt: skip
    # On each GPU 10 x 8 + 10 x 12 slices, 160 boxes and 20 turns.
    assert slices_of(machine) == 8 * (200 + 160 + 20)
    assert estimate_rounds_s(machine) == pytest.approx(3 * 0.09e-6 * 3040)
    assert estimate_rounds_s(machine, 5) == pytest.approx(5 * 0.09e-6 * 3040)
    # A step of 0.4 s is simulated five times in a round.
    machine.open_s = 0.4
    assert slices_of(machine) == 5 * 8 * (200 + 16 + 20)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (119.0, "119 s"), (120.0, "2 minutes"), (7199.0, "120 minutes"), (7200.0, "2 hours"),
     (172_800.0, "2 days"), (1e9, "11,574 days"), (math.inf, "forever")],
)  # fmt: skip
def test_an_estimate_is_told_in_the_largest_unit_of_which_it_has_two(seconds: float, said: str) -> None:
    assert _duration(seconds) == said


def test_to_cut_a_slice_of_a_pass_takes_15_us_of_half_the_time_allowed() -> None:
    step = build_step(resolve_run(LLAMA))
    passes = time_at_highest_clock(step).passes
    estimated_s = 15e-6 * sum(part.seconds for one in passes for part in one) / 0.0125
    check_length(step, 2.01 * estimated_s)
    with pytest.raises(SpecError, match="s of passes"):
        check_length(step, 1.99 * estimated_s)


def test_memory_is_told_beside_seconds_from_a_gib_on() -> None:
    few, many = (resolve_run(merge(LLAMA, {"cluster": {"nodes": nodes}})) for nodes in (100, 50_000))
    with pytest.raises(SpecError) as caught:
        check_size(few, 0.0)
    assert "not about 0 s (or --allow-long)" in str(caught.value)
    with pytest.raises(SpecError) as caught:
        check_size(many, 0.0)
    assert f"not about 24 s and {format_bytes(6000 * 400_000)} (or --allow-long)" in str(caught.value)
