"""Intervals of a prediction: where they come from, when they are wider, and what they leave alone."""

import json
from dataclasses import replace
from functools import cache
from math import exp
from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.evaluate.intervals import derive, fit_spreads, score_source
from charllm.evaluate.predictions import Prediction, load_predictions
from charllm.result.answers import answer_lines
from charllm.result.metrics import Metrics
from charllm.result.result import RunResult
from charllm.result.uncertainty import (
    FILE,
    LEVEL,
    errors,
    intervals,
    stored_class,
    stored_grade,
    tell_footing,
    with_intervals,
)
from charllm.simulate.fast import predict_fast
from charllm.simulate.predict import simulate


@cache
def run_on(cluster: str, model: str = "llama3-8b", gbs: int = 16, **conditions: Any) -> RunResult:
    request = {"model": model, "cluster": cluster, "parallelism": {"tp": 1}, "training": {"global_batch_size": gbs}}
    return simulate(resolve_run({**request, "conditions": conditions}), ignore_memory=True)


@cache
def run_graded(tuning: str) -> RunResult:
    framework = {"base": "megatron", "tuning": tuning}
    return simulate(resolve_run({"model": "llama3-8b", "cluster": "h200x8", "framework": framework}))


def width(result: RunResult, metric: str) -> float:
    interval = intervals(result)[metric]
    return float((interval["high"] - interval["low"]) / result.metrics[metric])


def test_the_shipped_errors_are_those_that_the_tables_give() -> None:
    shipped, derived = json.loads(FILE.read_text(encoding="utf-8")), derive()
    assert shipped.keys() == derived.keys()
    assert shipped["step_time"]["spreads"] == pytest.approx(derived["step_time"]["spreads"], rel=0.05)
    for key in ("known_gpus", "h200", "memory", "other_gpu", "level"):
        assert shipped[key] == derived[key], key
    for source, one in derived["held_out"]["sources"].items():
        assert shipped["held_out"]["sources"][source] == pytest.approx(one, abs=0.03)


def test_intervals_hold_nine_in_ten_published_runs() -> None:
    rows = [row for row in load_predictions() if row.host == "tuned"]
    found = score_source(rows, rows)
    assert found["covered_fraction"] == pytest.approx(LEVEL, abs=0.01)
    assert found["width_fraction"] < 0.36


def test_most_large_sources_lie_in_intervals_that_the_others_give() -> None:
    held = errors()["held_out"]["sources"].values()
    assert len(held) >= 10
    inside = sum(one["covered_fraction"] * one["rows"] for one in held) / sum(one["rows"] for one in held)
    assert inside == pytest.approx(LEVEL, abs=0.05)
    assert sum(0.85 <= one["covered_fraction"] <= 0.95 and one["width_fraction"] <= 0.30 for one in held) >= 3


def made_row(number: int, exposed: float, error: float) -> Prediction:
    seconds = {name: exp(error) for name in
               ("predicted_s", "source_left_out_s", "gpu_left_out_s", "prior_s", "shipped_s")}  # fmt: skip
    return Prediction(f"A-{number}", "A", "dense", "h200", "m", "bf16", "tuned", "tp", 8, 1e9, 1e15, exposed, 0.0, 0.0,
                      **seconds, measured_s=1.0)  # fmt: skip


def test_spreads_that_made_the_errors_are_found_again() -> None:
    drawn = np.random.default_rng(1)
    shares = drawn.uniform(0, 0.6, 1500)
    widths = np.sqrt(0.03**2 + (shares * 0.3) ** 2)
    rows = [made_row(*row) for row in zip(range(1500), shares, widths * drawn.standard_t(4, 1500), strict=True)]
    found = fit_spreads(rows)
    assert found["own"] == pytest.approx(0.03, rel=0.25)
    assert found["exposed"] == pytest.approx(0.3, rel=0.15)


def test_a_step_that_waits_for_its_network_is_less_certain() -> None:
    result = run_graded("tuned")
    bound = {**result.metrics["breakdown_s"]}
    bound["dp_exposed"] += bound["compute"]
    slow = replace(result, metrics=Metrics({**result.metrics, "breakdown_s": bound}))
    assert width(slow, "step_time_s") > 1.3 * width(result, "step_time_s")
    assert "exposed communication" in intervals(slow)["step_time_s"]["basis"]


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
    h200, h100, mi250 = run_on("h200x8"), run_on("h100x8"), run_on("charllm-ppt-mi250", gbs=32)
    assert width(h100, "step_time_s") == pytest.approx(width(h200, "step_time_s"), rel=0.2)
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
    assert stored_class(spec) == "dense"
    assert stored_class({**spec, "training": {**spec["training"], "lora_rank": 8}}) == "lora"
    assert stored_class({**spec, "model": {**spec["model"], "experts": 8}}) == "moe"


def test_a_run_is_usual_where_its_software_or_a_host_is_stated_to_be() -> None:
    spec = run_on("h200x8").spec
    for changed in ({"host_speed_fraction": 0.5}, {"host_grade": "slow"}, {"host_grade": "usual"}):
        node = {**spec["cluster"]["node"], **changed}
        assert stored_grade({**spec, "cluster": {**spec["cluster"], "node": node}}) == "usual"
    assert stored_grade(spec) == "not stated"
    for tuning in ("tuned", "usual"):
        assert stored_grade({**spec, "framework": {**spec["framework"], "tuning": tuning}}) == tuning


def test_an_interval_covers_tuned_and_usual_runs_where_the_run_says_neither() -> None:
    ends = {}
    for tuning in ("not stated", "tuned", "usual"):
        ends[tuning] = intervals(run_graded(tuning))["step_time_s"]
    assert ends["not stated"]["low"] == min(ends[tuning]["low"] for tuning in ("tuned", "usual"))
    assert ends["not stated"]["high"] == max(ends[tuning]["high"] for tuning in ("tuned", "usual"))
    assert ends["usual"]["high"] > 1.3 * ends["tuned"]["high"]


def test_a_run_that_is_not_stated_to_be_tuned_is_told_how_much_longer_such_runs_took() -> None:
    told = {tuning: dict(answer_lines(run_graded(tuning))) for tuning in ("not stated", "tuned", "usual")}
    assert "If not tuned" not in told["tuned"]
    assert f"of {errors()['usual']['sources']} sources" in told["usual"]["If not tuned"]
    assert "framework.tuning=tuned" in told["not stated"]["If not tuned"]
    assert "framework.tuning" not in told["usual"]["If not tuned"]


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
    rows = errors()["step_time"]["rows"]
    told = f"90 % level. Step time: held-out errors of {rows} published runs, here mostly of kernels"
    assert asked["Intervals"].startswith(told)
    assert "(" not in plain["Step time"]
    assert "Intervals" not in plain


def test_a_run_that_does_not_fit_has_the_interval_of_its_memory_alone() -> None:
    request = {"model": "llama3-405b", "cluster": "h200x8", "parallelism": {"tp": 8}}
    assert set(intervals(simulate(resolve_run(request)))) == {"memory_need_bytes", "memory_peak_bytes"}


def test_a_fast_answer_has_the_intervals_of_what_it_knows() -> None:
    request = {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 2}}
    known = intervals(predict_fast(resolve_run(request)))
    assert {"step_time_s", "power_mean_w", "clock_mean_hz", "tokens_per_j"} <= known.keys()
    assert "temperature_peak_c" not in known


def test_measured_runs_have_no_predicted_intervals() -> None:
    simulated = run_on("h200x8")
    assert intervals(RunResult("measured", simulated.spec, simulated.metrics)) == {}
