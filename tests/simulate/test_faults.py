"""Slow links and hosts, hot and capped GPUs act through the network, the host race, heat and the governor."""

import numpy as np
import pytest

from charllm.errors import SpecError
from charllm.simulate import step_loop
from charllm.simulate.gpu_kinds import find_kinds
from tests.simulate.runs import GPT3, REPLICAS, ran, under


def step_s(**conditions: object) -> float:
    return float(ran(under(**conditions)).metrics["step_time_s"])


@pytest.mark.parametrize(
    ("listed", "severity", "values"),
    [
        ("hot_gpus", "hot_sink_fraction", (1.0, 7.0, 9.0)),
        ("capped_gpus", "capped_power_w", (700.0, 550.0, 450.0)),
        ("capped_gpus", "capped_clock_hz", (1.98e9, 1.3e9, 1.1e9)),
        ("slow_nic_nodes", "slow_nic_fraction", (1.0, 0.5, 0.25)),
        ("slow_link_gpus", "slow_link_fraction", (1.0, 0.5, 0.25)),
        ("slow_host_nodes", "slow_host_fraction", (1.0, 0.08, 0.05)),
    ],
)
def test_a_worse_condition_makes_the_step_longer(listed: str, severity: str, values: tuple[float, ...]) -> None:
    times_s = [step_s(**{listed: [1], severity: value}) for value in values]
    assert times_s[0] == pytest.approx(ran().metrics["step_time_s"], rel=1e-9)
    assert times_s[0] < times_s[1] < times_s[2]


def test_the_labels_of_a_step_still_add_up() -> None:
    for conditions in ({"slow_nic_nodes": [1]}, {"slow_link_gpus": [9]}, {"slow_host_nodes": [1]}):
        for base in (GPT3, REPLICAS):
            metrics = ran(under(**conditions), base).metrics
            assert sum(metrics["breakdown_s"].values()) == pytest.approx(metrics["step_time_s"], rel=1e-6)


def test_a_slow_link_shows_as_communication() -> None:
    usual, slow = ran(), ran(under(slow_link_gpus=[9], slow_link_fraction=0.5))
    assert slow.metrics["breakdown_s"]["tp_exposed"] > 1.1 * usual.metrics["breakdown_s"]["tp_exposed"]
    assert slow.metrics["breakdown_s"]["compute"] == pytest.approx(usual.metrics["breakdown_s"]["compute"], rel=0.02)


def test_only_groups_that_touch_a_slow_link_are_slow() -> None:
    machine = ran(under(slow_link_gpus=[9])).machine
    kinds, each = find_kinds(machine.run, np.arange(machine.run.cluster.gpus))
    slow = [gpu for gpu, kind in enumerate(each) if "tp" in kinds[kind].slow_links]
    assert slow == list(range(8, 16))


def test_a_slow_host_leaves_its_gpus_waiting_for_launches() -> None:
    found = ran(under(slow_host_nodes=[1], slow_host_fraction=0.05))
    waited_s = found.simulated_step.sums[:, step_loop.HOST_S]
    mine = found.machine.gpus // 8 == 1
    assert waited_s[mine].min() > 10 * waited_s[~mine].max()


def test_a_hot_gpu_is_the_only_one_that_is_held_by_heat() -> None:
    rows = ran(under(hot_gpus=[9], hot_sink_fraction=8.0)).gpus
    held = [row["rank"] for row in rows if row["throttled_thermal_fraction"] > 0]
    assert held == [9]


def test_conditions_without_effect_are_not_written_out() -> None:
    table = ran().machine.run.as_table()["conditions"]
    assert not {"hot_gpus", "hot_sink_fraction", "slow_nic_nodes", "slow_host_fraction", "capped_power_w"} & set(table)
    table = ran(under(hot_gpus=[9], hot_sink_fraction=8.0)).machine.run.as_table()["conditions"]
    assert (table["hot_gpus"], table["hot_sink_fraction"]) == ([9], 8.0)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"hot_gpus": [99]}, "GPUs 0 to 31"),
        ({"slow_nic_nodes": [4]}, "nodes 0 to 3"),
        ({"slow_host_nodes": [9]}, "nodes 0 to 3"),
        ({"capped_gpus": [1]}, "the power limit of the capped GPUs"),
        ({"capped_gpus": [1], "capped_power_w": 9999.0}, "W on"),
        ({"capped_gpus": [1, 2], "capped_clock_hz": [1e9]}, "one for each of the 2 capped GPUs"),
        ({"hot_gpus": [1, 2], "hot_sink_fraction": [2.0]}, "one for each of the 2 hot GPUs"),
        ({"slow_nic_nodes": [1], "slow_nic_fraction": 0.0}, "0.01"),
    ],
)
def test_what_cannot_be_is_refused(conditions: dict[str, object], expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        ran(under(**conditions))


def test_each_capped_gpu_keeps_to_its_own_caps() -> None:
    gpus = ran(under(capped_gpus=[9, 17], capped_power_w=[450.0, 700.0], capped_clock_hz=[1.98e9, 1.2e9])).gpus
    assert gpus[9]["power_mean_w"] <= 450.0 < gpus[10]["power_mean_w"]
    assert gpus[17]["clock_mean_hz"] <= 1.2e9 < gpus[18]["clock_mean_hz"]


def test_replicas_under_equal_caps_are_folded_and_cost_what_all_of_them_cost() -> None:
    stage = [gpu for gpu in range(64) if gpu // 16 == 3]
    folded = ran(under(capped_gpus=stage, capped_power_w=500.0), REPLICAS)
    whole = ran(under(capped_gpus=stage, capped_power_w=500.0, hot_gpus=[0], hot_sink_fraction=1.0), REPLICAS)
    assert len(folded.machine.gpus) < len(whole.machine.gpus) == 64
    for name in ("step_time_s", "energy_per_step_j", "temperature_peak_c"):
        assert folded.metrics[name] == pytest.approx(whole.metrics[name], rel=1e-6)
