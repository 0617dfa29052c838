"""What the simulator says each rank sends is what torch's execution trace of the trainer shows, exactly."""

from pathlib import Path
from typing import Any

import pytest

from charllm.measure.trainer.train import train
from charllm.spec.run import RunSpec
from charllm.trace.compare import MessageRow, compare_messages, read_traces
from charllm.workload.step import build_step
from tests.measure.trainer.ranks import run_ranks
from tests.measure.trainer.test_many_ranks import CLASSIC, DEEP, DEEP_CLASSIC, DENSE, LATENT, SPARSE, spec

STEPS = 3
TIMEOUT_S = 300.0
DEEP_SPARSE = {**SPARSE, "layers": 4, "dense_layers": 2}
NORMED = {**DENSE, "qk_norm": True, "norms_per_layer": 4}
FORCED = {"routing": "forced", "global_batch_size": 8}
EVEN_VOCAB = {"vocab": 64}
LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "tp": (DENSE, {"tp": 2}, {}),
    "tp, sequence parallel": (DENSE, {"tp": 2, "sp": True}, {}),
    "tp, learned positions, biases, tied": (CLASSIC, {"tp": 2, "sp": True}, {}),
    "tp, norms of heads": (NORMED, {"tp": 2}, {}),
    "tp, latent attention": (LATENT, {"tp": 2}, {}),
    "tp, latent attention, sequence parallel": (LATENT, {"tp": 2, "sp": True}, {}),
    "tp, recomputed": (DENSE, {"tp": 2, "sp": True}, {"training": {"recompute": "full"}}),
    "dp": (DENSE, {"dp": 2}, {}),
    "dp, zero 1": (DENSE, {"dp": 2, "zero": 1}, {}),
    "dp, zero 1, in buckets": (DENSE, {"dp": 2, "zero": 1}, {"framework": {"bucket_bytes": 20_000}}),
    "dp, in buckets": (DENSE, {"dp": 2}, {"framework": {"bucket_bytes": 20_000}}),
    "dp, bf16": (DENSE, {"dp": 2}, {"training": {"precision": "bf16"}}),
    "pp": (DEEP, {"pp": 2}, {}),
    "pp, interleaved": (DEEP, {"pp": 2, "vpp": 2, "schedule": "interleaved"}, {}),
    "pp, tied": (DEEP_CLASSIC, {"pp": 2}, {}),
    "pp, zero-bubble": (DEEP, {"pp": 2, "schedule": "zero-bubble"}, {}),
    "pp x tp, recomputed": (DEEP, {"pp": 2, "tp": 2, "sp": True}, {"training": {"recompute": "full"}}),
    "fsdp": (DENSE | EVEN_VOCAB, {"dp": 2, "zero": 3}, {}),
    "fsdp, second stage": (DENSE | EVEN_VOCAB, {"dp": 2, "zero": 2}, {}),
    "fsdp, tied": (CLASSIC | EVEN_VOCAB, {"dp": 2, "zero": 3}, {}),
    "fsdp, recomputed": (DENSE | EVEN_VOCAB, {"dp": 2, "zero": 3}, {"training": {"recompute": "full"}}),
    "fsdp x tp": (DENSE | EVEN_VOCAB, {"dp": 2, "tp": 2, "sp": True, "zero": 3}, {}),
    "fsdp x pp": (DEEP | EVEN_VOCAB, {"dp": 2, "pp": 2, "zero": 3}, {}),
    "fsdp, shards and replicas": (DENSE | EVEN_VOCAB, {"dp": 4, "zero": 3, "shard_size": 2}, {}),
    "cp": (DENSE, {"cp": 2}, {}),
    "cp, all-to-all": (DENSE, {"cp": 2, "cp_kind": "all-to-all"}, {}),
    "cp x tp": (DENSE, {"cp": 2, "tp": 2, "sp": True}, {}),
    "ep": (SPARSE, {"dp": 2, "ep": 2}, {"training": FORCED}),
    "ep, recomputed": (SPARSE, {"dp": 2, "ep": 2}, {"training": {**FORCED, "recompute": "full"}}),
    "ep, fsdp": (SPARSE | EVEN_VOCAB, {"dp": 4, "ep": 2, "zero": 3}, {"training": FORCED}),
    "ep x tp, experts whole": (SPARSE, {"dp": 2, "tp": 2, "ep": 4, "sp": True, "etp": 1}, {"training": FORCED}),
    "ep x tp, experts cut": (SPARSE, {"dp": 2, "tp": 2, "ep": 2, "sp": True, "etp": 2}, {"training": FORCED}),
    "ep x tp x pp": (DEEP_SPARSE, {"dp": 2, "tp": 2, "ep": 2, "pp": 2, "sp": True, "etp": 1}, {"training": FORCED}),
    "tp x pp x dp": (DEEP, {"tp": 2, "pp": 2, "dp": 2, "sp": True, "zero": 1}, {}),
}


def traced(run: RunSpec, folder: Path) -> int:
    return len(list(train(run, "cpu", STEPS, None, trace=folder)))


def differences(rows: list[MessageRow]) -> list[MessageRow]:
    return [row for row in rows if not row.equal]


def reference(model: dict[str, Any], degrees: dict[str, Any], changes: dict[str, Any]) -> RunSpec:
    framework = {"base": "reference", "name": "reference", **changes.get("framework", {})}
    return spec(model, degrees, **{**changes, "framework": framework})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_rank_sends_what_the_simulator_says(layout: str, tmp_path: Path) -> None:
    run = reference(*LAYOUTS[layout])
    assert (
        run_ranks(run.parallelism.world, traced, run, tmp_path, timeout_s=TIMEOUT_S) == [STEPS] * run.parallelism.world
    )
    traces = read_traces(tmp_path)
    assert sorted(traces) == list(range(run.parallelism.world))
    assert all(sorted(trace.steps) == [2, 3] for trace in traces.values())
    rows = compare_messages(build_step(run), traces)
    assert sum(row.calls for row in rows) > 0
    assert differences(rows) == []
