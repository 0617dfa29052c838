"""What is named, and why; who is not accused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from charllm.analysis.doctor.cost import price
from charllm.analysis.doctor.diagnose import diagnose, find_unusual
from charllm.analysis.doctor.expectation import expect
from charllm.analysis.doctor.observation import Observation
from charllm.analysis.doctor.remedies import propose
from tests.analysis.doctor.runs import ONE_NODE, PIPELINE, REPLICAS, found, seen


@pytest.mark.parametrize("base", [PIPELINE, REPLICAS, ONE_NODE], ids=["pipeline", "replicas", "one node"])
def test_nobody_is_accused_in_a_healthy_run(base: dict[str, Any]) -> None:
    assert found(base) == []
    assert found(base, knows_run=False) == []


@pytest.mark.parametrize(
    ("conditions", "cause"),
    [
        ({"weak_gpus": [9], "weak_power_fraction": 1.4}, "silicon"),
        ({"capped_gpus": [9], "capped_power_w": 450.0}, "power limit"),
        ({"hot_gpus": [9], "hot_sink_fraction": 9.0}, "thermal"),
    ],
)
def test_a_slow_gpu_is_named_with_its_cause(conditions: dict[str, Any], cause: str) -> None:
    (only,) = found(PIPELINE, **conditions)
    assert (only.kind, only.gpus, only.node, only.cause) == ("gpu", (9,), 1, cause)


def test_two_weak_gpus_are_two_findings() -> None:
    both = found(PIPELINE, weak_gpus=[9, 20], weak_power_fraction=1.3)
    assert sorted(one.gpus for one in both) == [(9,), (20,)]


@pytest.mark.parametrize(
    ("base", "conditions", "cause"),
    [
        (PIPELINE, {"weak_gpus": list(range(8, 16)), "weak_power_fraction": 1.3}, "silicon"),
        (PIPELINE, {"braked_nodes": [1]}, "power brake"),
        (REPLICAS, {"braked_nodes": [1]}, "power brake"),
    ],
)
def test_a_weak_node_is_one_finding(base: dict[str, Any], conditions: dict[str, Any], cause: str) -> None:
    (only,) = found(base, **conditions)
    assert (only.kind, only.node, only.cause) == ("node", 1, cause)


def test_a_warm_inlet_is_the_nodes_fault() -> None:
    (only,) = found({**PIPELINE, "inlet": [25, 62, 25, 25]})
    assert (only.kind, only.node, only.cause) == ("node", 1, "thermal")


@pytest.mark.parametrize("inlet_c", [50, 55, 60])
def test_a_machine_that_is_hot_as_a_whole_needs_no_peers(inlet_c: float) -> None:
    (only,) = found({**ONE_NODE, "inlet": inlet_c})
    assert (only.kind, only.cause) == ("node", "thermal")


@pytest.mark.parametrize("knows_run", [True, False])
def test_a_slow_host_is_named(knows_run: bool) -> None:
    (only,) = found(PIPELINE, knows_run=knows_run, slow_host_nodes=[2], slow_host_fraction=0.08)
    assert (only.kind, only.node) == ("host", 2)


@pytest.mark.parametrize("base", [PIPELINE, REPLICAS], ids=["pipeline", "replicas"])
def test_slow_adapters_are_named_by_those_who_wait_for_them(base: dict[str, Any]) -> None:
    (only,) = found(base, slow_nic_nodes=[2], slow_nic_fraction=0.4)
    assert (only.kind, only.node) == ("link", 2)
    assert only.effect_fraction == pytest.approx(0.6, abs=0.1)


def test_a_run_without_a_reading_is_judged_by_the_others() -> None:
    observed = seen(PIPELINE, weak_gpus=[9], weak_power_fraction=1.4)
    few = replace(observed, gpus={"clock_hz": observed.gpus["clock_hz"]}, nodes={})
    (only,) = diagnose(few, expect(few))
    assert (only.gpus, only.cause) == ((9,), "not known without power")


def test_readings_that_are_missing_now_and_then_do_not_matter() -> None:
    observed = seen(PIPELINE, hot_gpus=[9], hot_sink_fraction=9.0)
    holes = {
        name: np.where(np.arange(values.shape[1]) % 7 == 3, np.nan, values) for name, values in observed.gpus.items()
    }
    (only,) = diagnose(replace(observed, gpus=holes), expect(observed))
    assert (only.gpus, only.cause) == ((9,), "thermal")


def hotter(base: dict[str, Any], gpu: int, kelvins: float, **conditions: Any) -> Observation:
    """Return a run in which one GPU is hotter than its power explains."""
    observed = seen(base, **conditions)
    degrees = observed.gpus["temperature_c"].copy()
    degrees[gpu] += kelvins
    return replace(observed, gpus={**observed.gpus, "temperature_c": degrees})


def test_a_slow_gpu_that_is_hot_is_badly_cooled_before_its_silicon_is_to_blame() -> None:
    weak = {"weak_gpus": [9], "weak_power_fraction": 1.4}
    (cool,) = diagnose(hotter(PIPELINE, 9, 0.0, **weak))
    hot = hotter(PIPELINE, 9, 18.0, **weak)
    (only,) = diagnose(hot)
    assert (cool.cause, only.cause, only.gpus) == ("silicon", "cooling", (9,))
    action = propose(hot, only, price(hot, only, None))[0].action
    assert "heat sink" in action
    assert "it is the silicon" in action


def test_a_gpu_that_is_hot_and_not_slow_is_named_as_show_names_it() -> None:
    observed = hotter(ONE_NODE, 3, 18.0)
    assert diagnose(observed) == []
    assert [(gpu, row.quantity) for gpu, row in find_unusual(observed, [])] == [(3, "temperature_c")]
    assert find_unusual(hotter(ONE_NODE, 3, 0.0), []) == []
