"""Nodes that are not alike: other GPUs, other inlets; the step waits for the slowest."""

import json
from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.simulate.rank_timeline import generate_timeline
from charllm.spec.request import merge
from tests.simulate.runs import GPT3, Done, cooled, ran, under

REPLICAS: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": "charllm-ppt-h200",
    "parallelism": {"tp": 2},
    "training": {"global_batch_size": 64},
}


def mixed(node: Any, *nodes: int) -> dict[str, Any]:
    return {"cluster": {"mixed": [{"node": node, "nodes": list(nodes)}]}}


def by_node(found: Done, name: str) -> list[float]:
    return [
        float(np.mean([row[name] for row in found.gpus if row["node"] == node]))
        for node in range(found.machine.run.cluster.nodes)
    ]


def test_nodes_of_the_same_kind_are_no_mixture() -> None:
    same, usual = ran(mixed("hgx-h200", 1, 2)), ran()
    for name in ("step_time_s", "power_mean_w", "temperature_peak_c", "clock_mean_hz", "mfu"):
        assert same.metrics[name] == pytest.approx(usual.metrics[name], rel=1e-9)


@pytest.mark.parametrize("base", [GPT3, REPLICAS], ids=["stages", "replicas"])
def test_a_cluster_whose_nodes_are_all_replaced_is_one_of_the_other_kind(base: dict[str, Any]) -> None:
    replaced = ran(mixed("hgx-a100", 0, 1, 2, 3), base)
    uniform = ran({"cluster": {"node": "hgx-a100"}}, base)
    for name, slack in (("step_time_s", 1e-3), ("power_mean_w", 1e-3), ("mfu", 1e-3), ("node_power_mean_w", 1e-3)):
        assert replaced.metrics[name] == pytest.approx(uniform.metrics[name], rel=slack)
    assert replaced.metrics["fits"] == uniform.metrics["fits"]


@pytest.mark.parametrize("base", [GPT3, REPLICAS], ids=["stages", "replicas"])
def test_one_slower_node_paces_the_job_and_the_others_wait(base: dict[str, Any]) -> None:
    usual, one, all_slow = ran(base=base), ran(mixed("hgx-a100", 2), base), ran({"cluster": {"node": "hgx-a100"}}, base)
    assert usual.metrics["step_time_s"] < one.metrics["step_time_s"] <= 1.001 * all_slow.metrics["step_time_s"]
    waits = [one.metrics["breakdown_s"]["straggler_wait"], usual.metrics["breakdown_s"]["straggler_wait"]]
    assert waits[0] > 5 * waits[1]
    clocks = by_node(one, "clock_mean_hz")
    assert max(clocks) == pytest.approx(1.98e9, rel=0.05)
    assert clocks[2] <= 1.41e9 * 1.001


def test_a_node_with_a_lower_power_limit_is_held_at_it() -> None:
    found = ran(mixed({"base": "hgx-h200", "gpu": {"base": "h200", "power_cap_w": 450}}, 3))
    watts = by_node(found, "power_mean_w")
    assert watts[3] < 450
    assert min(watts[:3]) > watts[3]
    assert found.metrics["step_time_s"] > 1.02 * ran().metrics["step_time_s"]


def test_every_rank_must_fit_the_gpu_that_it_runs_on() -> None:
    assert ran().metrics["fits"]
    assert not ran(mixed("hgx-h100", 1)).metrics["fits"]
    warnings = ran(mixed("hgx-h100", 1)).whole.result.warnings
    assert any("of one h100" in warning for warning in warnings)


def test_mfu_divides_by_the_peaks_of_all() -> None:
    found = ran(mixed("hgx-a100", 2)).metrics
    peaks = 24 * 989.4e12 + 8 * 312e12
    assert found["mfu"] == pytest.approx(found["model_flop"] / (found["step_time_s"] * peaks), rel=1e-6)


def test_the_spec_of_a_mixed_cluster_builds_itself_again() -> None:
    request = merge(GPT3, merge(mixed("hgx-h100", 1), cooled(inlet_c=[20, 21, 22, 23])))
    run = resolve_run(request)
    assert resolve_run(json.loads(json.dumps(run.as_table()))) == run


