"""One slow GPU paces its group, its pipeline and the job; the others wait, and still draw power."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from charllm.gpu.physics import board_of, operating_point, standing_w
from tests.simulate.runs import GPT3, REPLICAS, Done, ran, under

WEAK = 9
"""On slot 1 of node 1, in stage 1 of GPT3."""


def row_of(found: Done, gpu: int) -> dict[str, Any]:
    per_node = found.machine.run.cluster.node.gpus
    (row,) = [row for row in found.gpus if row["node"] * per_node + row["slot"] == gpu]
    return row


def test_one_weak_gpu_slows_all() -> None:
    times_s = [
        ran(under(weak_gpus=[WEAK], weak_power_fraction=factor)).metrics["step_time_s"]
        for factor in (1.0, 1.1, 1.2, 1.4)
    ]
    assert times_s[0] == pytest.approx(ran().metrics["step_time_s"], rel=1e-9)
    assert times_s == sorted(times_s)
    assert times_s[-1] > 1.03 * times_s[0]


def test_the_group_of_a_weak_gpu_waits_for_it() -> None:
    found, usual = ran(under(weak_gpus=[WEAK], weak_power_fraction=1.3)), ran()
    weak = row_of(found, WEAK)
    mates = [row for row in found.gpus if row["stage"] == weak["stage"] and row is not weak]
    assert weak["clock_mean_hz"] < min(row["clock_mean_hz"] for row in mates)
    assert weak["wait_for_group_s"] < 0.01 * min(row["wait_for_group_s"] for row in mates)
    before = {row["rank"]: row["wait_for_group_s"] for row in usual.gpus}
    assert all(row["wait_for_group_s"] > before[row["rank"]] for row in mates)
    straggling = [one.metrics["breakdown_s"]["straggler_wait"] for one in (usual, found)]
    assert straggling[1] > straggling[0]


def test_those_who_wait_draw_less_than_workers_and_more_than_an_idle_board() -> None:
    found, usual = ran(under(braked_nodes=[1])), ran()
    board = board_of(found.machine.run.cluster.gpu)
    for row in found.gpus:
        if row["node"] != 1:
            assert row["power_mean_w"] < usual.gpus[row["rank"]]["power_mean_w"]
            at = operating_point(board, row["clock_mean_hz"], row["clock_mean_hz"])
            idle_w = standing_w(board, at.level, row["temperature_mean_c"])
            assert row["power_mean_w"] > idle_w


def test_a_braked_node_runs_at_its_braked_clock_and_names_the_brake() -> None:
    found, usual = ran(under(braked_nodes=[1], brake_clock_hz=1.2e9)), ran()
    inside = [row for row in found.gpus if row["node"] == 1]
    outside = [row for row in found.gpus if row["node"] != 1]
    assert max(row["clock_mean_hz"] for row in inside) == pytest.approx(1.2e9, rel=1e-6)
    assert all(row["throttled_brake_fraction"] > 0.5 for row in inside)
    assert all(row["throttled_brake_fraction"] == 0 for row in outside)
    assert min(row["clock_mean_hz"] for row in outside) > 1.7e9
    assert found.metrics["clock_loss_fraction"]["brake"] > 0
    assert found.metrics["step_time_s"] > usual.metrics["step_time_s"]


def test_a_brake_leaves_half_the_clock_unless_said() -> None:
    found = ran(under(braked_nodes=[2]))
    assert row_of(found, 16)["clock_mean_hz"] == pytest.approx(found.machine.run.cluster.gpu.clock_max_hz / 2)


def test_a_harder_brake_is_never_faster() -> None:
    times_s = [
        ran(under(braked_nodes=[0], brake_clock_hz=clock)).metrics["step_time_s"]
        for clock in (1.9e9, 1.5e9, 1.1e9, 7e8)
    ]
    for mild_s, hard_s in pairwise(times_s):
        assert mild_s <= hard_s * 1.003
    assert times_s[-1] > 1.3 * times_s[0]


EXCHANGING: dict[str, Any] = {
    "model": "llama3-8b", "cluster": {"base": "charllm-ppt-h100", "nodes": 2}, "framework": "pytorch-eager",
    "parallelism": {"cp": 2, "zero": 1, "overlap": ["dp"], "cp_kind": "all-to-all"},
    "training": {"seq_length": 4096, "global_batch_size": 8, "precision": "fp32", "recompute": "full"},
}  # fmt: skip
"""Gradients take longer than the backward pass that hides them."""


def test_what_is_left_of_an_exchange_is_told_by_the_gpu_that_joins_last() -> None:
    usual = ran(under(clock_cap_hz=1.6e9), EXCHANGING).metrics["step_time_s"]
    times_s = [
        ran(under(weak_gpus=[4], clock_cap_hz=cap_hz), EXCHANGING).metrics["step_time_s"]
        for cap_hz in (1.98e9, 1.9e9, 1.8e9, 1.7e9, 1.6e9)
    ]
    # The others would have hidden less of it, after they waited for the weak one.
    assert times_s == sorted(times_s)
    assert times_s[-1] == pytest.approx(usual, rel=1e-6)


@pytest.mark.parametrize("weak", [0, 21, 63])
def test_one_weak_gpu_among_replicas_is_played_wherever_it_is(weak: int) -> None:
    found, usual = ran(under(weak_gpus=[weak], weak_power_fraction=1.4), REPLICAS), ran(base=REPLICAS)
    assert len(found.machine.gpus) == found.machine.run.cluster.gpus
    assert found.metrics["step_time_s"] > 1.01 * usual.metrics["step_time_s"]
    clocks = {row["rank"]: row["clock_mean_hz"] for row in found.gpus}
    assert min(clocks, key=lambda rank: clocks[rank]) == weak


SAME = ("step_time_s", "power_mean_w", "energy_per_step_j", "power_peak_w", "power_peak_sensor_w", "temperature_mean_c",
        "temperature_peak_c", "temperature_spread_node_k", "clock_mean_hz", "cluster_power_peak_w")  # fmt: skip


@pytest.mark.parametrize(
    ("cluster", "degrees"),
    [
        ("charllm-ppt-h100", {"tp": 4, "pp": 4}), ("charllm-ppt-h100", {"tp": 2, "pp": 2}),
        ("charllm-ppt-h100", {"tp": 8, "pp": 1}),
        ("charllm-ppt-h100", {"tp": 1, "pp": 4}), ("charllm-ppt-mi250", {"tp": 2, "pp": 2}),
        ("charllm-ppt-mi250", {"tp": 1, "pp": 2}),
    ],
)  # fmt: skip
def test_folded_equals_unfolded(cluster: str, degrees: dict[str, int]) -> None:
    base = {"model": "llama3-8b", "cluster": cluster, "parallelism": degrees, "training": {"global_batch_size": 64}}
    folded, whole = ran(base=base), ran(under(silicon_spread_fraction=1e-12), base)
    assert len(folded.machine.gpus) < len(whole.machine.gpus) == whole.machine.run.cluster.gpus
    for name in SAME:
        assert folded.metrics[name] == pytest.approx(whole.metrics[name], rel=1e-6), name
    for one, other in zip(folded.gpus, whole.gpus, strict=True):
        assert one["power_mean_w"] == pytest.approx(other["power_mean_w"], rel=1e-6)
        assert one["temperature_mean_c"] == pytest.approx(other["temperature_mean_c"], rel=1e-6)


def swapped(places: list[int], *pairs: tuple[int, int]) -> list[int]:
    for one, other in pairs:
        places[one], places[other] = places[other], places[one]
    return places


@pytest.mark.parametrize(
    ("cluster", "placed"),
    [
        ("charllm-ppt-h100", np.random.default_rng(3).permutation(64).tolist()),
        ("charllm-ppt-h100", swapped(list(range(64)), (0, 32), (9, 41))),
        ("charllm-ppt-mi250", swapped(list(range(32)), (1, 17))),
    ],
    ids=["shuffled", "two pairs swapped", "other package mates"],
)
def test_folding_sees_who_warms_whom_wherever_ranks_are_placed(cluster: str, placed: list[int]) -> None:
    base = {
        "model": "llama3-8b", "cluster": cluster, "parallelism": {"tp": 1, "pp": 2},
        "training": {"global_batch_size": 64}, "conditions": {"gpu_of_rank": placed, "placement": "placed.json"},
    }  # fmt: skip
    folded, whole = ran(base=base), ran(under(silicon_spread_fraction=1e-12), base)
    for name in SAME:
        assert folded.metrics[name] == pytest.approx(whole.metrics[name], rel=1e-6), name


def test_dies_are_drawn_by_their_seed() -> None:
    one, same, other = (ran(under(silicon_spread_fraction=0.05, seed=seed)) for seed in (1, 1, 2))
    assert one.metrics == same.metrics
    assert one.metrics["step_time_s"] != other.metrics["step_time_s"]
    assert one.metrics["power_mean_w"] == pytest.approx(other.metrics["power_mean_w"], rel=0.05)


def test_wider_spread_is_slower_and_less_even() -> None:
    spreads = [ran(under(silicon_spread_fraction=spread, seed=1)) for spread in (0.0, 0.03, 0.1)]
    times_s = [found.metrics["step_time_s"] for found in spreads]
    assert times_s == sorted(times_s)
    clocks = [float(np.std([row["clock_mean_hz"] for row in found.gpus])) for found in spreads]
    assert clocks == sorted(clocks)


def test_weak_dies_come_on_top_of_spread() -> None:
    plain = ran(under(silicon_spread_fraction=0.02, seed=4), GPT3).machine.silicon
    weak = ran(
        under(silicon_spread_fraction=0.02, seed=4, weak_gpus=[5], weak_power_fraction=1.25), GPT3
    ).machine.silicon
    assert weak[5] == pytest.approx(1.25 * plain[5])
    assert np.delete(weak, 5) == pytest.approx(np.delete(plain, 5))
