"""What the simulator says each rank sends is what torch's execution trace of the trainer shows, exactly."""

import json
from pathlib import Path
from typing import Any

import pytest

# Imported once, before ranks are forked.
import torch._dynamo
import torch.distributed.fsdp
import torch.distributed.pipelining

import charllm
from charllm.cli import main
from charllm.measure.trainer.train import train
from charllm.spec.run import RunSpec
from charllm.trace.compare import compare_messages, read_traces
from charllm.workload.step import build_step
from tests.measure.trainer.ranks import run_ranks
from tests.measure.trainer.test_many_ranks import CLASSIC, DEEP, DEEP_CLASSIC, DENSE, LATENT, SPARSE, spec

STEPS = 2
"""The first step is not traced."""
TIMEOUT_S = 300.0
DEEP_SPARSE = {**SPARSE, "layers": 4, "dense_layers": 2}
NORMED = {**DENSE, "qk_norm": True, "norms_per_layer": 4}
FORCED = {"routing": "forced", "global_batch_size": 8}
AGAIN = {"training": {"recompute": "full"}}
BUCKETS = {"framework": {"bucket_bytes": 20_000}}
LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "tp, norms of heads": (NORMED, {"tp": 2}, {}),
    "tp, sequence parallel, recomputed": (DENSE, {"tp": 2, "sp": True}, AGAIN),
    "tp, sequence parallel, learned positions, biases, tied": (CLASSIC, {"tp": 2, "sp": True}, {}),
    "tp, latent attention": (LATENT, {"tp": 2}, AGAIN),
    "tp, latent attention, sequence parallel": (LATENT, {"tp": 2, "sp": True}, {}),
    "dp in buckets": (DENSE, {"dp": 2}, BUCKETS),
    "dp, zero 1 in buckets": (CLASSIC, {"dp": 2, "zero": 1}, BUCKETS),
    "dp in 16 bits": (DENSE, {"dp": 2, "zero": 1}, {"training": {"precision": "bf16"}}),
    "pp, tied": (DEEP_CLASSIC, {"pp": 2}, {}),
    "pp, interleaved": (DEEP, {"pp": 2, "vpp": 2, "schedule": "interleaved"}, {}),
    "pp, zero-bubble": (DEEP, {"pp": 2, "schedule": "zero-bubble"}, {}),
    "fsdp, recomputed": (DENSE, {"dp": 2, "zero": 3}, AGAIN),
    "fsdp, tied": (CLASSIC, {"dp": 2, "zero": 3}, {}),
    "fsdp, weights kept until backward": (DENSE, {"dp": 2, "zero": 2}, {}),
    "fsdp x tp": (DENSE | {"vocab": 64}, {"dp": 2, "tp": 2, "sp": True, "zero": 3}, {}),
    "fsdp x pp": (DEEP, {"dp": 2, "pp": 2, "zero": 3}, {}),
    "fsdp, two copies of each shard": (DENSE, {"dp": 4, "zero": 3, "shard_size": 2}, {}),
    "cp, all-to-all": (DENSE, {"cp": 2, "cp_kind": "all-to-all"}, {}),
    "cp x tp": (DENSE, {"cp": 2, "tp": 2, "sp": True}, {}),
    "ep, recomputed": (SPARSE, {"dp": 2, "ep": 2}, {"training": {**FORCED, "recompute": "full"}}),
    "ep x fsdp": (SPARSE, {"dp": 4, "ep": 2, "zero": 3}, {"training": FORCED}),
    "ep x tp, experts cut": (SPARSE, {"dp": 2, "tp": 2, "ep": 2, "sp": True, "etp": 2}, {"training": FORCED}),
    "ep x tp x pp": (DEEP_SPARSE, {"dp": 2, "tp": 2, "ep": 2, "pp": 2, "sp": True, "etp": 1}, {"training": FORCED}),
    "tp x pp x dp": (DEEP, {"tp": 2, "pp": 2, "dp": 2, "sp": True, "zero": 1}, {}),
}


def traced(run: RunSpec, folder: Path, steps: int = STEPS) -> int:
    return len(list(train(run, "cpu", steps, None, trace=folder)))


def reference(model: dict[str, Any], degrees: dict[str, Any], changes: dict[str, Any]) -> RunSpec:
    framework = {"base": "reference", "name": "reference", **changes.get("framework", {})}
    return spec(model, degrees, **{**changes, "framework": framework})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_rank_sends_what_the_simulator_says(layout: str, tmp_path: Path) -> None:
    run = reference(*LAYOUTS[layout])
    world = run.parallelism.world
    run_ranks(world, traced, run, tmp_path, timeout_s=TIMEOUT_S)
    traces = read_traces(tmp_path)
    assert [sorted(traces[rank].steps) for rank in range(world)] == [[2]] * world
    rows = compare_messages(build_step(run), traces)
    assert {row.rank for row in rows} == set(range(world))
    assert [row for row in rows if not row.equal] == []


def test_the_command_compares_a_folder_of_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = reference(DENSE, {"tp": 2}, {})
    run_ranks(2, traced, run, tmp_path, 4, timeout_s=TIMEOUT_S)
    assert [sorted(trace.steps) for trace in read_traces(tmp_path).values()] == [[2, 3]] * 2
    (tmp_path / "spec.json").write_text(json.dumps(run.as_table()))
    words = ["messages", "--execution-trace", str(tmp_path)]
    assert main(words) == 0
    assert "yes" in capsys.readouterr().out
    assert all(row["equal"] for row in charllm.messages(execution_trace=tmp_path, rank=1))

    other = reference(DENSE, {"tp": 2, "sp": True}, {})
    (tmp_path / "spec.json").write_text(json.dumps(other.as_table()))
    assert main(words) == 1
    printed = capsys.readouterr().out
    assert "NO" in printed and "Messages that differ" in printed
    rows = charllm.messages(execution_trace=tmp_path)
    gathered = [row for row in rows if row["kind"] == "all_gather"]
    assert gathered and all(row["calls_traced"] == 0 and not row["equal"] for row in gathered)
