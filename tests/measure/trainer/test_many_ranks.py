"""Training on several ranks gives the losses of training on one, whatever the layout; over gloo, in fp32."""

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from charllm.catalog.resolve import resolve_run
from charllm.errors import CharllmError, SpecError
from charllm.layout.grid import Grid
from charllm.measure.marks import find_steps, read_marks
from charllm.measure.trainer.place import read_launch, take_place
from charllm.measure.trainer.train import train
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from tests.measure.trainer.ranks import run_ranks

# Tensors this small only wait for each other on more threads.
torch.set_num_threads(1)

Layouts = dict[str, tuple[dict[str, Any], dict[str, Any], int]]
STEPS, FEW_STEPS = 20, 4
TOLERANCE = 1e-5
DENSE: dict[str, Any] = {
    "name": "tiny", "layers": 2, "hidden": 32, "ffn": 64, "heads": 4, "kv_heads": 2, "head_dim": 8, "vocab": 50,
    "seq_length": 16,
}  # fmt: skip
CLASSIC = {
    **DENSE, "kv_heads": 4, "activation": "gelu", "norm": "layernorm", "position": "learned", "bias": "all",
    "tied_embeddings": True,
}  # fmt: skip
SPARSE = {**DENSE, "experts": 4, "topk": 2, "expert_ffn": 32, "shared_ffn": 32, "dense_layers": 1}
LATENT = {
    **DENSE, "kv_heads": 4, "attention": "mla", "q_lora_rank": 16, "kv_lora_rank": 16, "rope_head_dim": 4,
    "v_head_dim": 8,
}  # fmt: skip
DEEP = {**DENSE, "layers": 4}
DEEP_CLASSIC = {**CLASSIC, "layers": 4}


def spec(model: dict[str, Any], degrees: dict[str, Any], **changes: Any) -> RunSpec:
    ranks = math.prod(degrees.get(axis, 1) for axis in ("tp", "cp", "dp", "pp"))
    microbatches = 1 if degrees.get("pp", 1) == 1 else 2 if ranks > 2 else 4
    rows = 4 // (microbatches * degrees.get("dp", 1))
    training = {"precision": "fp32", "micro_batch_size": rows, "global_batch_size": 4}
    if model.get("experts"):
        training["routing"] = "natural"
    request = {
        "model": model,
        "cluster": {"base": "h200x1", "name": f"h200x{ranks}", "node": {"gpus": ranks}},
        "framework": "pytorch-eager",
        "parallelism": {"zero": 0, "sp": False, **degrees},
        "training": training,
    }
    return resolve_run(merge(request, changes))


def losses(run: RunSpec, options: dict[str, Any] | None = None, steps: int = STEPS) -> list[float]:
    launch = read_launch(os.environ)
    return [step.loss for step in train(run, "cpu", steps, None, launch=launch, **(options or {}))]


ALONE: dict[str, list[float]] = {}


def alone(model: dict[str, Any], **changes: Any) -> list[float]:
    key = repr((model, changes))
    if key not in ALONE:
        ALONE[key] = losses(spec(model, {}, **changes))
    return ALONE[key]


def check(
    model: dict[str, Any],
    degrees: dict[str, Any],
    steps: int = FEW_STEPS,
    options: dict[str, Any] | None = None,
    **changes: Any,
) -> None:
    run = spec(model, degrees, **changes)
    expected = alone(model, **changes)
    assert expected[-1] < expected[0]
    for found in run_ranks(run.parallelism.world, losses, run, options, steps):
        assert found == pytest.approx(expected[:steps], abs=TOLERANCE)


