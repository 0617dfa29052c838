"""What counters would show of a simulated run, worked out from its waits, its traffic and its host."""

from typing import Any

import numpy as np
import pytest

from charllm.simulate import long_step, step_loop
from charllm.simulate.telemetry import Telemetry, show_telemetry, use_ports
from charllm.workload.node_traffic import node_traffic
from tests.simulate.runs import REPLICAS, Done, ran, under

SLOW: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": "h200x1",
    "training": {"global_batch_size": 2, "seq_length": 512},
}


def shown(found: Done) -> Telemetry:
    return show_telemetry(found.whole)


def test_multiprocessors_are_active_in_computation_and_those_of_collectives_beside() -> None:
    found = ran()
    told, sums, step_s = shown(found), found.simulated_step.sums, found.simulated_step.step_time_s
    own = found.machine.representatives
    idle_s = (sums[:, step_loop.HOST_S] + sums[:, step_loop.UPDATE_HOST_S])[own]
    assert told.gpus["utilization_fraction"] == pytest.approx(1 - idle_s / step_s)
    busy = told.gpus["sm_active_fraction"]
    waits_s = sum(sums[own, at] for at in (step_loop.GROUP_WAIT, step_loop.INPUT_WAIT, step_loop.EXCHANGED_S))
    # Waits hold the blocks of a collective, 24 of 132 multiprocessors, and transfers in passes come on top of them.
    assert (busy < (step_s - idle_s - waits_s * (1 - 24 / 132)) / step_s).all()
    assert (busy > 0.4).all()
    assert told.gpus["power_limit_w"] == pytest.approx(np.full(32, 700.0))
    assert told.gpus["clock_hz"] == pytest.approx(sums[own, step_loop.CLOCK_S] / step_s)


def test_a_gpu_that_waits_for_its_host_is_not_utilized() -> None:
    told = shown(ran(base=SLOW))
    assert told.gpus["utilization_fraction"][0] < 0.8
    assert told.gpus["sm_active_fraction"] == pytest.approx(told.gpus["utilization_fraction"], rel=1e-9)


def test_a_step_that_is_simulated_in_part_shows_what_the_whole_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    long = {"training": {"global_batch_size": 240}}
    whole = shown(ran(long))
    monkeypatch.setattr(long_step, "MOST_SLICES", 60_000)
    found = ran({**long, "conditions": {"seed": 2}})
    assert found.whole.simulated is not None
    assert found.whole.simulated.step.run.microbatches < 200
    part = shown(found)
    for name in ("sm_active_fraction", "utilization_fraction", "power_w"):
        assert part.gpus[name] == pytest.approx(whole.gpus[name], rel=0.01), name
    assert part.nodes["nic_sent_bytes_per_s"] == pytest.approx(whole.nodes["nic_sent_bytes_per_s"], rel=0.01)


def test_a_node_holds_back_what_a_slower_receiver_does_not_take() -> None:
    found = ran(under(slow_nic_nodes=[2], slow_nic_fraction=0.25), REPLICAS)
    told, step = shown(found), found.whole.step
    ports = use_ports(step, told.step_time_s)
    traffic = node_traffic(step)
    rate = step.run.cluster.fabric.node_bandwidth_bytes_per_s
    assert ports.sends == pytest.approx(traffic.sent.sum(axis=1) / rate / told.step_time_s)
    # Each byte for a port at a quarter of the speed is held back for three times as long as it travels.
    expected = 3 * traffic.waited_for[:, 2] / rate / told.step_time_s
    expected[2] = 0.0
    assert told.nodes["nic_wait_fraction"] == pytest.approx(expected)
    assert expected.max() > 0
    assert told.nodes["nic_sent_bytes_per_s"] == pytest.approx(traffic.sent.sum(axis=1) / told.step_time_s)
    assert "nic_wait_fraction" not in shown(ran(base=SLOW)).nodes
