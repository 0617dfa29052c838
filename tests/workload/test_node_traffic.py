"""What nodes send each other adds up to what leaves through their adapters."""

from typing import Any

import numpy as np
import pytest

from charllm.api.keywords import build_request
from charllm.catalog.resolve import resolve_run
from charllm.workload.node_traffic import node_traffic
from charllm.workload.step import Step, build_step
from charllm.workload.totals import count_traffic


def step_of(**words: Any) -> Step:
    return build_step(resolve_run(build_request(None, words)))


@pytest.mark.parametrize(
    "words",
    [
        {"model": "llama3-70b", "cluster": "charllm-ppt-h200", "tp": 8, "pp": 4, "gbs": 16},
        {"model": "llama3-8b", "cluster": "charllm-ppt-h200", "tp": 2, "gbs": 64},
        {"model": "mixtral-8x7b", "cluster": "charllm-ppt-h100", "tp": 4, "ep": 8, "gbs": 64},
    ],
    ids=["pipeline", "ring", "exchange"],
)
def test_it_adds_up_to_all_traffic_between_nodes(words: dict[str, Any]) -> None:
    step = step_of(**words)
    assert node_traffic(step).sent.sum() == pytest.approx(count_traffic(step).link_bytes["nic"], rel=1e-9)


def test_a_pipeline_sends_to_its_neighbours_only() -> None:
    sent = node_traffic(step_of(model="llama3-70b", cluster="charllm-ppt-h200", tp=8, pp=4, gbs=16)).sent
    apart = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    assert np.all((sent > 0) == (apart == 1))


def test_a_ring_leaves_each_node_for_the_next() -> None:
    sent = node_traffic(step_of(model="llama3-8b", cluster="charllm-ppt-h200", tp=2, gbs=64)).sent
    assert [int(np.argmax(row)) for row in sent] == [1, 2, 3, 0]


def test_an_exchange_waits_for_all_that_a_node_receives() -> None:
    traffic = node_traffic(step_of(model="mixtral-8x7b", cluster="charllm-ppt-h100", tp=4, ep=8, gbs=64))
    assert np.all(traffic.waited_for[0, 1:4] > 2 * traffic.sent[0, 1:4])