TP: Layouts = {
    "all-reduced": (DENSE, {"tp": 2}, STEPS),
    "with sequence parallelism": (DENSE, {"tp": 2, "sp": True}, STEPS),
    "biases, tied embedding and learned positions": (CLASSIC, {"tp": 2, "sp": True}, FEW_STEPS),
    "a key-value head on two ranks": (DENSE, {"tp": 4, "sp": True}, FEW_STEPS),
    "latent attention": (LATENT, {"tp": 2, "sp": True}, STEPS),
    "latent attention, all-reduced": (LATENT, {"tp": 2}, FEW_STEPS),
    "biases of latent attention": ({**LATENT, "bias": "attention"}, {"tp": 2, "sp": True}, FEW_STEPS),
}
DP: Layouts = {
    "zero 0": (DENSE, {"dp": 2}, STEPS),
    "zero 1": (CLASSIC, {"dp": 2, "zero": 1}, STEPS),
    "zero 1, two copies of each shard": (DENSE, {"dp": 4, "zero": 1, "shard_size": 2}, FEW_STEPS),
    "zero 2": (DENSE, {"dp": 2, "zero": 2}, FEW_STEPS),
    "fsdp": (DENSE, {"dp": 2, "zero": 3}, STEPS),
    "fsdp, two copies of each shard, tied embedding": (CLASSIC, {"dp": 4, "zero": 3, "shard_size": 2}, FEW_STEPS),
}
PP: Layouts = {
    "1f1b": (DEEP, {"pp": 2}, STEPS),
    "gpipe": (DEEP, {"pp": 2, "schedule": "gpipe"}, FEW_STEPS),
    "uneven, tied embedding": (DEEP_CLASSIC, {"pp": 2, "layers_per_stage": [1, 3]}, STEPS),
    "interleaved": (DEEP, {"pp": 2, "vpp": 2, "schedule": "interleaved"}, STEPS),
    "zero-bubble": (DEEP, {"pp": 2, "schedule": "zero-bubble"}, STEPS),
    "dualpipe, both ends of the embedding on one rank": (DEEP_CLASSIC, {"pp": 2, "schedule": "dualpipe"}, FEW_STEPS),
    "fsdp in a pipeline": (DEEP, {"pp": 2, "dp": 2, "zero": 3}, FEW_STEPS),
}
EP: Layouts = {
    "experts on two ranks": (SPARSE, {"dp": 2, "ep": 2}, STEPS),
    "experts on tp ranks that do not share the sequence": (SPARSE, {"tp": 2, "ep": 2}, FEW_STEPS),
    "experts cut in two": (SPARSE, {"dp": 2, "etp": 2}, FEW_STEPS),
    "tp x ep x pp": (SPARSE, {"tp": 2, "ep": 2, "pp": 2, "sp": True}, STEPS),
    "sharded experts": (SPARSE, {"dp": 4, "ep": 2, "zero": 3}, FEW_STEPS),
}
CP: Layouts = {
    "ring": (DENSE, {"cp": 2}, STEPS),
    "ring with tp and latent attention": (LATENT, {"cp": 2, "tp": 2, "sp": True}, FEW_STEPS),
    "ring with a window": ({**DENSE, "window": 5}, {"cp": 2}, FEW_STEPS),
    "all-to-all": ({**DENSE, "position": "alibi"}, {"cp": 2, "cp_kind": "all-to-all"}, STEPS),
    "all-to-all with fewer key-value heads than ranks": (DENSE, {"cp": 4, "cp_kind": "all-to-all"}, FEW_STEPS),
}


@pytest.mark.parametrize("name", TP)
def test_tensor_parallelism_changes_no_loss(name: str) -> None:
    check(*TP[name])


@pytest.mark.parametrize("name", DP)
def test_replicas_and_shards_change_no_loss(name: str) -> None:
    check(*DP[name])


@pytest.mark.parametrize("name", PP)
def test_pipelines_change_no_loss(name: str) -> None:
    check(*PP[name])


def test_a_v_shaped_zero_bubble_pipeline_changes_no_loss() -> None:
    check(DEEP, {"pp": 2, "schedule": "zero-bubble"}, STEPS, {"zbv": True})


@pytest.mark.parametrize("name", EP)
def test_experts_on_several_ranks_change_no_loss(name: str) -> None:
    check(*EP[name])


@pytest.mark.parametrize("name", CP)
def test_context_parallelism_changes_no_loss(name: str) -> None:
    check(*CP[name])


def test_eight_ranks_of_tp_pp_and_dp_change_no_loss() -> None:
    check(DENSE, {"tp": 2, "pp": 2, "dp": 2, "sp": True, "zero": 1}, STEPS)


def test_ranks_may_be_numbered_in_another_order() -> None:
    check(DENSE, {"tp": 2, "pp": 2, "order": "pp-dp-ep-cp-tp"})


def test_gradients_are_clipped_by_the_norm_of_the_whole_model() -> None:
    model = {**SPARSE, "bias": "all", "qk_norm": True, "tied_embeddings": True}
    degrees = {"tp": 2, "dp": 2, "ep": 2, "etp": 2, "sp": True, "zero": 1}
    training = {"clip_gradients": True, "optimizer": "sgd"}
    assert alone(model, training=training) != alone(model, training={**training, "clip_gradients": False})
    check(model, degrees, training=training)


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputation_on_many_ranks_changes_no_loss(recompute: str) -> None:
    check(DENSE, {"tp": 2, "cp": 2, "sp": True}, training={"recompute": recompute})


def test_adapters_are_trained_on_many_ranks() -> None:
    targets = ["qkv", "proj", "fc1", "fc2"]
    check(DENSE, {"tp": 2, "dp": 2, "zero": 3}, training={"lora_rank": 4, "lora_targets": targets})


def test_grouped_gemms_change_no_loss() -> None:
    training = {"grouped_gemm": True}
    assert alone(SPARSE, training=training) == pytest.approx(alone(SPARSE), abs=TOLERANCE)
    check(SPARSE, {"dp": 2, "ep": 2, "zero": 1}, training=training)


def test_16_bits_on_two_ranks_come_close_to_16_bits_on_one() -> None:
    training = {"precision": "bf16"}
    expected = alone(DENSE, training=training)
    for found in run_ranks(2, losses, spec(DENSE, {"tp": 2, "sp": True}, training=training), None, FEW_STEPS):
        assert found == pytest.approx(expected[:FEW_STEPS], abs=0.05)


def test_dropout_trains_on_ranks_that_share_tokens_and_on_ranks_that_do_not() -> None:
    model = {**DENSE, "dropout_fraction": 0.2}
    for sp in (False, True):
        found = run_ranks(2, losses, spec(model, {"tp": 2, "sp": sp}))
        assert found[0] == found[1]
        assert found[0][-1] < found[0][0]


