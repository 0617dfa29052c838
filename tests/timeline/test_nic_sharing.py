"""Flows that meet on NICs, against sums done by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.network.sharing import shared_ends
from charllm.spec.request import merge
from charllm.timeline.engine import Events, Flows, simulate_schedule
from charllm.timeline.host_race import NOTHING
from charllm.timeline.nic_sharing import held_up, hops_beside_gradients, nic_seconds
from charllm.timeline.schedules import order_arrays
from charllm.workload.step import build_step
from tests.timeline.unlimited import time_at_highest_clock

SPARSE: dict[str, Any] = {
    "model": "mixtral-8x7b",
    "cluster": "charllm-ppt-h100",
    "training": {"global_batch_size": 256},
}
SLOW: dict[str, Any] = {
    "model": "llama3-70b",
    "cluster": {"base": "charllm-ppt-h200", "nodes": 16},
    "parallelism": {"tp": 8, "pp": 4, "overlap": ["dp"]},
    "training": {"global_batch_size": 32, "recompute": "full"},
}
"""One NIC of 100 Gb/s a node."""


def two_stages(gradients_s: float, bucket_s: float, *, blocking: bool = False, shares_nics: float = 1.0) -> Events:
    """Play two microbatches on two stages: passes of a second, sends of half a second."""
    races = np.array([[NOTHING.launch(1.0, 0.0)] * 2] * 3)
    flows = Flows(np.full(2, gradients_s), np.full(2, bucket_s), np.array([shares_nics, 0.0]))
    order = order_arrays("1f1b", 2, 1, 2)
    return simulate_schedule(order, races, np.full(2, 0.5), flows, blocking=blocking, chunks=2, microbatches=2)


def test_a_pass_that_shares_nics_with_gradients_is_held_up_while_both_are_under_way() -> None:
    # Gradients that outlast the pass: each of its exchanges takes twice as long.
    assert held_up(0.5, 10.0, 1.0) == pytest.approx(0.5)
    # Exchanges fill half of the pass; gradients of 0.1 s meet the first of eight, after a gap of 1/16 s.
    assert held_up(0.5, 0.1, 1.0) == pytest.approx(0.1 - 1 / 16)
    assert held_up(0.0, 1.0, 1.0) == held_up(1.0, 0.0, 1.0) == 0.0


def test_exchanges_of_a_pass_leave_through_the_nics_of_gradients_or_do_not() -> None:
    # ep 2 next to each other stays in a node, ep 16 does not.
    inside, across = (build_step(resolve_run(merge(SPARSE, {"parallelism": {"ep": ep}}))) for ep in (2, 8))
    wide = build_step(resolve_run(merge(SPARSE, {"parallelism": {"ep": 8, "order": "tp-cp-dp-ep-pp"}})))
    for step, shared in ((inside, False), (across, False), (wide, True)):
        backward = time_at_highest_clock(step).passes[0].backward
        assert (nic_seconds(step, backward) > 0) == shared


def test_a_send_beside_gradients_takes_as_much_longer_as_both_are_under_way() -> None:
    alone = two_stages(0.0, 0.0)
    # Of 3 s of gradients one second passes under the last pass; what is left outlasts a send at half the NIC.
    long = two_stages(3.0, 0.1)
    assert long.left_s.tolist() == [2.0, 2.0]
    assert long.late_s[1, -1] == 0.5
    assert long.free_s[0] == alone.free_s[0] + 0.5
    # A bucket of 0.2 s is sent by when 0.4 s have passed, and has held the send up by 0.2.
    short = two_stages(0.4, 0.2)
    assert short.late_s[1, -1] == pytest.approx(0.2)
    assert short.free_s[0] == pytest.approx(alone.free_s[0] + 0.2)
    assert two_stages(3.0, 0.1, shares_nics=0.0).late_s.sum() == 0


def test_a_send_that_blocks_keeps_its_stage_as_long_as_it_takes() -> None:
    alone, beside = two_stages(0.0, 0.0, blocking=True), two_stages(3.0, 0.1, blocking=True)
    assert beside.held_s[1, -1] == alone.held_s[1, -1] + 0.5


@given(st.floats(0.01, 5), st.floats(0.01, 5))
def test_the_engine_shares_as_flows_do(gradients_s: float, bucket_s: float) -> None:
    events = two_stages(gradients_s, bucket_s)
    sent_s = shared_ends([(0.0, 0.5), (0.0, float(events.left_s[1]))])[0]
    assert events.late_s[1, -1] == pytest.approx(sent_s - 0.5)


def test_gradients_of_chunks_that_are_done_leave_before_the_last_pass() -> None:
    races = np.array([[NOTHING.launch(1.0, 0.0)] * 4] * 3)
    order = order_arrays("interleaved", 2, 2, 2)
    flows = Flows(np.full(2, 1.5), np.full(2, 0.1), np.zeros(2))
    events = simulate_schedule(order, races, np.zeros(2), flows, blocking=False, chunks=4, microbatches=2)
    # Half a second of the first chunk's is left after its pass, and gone before the last one, which hides a second.
    assert events.left_s.tolist() == [0.5, 0.5]


def test_only_hops_that_leave_their_node_meet_gradients_that_do() -> None:
    def meeting(**parallelism: Any) -> list[float]:
        request = merge(SPARSE, {"model": "llama3-8b", "parallelism": parallelism})
        return list(hops_beside_gradients(resolve_run(request)))

    assert meeting(tp=8, pp=4) == [1.0] * 4
    # Gradients that stay inside a node, and stages that do, meet nothing.
    assert meeting(tp=1, pp=8) == [0.0] * 8
    assert meeting(tp=2, pp=4, order="tp-cp-ep-pp-dp") == [0.0] * 4


@pytest.mark.parametrize("overlap", [["dp"], ["dp", "pp"]])
@pytest.mark.parametrize("vpp", [1, 4])
def test_sends_that_meet_gradients_are_late_and_every_second_keeps_its_label(overlap: list[str], vpp: int) -> None:
    found = time_at_highest_clock(
        build_step(resolve_run(merge(SLOW, {"parallelism": {"overlap": overlap, "vpp": vpp}})))
    )
    assert found.events.late_s.any()
    assert sum(found.breakdown_s.values()) == pytest.approx(found.step_time_s, rel=1e-9)
