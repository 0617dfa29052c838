"""What each GPU sends adds up to what nodes and links carry."""

from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.workload.node_traffic import gpu_traffic, node_traffic
from charllm.workload.step import build_step

RUNS: dict[str, dict[str, Any]] = {
    "dense": {"model": "llama3-70b", "parallelism": {"tp": 8, "pp": 2, "dp": 2}},
    "experts across nodes": {"model": "mixtral-8x7b", "parallelism": {"tp": 2, "ep": 8, "dp": 16}},
}


@pytest.mark.parametrize("name", RUNS)
def test_what_gpus_send_to_other_nodes_is_what_their_nodes_send(name: str) -> None:
    run = resolve_run({"cluster": "charllm-ppt-h200", "training": {"global_batch_size": 128}, **RUNS[name]})
    step = build_step(run)
    by_gpu = gpu_traffic(step)
    # A ring between nodes is one of nodes, too; in an exchange every GPU sends to all others.
    by_node = by_gpu.outside.reshape(run.cluster.nodes, -1).sum(axis=1)
    assert by_node == pytest.approx(node_traffic(step).sent.sum(axis=1), rel=0.01)
    assert np.all(by_gpu.inside > 0)
