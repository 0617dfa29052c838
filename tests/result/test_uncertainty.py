"""Intervals of a prediction: where they come from, when they are wider, and what they leave alone."""

import json
from functools import cache
from math import exp
from typing import Any

import pytest

from benchmarks.uncertainty import derive
from charllm.catalog.resolve import resolve_run
from charllm.evaluate.predictions import load_predictions
from charllm.result.answers import answer_lines
from charllm.result.result import RunResult
from charllm.result.uncertainty import (
    FILE,
    LEVEL,
    effect_interval,
    errors,
    intervals,
    run_class,
    tell_footing,
    with_intervals,
)
from charllm.simulate.fast import predict_fast
from charllm.simulate.predict import simulate


@cache
def run_on(cluster: str, model: str = "llama3-8b", gbs: int = 16, **conditions: Any) -> RunResult:
    request = {"model": model, "cluster": cluster, "parallelism": {"tp": 1}, "training": {"global_batch_size": gbs}}
    return simulate(resolve_run({**request, "conditions": conditions}), ignore_memory=True)


def width(result: RunResult, metric: str) -> float:
    interval = intervals(result)[metric]
    return float((interval["high"] - interval["low"]) / result.metrics[metric])


def test_the_shipped_errors_are_those_that_the_tables_give() -> None:
    assert json.loads(FILE.read_text(encoding="utf-8")) == derive()


@pytest.mark.parametrize("kind", ["dense", "moe", "lora"])
def test_intervals_hold_four_in_five_published_runs_of_a_class(kind: str) -> None:
    bounds = errors()["step_time"][kind]
    rows = [row for row in load_predictions() if row.kind == kind and row.host == "tuned"]
    for predicted in ("predicted_s", "source_left_out_s"):
        held = [
            getattr(row, predicted) * exp(-bounds["high"]) <= row.measured_s
            and row.measured_s <= getattr(row, predicted) * exp(-bounds["low"])
            for row in rows
        ]
        assert sum(held) / len(held) >= LEVEL - 0.01


def test_every_interval_holds_its_metric_and_says_what_it_rests_on() -> None:
    result = run_on("h200x8")
    known = intervals(result)
    wanted = {"step_time_s", "tokens_per_s", "mfu", "memory_peak_bytes", "power_mean_w", "power_peak_sensor_w",
              "energy_per_step_j", "tokens_per_j", "temperature_peak_c", "clock_mean_hz"}  # fmt: skip
    assert wanted <= known.keys()
    for metric, interval in known.items():
        assert interval["low"] <= result.metrics[metric] <= interval["high"], metric
        assert interval["level"] == LEVEL
        assert interval["basis"]


def test_rates_go_against_the_step_time() -> None:
    result = run_on("h200x8")
    known = intervals(result)
    tokens = result.metrics["tokens_per_s"] * result.metrics["step_time_s"]
    assert known["tokens_per_s"]["low"] == pytest.approx(tokens / known["step_time_s"]["high"])
    assert known["tokens_per_s"]["high"] == pytest.approx(tokens / known["step_time_s"]["low"])


def test_power_and_clock_stay_below_their_limits() -> None:
    known = intervals(run_on("h200x8", power_cap_w=500.0))
    assert known["power_mean_w"]["high"] <= 500.0
    unthrottled = run_on("h200x8", gbs=8, clock_cap_hz=900e6)
    assert intervals(unthrottled)["clock_mean_hz"]["high"] == unthrottled.metrics["clock_mean_hz"]


def test_a_gpu_that_nobody_measured_has_wider_intervals() -> None:
    h200, h100, mi250 = run_on("h200x8"), run_on("h100x8"), run_on("mi250x32", gbs=32)
    assert width(h100, "step_time_s") == pytest.approx(width(h200, "step_time_s"))
    assert width(h100, "power_peak_sensor_w") > 1.5 * width(h200, "power_peak_sensor_w")
    assert width(mi250, "step_time_s") > 1.2 * width(h200, "step_time_s")
    assert "mi250" in intervals(mi250)["step_time_s"]["basis"]
    footings = [tell_footing(result.spec)[0] for result in (h200, h100, mi250)]
    assert footings == ["measured", "interpolated", "extrapolated"]


def test_assumed_preheating_widens_the_peak_temperature() -> None:
    alone, node = run_on("h200x1"), run_on("h200x8")
    spans = [intervals(one)["temperature_peak_c"] for one in (alone, node)]
    assert "preheating" in spans[1]["basis"]
    assert "preheating" not in spans[0]["basis"]
    assert spans[1]["high"] - spans[1]["low"] > spans[0]["high"] - spans[0]["low"]


def test_the_class_of_a_run_follows_from_its_spec() -> None:
    spec = run_on("h200x8").spec
    assert run_class(spec) == "dense"
    assert run_class({**spec, "training": {**spec["training"], "lora_rank": 8}}) == "lora"
    assert run_class({**spec, "model": {**spec["model"], "experts": 8}}) == "moe"
    slow = {**spec["cluster"], "node": {**spec["cluster"]["node"], "host_speed_fraction": 0.5}}
    assert run_class({**spec, "cluster": slow}) == "untuned"


def test_intervals_are_in_the_provenance_and_metrics_stay() -> None:
    result = run_on("h200x8")
    asked = with_intervals(result)
    assert asked.metrics == result.metrics
    assert asked.provenance["uncertainty"] == intervals(result)
    assert "uncertainty" not in result.provenance
    json.loads(asked.to_json())


def test_the_answers_show_intervals_only_when_they_were_asked_for() -> None:
    result = run_on("h200x8")
    asked, plain = dict(answer_lines(with_intervals(result))), dict(answer_lines(result))
    step = intervals(result)["step_time_s"]
    assert f" s ({step['low']:.3f} to {step['high']:.3f})" in asked["Step time"]
    assert asked["Intervals"].startswith("80 % level. Step time: held-out error of 563 published runs")
    assert "(" not in plain["Step time"]
    assert "Intervals" not in plain


def test_a_run_that_does_not_fit_has_the_interval_of_its_memory_alone() -> None:
    request = {"model": "llama3-405b", "cluster": "h200x8", "parallelism": {"tp": 8}}
    assert set(intervals(simulate(resolve_run(request)))) == {"memory_peak_bytes"}


def test_a_fast_answer_has_the_intervals_of_what_it_knows() -> None:
    request = {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 2}}
    known = intervals(predict_fast(resolve_run(request)))
    assert {"step_time_s", "power_mean_w", "clock_mean_hz", "tokens_per_j"} <= known.keys()
    assert "temperature_peak_c" not in known


def test_measured_runs_have_no_predicted_intervals() -> None:
    simulated = run_on("h200x8")
    assert intervals(RunResult("measured", simulated.spec, simulated.metrics)) == {}


def test_an_effect_lies_in_its_interval_and_small_ones_may_have_either_sign() -> None:
    for gain in (0.06, 0.01, -0.03, -0.3):
        low, high = effect_interval(gain)
        assert low < gain < high
    low, high = effect_interval(0.01)
    assert low < 0 < high
    assert effect_interval(-0.3)[1] < 0
    narrow, usual = effect_interval(-0.03, of_conditions=True), effect_interval(-0.03)
    assert narrow[1] - narrow[0] < usual[1] - usual[0]
