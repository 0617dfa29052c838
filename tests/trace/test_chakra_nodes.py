"""Simulated steps as Chakra traces: what is written is read back, message by message."""

from pathlib import Path
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.simulate.predict import predict
from charllm.trace.chakra import read_chakra
from charllm.trace.chakra_nodes import rank_nodes
from charllm.trace.chakra_writer import to_json, to_protobuf
from charllm.trace.execution import read_execution_trace
from charllm.workload.messages import rank_messages

RUNS: dict[str, dict[str, Any]] = {
    "tp and pp": {"cluster": "h200x8", "parallelism": {"tp": 2, "pp": 2}, "training": {"global_batch_size": 4}},
    "fsdp": {"cluster": "h200x8", "framework": "fsdp", "training": {"global_batch_size": 8}},
}


@pytest.mark.parametrize("name", RUNS)
def test_the_messages_that_are_written_are_those_that_are_priced(name: str, tmp_path: Path) -> None:
    run = resolve_run({"model": {"base": "llama3-8b", "layers": 4}, **RUNS[name]})
    found = predict(run, ignore_memory=True, whole=True).simulated
    assert found is not None
    for rank in (0, run.parallelism.world - 1):
        nodes = list(rank_nodes(found.step, found.timed, rank))
        (tmp_path / f"rank-{rank}.json").write_text(to_json(nodes))
        assert read_execution_trace(tmp_path / f"rank-{rank}.json").steps[0] == rank_messages(found.step, rank)
        (tmp_path / f"rank-{rank}.et").write_bytes(to_protobuf(nodes))
        trace = read_chakra(tmp_path / f"rank-{rank}.et")
        assert trace.events.size == len(nodes)
        assert float(trace.events.duration_s.sum()) == pytest.approx(sum(node.seconds for node in nodes), rel=0.01)