def test_figures_of_other_nodes_are_in_the_provenance() -> None:
    figures = ran(mixed("hgx-h100", 1)).whole.result.provenance["figures"]
    assert any(name.startswith("cluster.mixed[0].node.gpu.") for names in figures.values() for name in names)


# inlets


def test_a_warmer_inlet_warms_its_node_alone() -> None:
    usual, found = ran(), ran(cooled(inlet_c=[25.0, 35.0, 25.0, 25.0]))
    warmer = np.subtract(by_node(found, "temperature_mean_c"), by_node(usual, "temperature_mean_c"))
    assert warmer[1] == pytest.approx(10, abs=1.5)
    assert np.abs(warmer[[0, 2, 3]]).max() < 0.5


@pytest.mark.parametrize("base", [GPT3, REPLICAS], ids=["stages", "replicas"])
def test_equal_inlets_in_a_list_are_one_inlet(base: dict[str, Any]) -> None:
    listed, single = ran(cooled(inlet_c=[30.0] * 4), base), ran(cooled(inlet_c=30.0), base)
    assert listed.metrics["step_time_s"] == single.metrics["step_time_s"]
    assert len(listed.machine.gpus) == len(single.machine.gpus)


def test_replicas_in_nodes_with_different_inlets_are_told_apart() -> None:
    found = ran(cooled(inlet_c=[20.0, 25.0, 30.0, 35.0]), REPLICAS)
    degrees = by_node(found, "temperature_mean_c")
    assert degrees == sorted(degrees)
    assert degrees[3] - degrees[0] == pytest.approx(15, abs=2)


def test_a_cold_start_begins_at_each_nodes_inlet() -> None:
    found = ran(merge(cooled(inlet_c=[20.0, 25.0, 30.0, 35.0]), under(steps=1)))
    degrees = by_node(found, "temperature_mean_c")
    assert np.diff(degrees) == pytest.approx([5, 5, 5], abs=1.5)


# weak GPUs


def test_each_weak_gpu_has_its_own_factor() -> None:
    found = ran(under(weak_gpus=[1, 9], weak_power_fraction=[1.1, 1.4]))
    machine = found.machine
    factors = {int(gpu): float(silicon) for gpu, silicon in zip(machine.gpus, machine.silicon, strict=True)}
    assert {gpu: factor for gpu, factor in factors.items() if factor != 1} == {1: 1.1, 9: 1.4}
    same = ran(under(weak_gpus=[1, 9], weak_power_fraction=[1.2, 1.2]))
    assert same.metrics["step_time_s"] == ran(under(weak_gpus=[1, 9], weak_power_fraction=1.2)).metrics["step_time_s"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (mixed("hgx-h100", 4), "nodes 0 to 3, each once"),
        (mixed("dgx-2", 1), "mixed[0].node.gpus: got 16; expected 8"),
        ({"cluster": {"mixed": {"node": "hgx-h100"}}}, "cluster.mixed: got"),
        (mixed("hgx-h101", 1), "cluster.mixed[0].node: got 'hgx-h101'"),
        ({"cluster": {"mixed": [{"node": "hgx-h100", "nodes": [1]}, {"node": "hgx-a100", "nodes": [1]}]}}, "each once"),
        (cooled(inlet_c=[20.0, 30.0]), "got '2 entries'; expected a number, or one for each of 4 nodes"),
        (cooled(inlet_c=[20.0, 30.0, 40.0, 95.0]), "cluster.cooling.inlet_c"),
        (under(weak_gpus=[1, 2], weak_power_fraction=[1.1]), "one for each of the 2 weak GPUs"),
        (merge(mixed("hgx-a100", 1), {"training": {"precision": "fp8"}}), "on a100-80gb"),
        (merge(mixed("hgx-a100", 1), under(power_cap_w=600)), "W on a100-80gb"),
    ],
)  # fmt: skip
def test_what_cannot_be_mixed_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as refused:
        resolve_run(merge(GPT3, changes))
    assert message in str(refused.value)


def test_emulation_needs_nodes_of_one_kind() -> None:
    with pytest.raises(SpecError, match="nodes of one kind"):
        generate_timeline(resolve_run(merge(GPT3, mixed("hgx-h100", 1))), 0)
