from dataclasses import replace

from charllm.catalog.resolve import resolve_run
from charllm.result.compare import compare_runs, spec_differences
from charllm.result.metrics import numbers_of
from charllm.simulate.predict import simulate

FIRST, SECOND = (
    simulate(
        resolve_run({"model": "gpt3-175b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": tp, "pp": 32 // tp}})
    )
    for tp in (8, 4)
)


def test_only_what_differs_is_listed_of_the_settings() -> None:
    differences = spec_differences(FIRST, SECOND)
    assert differences["parallelism.tp"] == (8, 4)
    assert "model.layers" not in differences


def test_metrics_come_with_their_ratio() -> None:
    by_name = {difference.metric: difference for difference in compare_runs(FIRST, SECOND)}
    assert by_name["parameters"].ratio == 1.0
    assert by_name["message_bytes_median.pp"].ratio == 2.0
    assert by_name["axis_bytes.ep"].ratio is None
    assert by_name["power_mean_w"].ratio == SECOND.metrics["power_mean_w"] / FIRST.metrics["power_mean_w"]


def test_what_neither_run_knows_is_not_compared() -> None:
    too_big = simulate(resolve_run({"model": "gpt3-175b", "cluster": "charllm-ppt-h200", "parallelism": {"pp": 32}}))
    assert not {difference.metric for difference in compare_runs(too_big, too_big)} & {"power_mean_w", "step_time_s"}


def test_a_run_equals_itself() -> None:
    assert all(difference.ratio in (None, 1.0) for difference in compare_runs(FIRST, FIRST))
    assert spec_differences(FIRST, FIRST) == {}


def test_nested_metrics_are_flattened() -> None:
    assert numbers_of({"a": {"b": 1, "c": None}, "fits": True, "name": "x"}) == {"a.b": 1.0, "a.c": None, "fits": 1.0}


def test_differences_of_simulated_runs_have_intervals_and_those_of_measured_ones_none() -> None:
    by_name = {one.metric: one for one in compare_runs(FIRST, SECOND)}
    found = by_name["step_time_s"].difference
    assert found is not None
    assert found.change == "strategy"
    assert found.low < found.effect < found.high
    assert by_name["parameters"].difference is None
    assert by_name["step_time_s"].as_row()["is_clear"] is found.is_clear
    measured = replace(FIRST, origin="measured")
    assert all(one.difference is None for one in compare_runs(measured, SECOND))
    assert all(one.difference is None for one in compare_runs(FIRST, FIRST))
