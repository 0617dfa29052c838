"""Cost and remedies of what is found; what is said about a run."""

import json
from dataclasses import replace
from typing import Any

import pytest

import charllm
from charllm.analysis.doctor.cost import price
from charllm.analysis.doctor.diagnose import diagnose
from charllm.analysis.doctor.examine import HEALTHY, examine
from charllm.analysis.doctor.expectation import expect
from charllm.gpu.limits import CAUSES
from tests.analysis.doctor.runs import ONE_NODE, PIPELINE, seen, simulated


@pytest.mark.parametrize(
    "conditions",
    [
        {"weak_gpus": [9], "weak_power_fraction": 1.4},
        {"capped_gpus": [9], "capped_power_w": 450.0},
        {"slow_nic_nodes": [2], "slow_nic_fraction": 0.4},
        {"slow_host_nodes": [2], "slow_host_fraction": 0.08},
    ],
)
def test_the_cost_is_what_the_step_would_be_shorter(conditions: dict[str, Any]) -> None:
    weak, usual = (simulated(PIPELINE, **one).result.metrics["step_time_s"] for one in (conditions, {}))
    observed = seen(PIPELINE, **conditions)
    healthy = expect(observed)
    cost = price(observed, diagnose(observed, healthy)[0], healthy)
    assert cost.basis == "simulated"
    assert cost.low <= cost.fraction <= cost.high
    assert cost.fraction == pytest.approx(1 - usual / weak, abs=0.015)


def test_without_a_spec_the_cost_comes_from_waits() -> None:
    observed = seen(PIPELINE, knows_run=False, weak_gpus=[9], weak_power_fraction=1.4)
    cost = price(observed, diagnose(observed)[0], None)
    assert cost.basis == "waits"
    assert 0 < cost.fraction <= cost.high


def test_a_verdict_names_culprit_cause_cost_and_remedy() -> None:
    found = examine(simulated(PIPELINE, hot_gpus=[9], hot_sink_fraction=9.0).result)
    assert found.verdict.startswith("GPU 1 of node 1 clocks")
    for words in ("thermal", "costs", "% of the step time", "check the heat sink"):
        assert words in found.verdict
    json.dumps(found.as_table(), allow_nan=False)


def test_remedies_say_what_they_gain() -> None:
    found = examine(simulated(PIPELINE, hot_gpus=[9], hot_sink_fraction=9.0).result)
    remedies = {remedy.action.split()[0]: remedy for remedy in found.findings[0].remedies}
    assert remedies["check"].gain_fraction > remedies["drain"].gain_fraction
    assert (remedies["until"].saves_w or 0) > 0


def test_a_healthy_run_is_called_so() -> None:
    found = examine(simulated(ONE_NODE).result)
    assert found.verdict == HEALTHY
    assert not found.findings
    assert any("one node" in told for told in found.not_judged)


def test_one_gpu_has_no_peers() -> None:
    found = charllm.doctor(charllm.simulate(model="llama3-8b", cluster="h200x1", ignore_memory=True))
    assert "nothing to compare" in found.verdict
    assert not found.findings


def test_a_measured_result_without_recordings_is_judged_by_its_rows() -> None:
    result = simulated(ONE_NODE, weak_gpus=[3], weak_power_fraction=1.5).result
    rows = [
        {
            **row,
            "stage": None,
            "throttled_time_fraction": {cause: row[f"throttled_{cause}_fraction"] for cause in CAUSES},
        }
        for row in result.gpus
    ]
    measured = replace(result, origin="measured", gpus=rows, spec={"command": "python train.py"})
    found = examine(measured)
    assert found.findings[0].finding.gpus == (3,)
    assert any("layout" in told for told in found.not_judged)


def test_a_warm_gpu_that_nobody_waits_for_is_unusual_and_not_accused() -> None:
    found = examine(simulated(PIPELINE, hot_gpus=[9], hot_sink_fraction=5.0).result)
    assert found.verdict == HEALTHY
    assert [(row["name"], row["quantity"]) for row in found.unusual] == [("GPU 1 of node 1", "temperature_c")]


def test_without_clocks_nobody_is_called_healthy() -> None:
    result = simulated(ONE_NODE).result
    rows = [{**row, "clock_mean_hz": None} for row in result.gpus]
    found = examine(replace(result, origin="measured", gpus=rows, spec={"command": "python train.py"}))
    assert "cannot be identified without their clocks" in found.verdict