# Ranks, groups, placement


def own_groups(run: RunSpec) -> tuple[int, int, dict[str, tuple[int, ...]]]:
    place = take_place(run, "cpu", read_launch(os.environ))
    return place.rank, int(os.environ["RANK"]), {name: group.ranks for name, group in place.groups.items()}


def test_groups_are_those_of_the_layout() -> None:
    run = spec(SPARSE, {"tp": 2, "pp": 2, "dp": 2, "ep": 2, "sp": True, "zero": 1})
    grid = Grid(run.parallelism)
    for rank, process, groups in run_ranks(8, own_groups, run):
        assert rank == process
        for name in ("tp", "pp", "ep", "edp", "data", "shard"):
            (row,) = [row for row in grid.groups(name).tolist() if rank in row]
            assert groups[name] == tuple(row), name
        assert "cp" not in groups


def test_the_process_on_a_gpu_takes_the_rank_that_the_placement_puts_there() -> None:
    gpus = [2, 0, 3, 1]
    changes = {"conditions": {"gpu_of_rank": gpus, "placement": "map.json"}}
    run = spec(DENSE, {"tp": 2, "dp": 2}, **changes)
    for rank, process, _groups in run_ranks(4, own_groups, run, connect=False):
        assert gpus[rank] == process
    for found in run_ranks(4, losses, run, None, FEW_STEPS, connect=False):
        assert found == pytest.approx(alone(DENSE)[:FEW_STEPS], abs=TOLERANCE)


def test_every_rank_marks_its_steps_and_one_counts_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHARLLM_MARKS", str(tmp_path))
    run_ranks(2, losses, spec(DENSE, {"dp": 2}), None, 3)
    marks = {name.split("-")[0]: find_steps(found) for name, found in read_marks(tmp_path).items()}
    assert [step.tokens for step in marks["0"]] == [4 * 16] * 3
    assert [step.tokens for step in marks["1"]] == [None] * 3


def timed(run: RunSpec, seconds_s: float) -> int:
    return len(list(train(run, "cpu", None, seconds_s)))


def test_ranks_end_together_when_the_time_is_up() -> None:
    counts = run_ranks(2, timed, spec(DENSE, {"dp": 2}), 0.3)
    assert counts[0] == counts[1] >= 1


def traced(run: RunSpec, folder: Path) -> None:
    list(train(run, "cpu", 3, None, trace=folder))


def test_the_execution_trace_has_the_steps_after_the_first(tmp_path: Path) -> None:
    run_ranks(2, traced, spec(DENSE, {"tp": 2}), tmp_path / "traces")
    for rank in range(2):
        nodes = json.loads((tmp_path / "traces" / f"rank-{rank}.json").read_text())["nodes"]
        names = [node["name"] for node in nodes]
        assert [name for name in names if name.startswith("charllm step")] == ["charllm step 2", "charllm step 3"]
        assert "c10d::allreduce_" in names


# What goes wrong


def leave_early(run: RunSpec, closes: bool) -> str:
    steps = train(run, "cpu", 10_000, None, launch=read_launch(os.environ), timeout_s=6.0)
    next(steps)
    if dist.get_rank() == 1:
        if closes:
            dist.destroy_process_group()
        return "gone"
    try:
        for _step in steps:
            pass
    except CharllmError as error:
        return str(error)
    return "trained on"


@pytest.mark.parametrize("closes", [True, False], ids=["dead", "late"])
def test_a_peer_that_is_dead_or_late_ends_training_with_a_sentence(closes: bool) -> None:
    began_s = time.monotonic()
    message, gone = run_ranks(2, leave_early, spec(DENSE, {"dp": 2}), closes, connect=False)
    assert message.startswith("rank 0 lost contact with another rank")
    assert gone == "gone"
    assert time.monotonic() - began_s < 100


def refusal(run: RunSpec, options: dict[str, Any]) -> tuple[str, str]:
    try:
        losses(run, options)
    except SpecError as error:
        return error.field, str(error)
    return "", ""


@pytest.mark.parametrize(
    ("degrees", "training", "options", "field"),
    [
        ({"dp": 4}, {}, {}, "parallelism"),
        ({"pp": 2}, {"global_batch_size": 1}, {}, "parallelism.schedule"),
        ({"pp": 2}, {}, {"zbv": True}, "--zbv"),
        ({"dp": 2, "zero": 3, "regather_size": 2}, {}, {}, "parallelism.regather_size"),
        ({"dp": 2}, {"precision": "fp8"}, {}, "training.precision"),
        ({"dp": 2}, {"optimizer_offload_fraction": 0.5}, {}, "training.optimizer_offload_fraction"),
    ],
)
def test_what_two_ranks_cannot_train_is_refused_by_both(
    degrees: dict[str, Any], training: dict[str, Any], options: dict[str, Any], field: str
) -> None:
    run = spec(DENSE, degrees, training=training)
    for found, _message in run_ranks(2, refusal, run, options):
        assert found == field
