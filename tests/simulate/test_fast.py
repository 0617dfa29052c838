"""The fast answer: kernels and schedule of the coupled one at a single clock, without heat."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.result.answers import name_some
from charllm.result.metrics import missing
from charllm.simulate.fast import MOST_PASSES, NO_HEAT, predict_fast
from charllm.simulate.one_clock import WARM_C
from charllm.simulate.predict import predict
from charllm.simulate.work import passes_of
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from tests.simulate.runs import GPT3

REPLICAS: dict[str, Any] = {"model": "llama3-8b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 2, "pp": 4}}
EXPERTS: dict[str, Any] = {"model": "mixtral-8x7b", "cluster": "charllm-ppt-h200", "parallelism": {"ep": 8}}
SHARDED: dict[str, Any] = {"model": "llama3-8b", "cluster": "h100x8", "framework": "fsdp"}
LONG: dict[str, Any] = merge(GPT3, {"training": {"global_batch_size": 8192}})
RUNS = {"a pipeline": GPT3, "replicas": REPLICAS, "experts": EXPERTS, "sharded": SHARDED, "a long step": LONG}
HELD_HZ = 1.1e9
"""So low that neither power nor heat holds the clock further down."""


def held(base: dict[str, Any]) -> RunSpec:
    return resolve_run(merge(base, {"conditions": {"clock_cap_hz": HELD_HZ}}))


@pytest.mark.parametrize("base", RUNS.values(), ids=RUNS)
def test_at_a_clock_that_nothing_moves_it_is_the_coupled_answer(base: dict[str, Any]) -> None:
    run = held(base)
    fast, coupled = predict_fast(run).metrics, predict(run).result.metrics
    assert fast.clock_mean_hz == pytest.approx(coupled.clock_mean_hz, rel=1e-6)
    assert fast.step_time_s == pytest.approx(coupled.step_time_s, rel=1e-4)
    assert fast.tokens_per_s == pytest.approx(coupled.tokens_per_s, rel=1e-4)
    for name in ("fits", "memory_peak_bytes", "link_bytes", "axis_bytes", "model_flop", "executed_flop"):
        assert fast[name] == coupled[name]
    # Leakage is the only power that depends on heat.
    leaked_w = run.cluster.gpu.power.leakage_w_per_k * (WARM_C - coupled["temperature_mean_c"])
    assert fast["power_mean_w"] - leaked_w == pytest.approx(coupled["power_mean_w"], rel=0.01)


@pytest.mark.parametrize("base", RUNS.values(), ids=RUNS)
def test_its_parts_add_up(base: dict[str, Any]) -> None:
    metrics = predict_fast(resolve_run(base)).metrics
    assert sum(metrics["breakdown_s"].values()) == pytest.approx(metrics["step_time_s"])
    gpus = metrics["tokens_per_s"] / metrics["tokens_per_s_per_gpu"]
    assert metrics["energy_per_step_j"] == pytest.approx(gpus * metrics["power_mean_w"] * metrics["step_time_s"])
    assert metrics["tokens_per_j"] == pytest.approx(metrics["tokens_per_s"] / (gpus * metrics["power_mean_w"]))


def test_what_needs_heat_is_missing_with_the_reason() -> None:
    result = predict_fast(resolve_run(GPT3))
    (told,) = [text for text in result.warnings if text.startswith(NO_HEAT)]
    unknown = missing(result.metrics)
    assert {"temperature_peak_c", "margin_to_slowdown_k", "power_peak_w", "cluster_power_swing_w"} < set(unknown)
    assert told == f"{NO_HEAT}: {name_some(unknown)}"


def test_a_run_that_does_not_fit_has_memory_and_no_time() -> None:
    result = predict_fast(resolve_run({"model": "llama3-405b", "cluster": "h200x8"}))
    assert result.metrics.fits is False
    assert result.metrics["memory_peak_bytes"] > 0
    assert result.metrics.step_time_s is None
    assert not any(text.startswith(NO_HEAT) for text in result.warnings)


def test_of_a_long_step_a_part_is_solved() -> None:
    run = resolve_run(LONG)
    assert passes_of(run) > MOST_PASSES
    whole = predict_fast(run).metrics
    assert whole.step_time_s == pytest.approx(predict(run).result.metrics.step_time_s, rel=0.06)


def test_a_mixed_cluster_is_as_slow_as_its_slowest_nodes() -> None:
    mixed = {"base": "charllm-ppt-h200", "mixed": [{"node": "hgx-h100", "nodes": [1]}]}
    runs = [resolve_run(merge(REPLICAS, {"cluster": cluster})) for cluster in ("charllm-ppt-h200", mixed)]
    usual, slowed = (predict_fast(run).metrics for run in runs)
    assert slowed["step_time_s"] > usual["step_time_s"]


def test_too_much_work_is_refused_with_the_estimate() -> None:
    large = {"model": "llama3-8b", "cluster": {"base": "charllm-ppt-h200", "nodes": 100_000}}
    with pytest.raises(SpecError, match="not about 48 s"):
        predict_fast(resolve_run(large), longest_s=4.0)
