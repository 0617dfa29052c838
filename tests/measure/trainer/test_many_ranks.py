"""Training on several ranks gives the losses of training on one, whatever the layout; over gloo, in fp32."""

import math
import os
from typing import Any

import pytest
import torch

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.measure.trainer.train import train
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from tests.measure.trainer.ranks import run_ranks

# Tensors this small only wait for each other on more threads.
torch.set_num_threads(1)

STEPS = 20
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
    training = {"precision": "fp32", "micro_batch_size": 2, "global_batch_size": 4}
    if model.get("experts"):
        training["routing"] = "natural"
    request = {
        "model": model,
        "cluster": {"base": "h200x1", "name": f"h200x{ranks}", "node": {"gpus": ranks}},
        "framework": "pytorch-eager",
        "parallelism": {"zero": 0, "sp": False, **degrees},
        "training": training,
    }
    if degrees.get("pp", 1) > 1 or degrees.get("dp", 1) > 2:
        training["micro_batch_size"] = 1
    return resolve_run(merge(request, changes))


def losses(run: RunSpec, options: dict[str, Any] | None = None, steps: int = STEPS) -> list[float]:
    return [step.loss for step in train(run, "cpu", steps, None, **(options or {}))]


ALONE: dict[str, list[float]] = {}


def alone(model: dict[str, Any], **changes: Any) -> list[float]:
    key = repr((model, changes))
    if key not in ALONE:
        ALONE[key] = losses(spec(model, {}, **changes))
    return ALONE[key]


def check(model: dict[str, Any], degrees: dict[str, Any], options: dict[str, Any] | None = None, **changes: Any) -> None:
    run = spec(model, degrees, **changes)
    expected = alone(model, **changes)
    assert expected[-1] < expected[0]
    for found in run_ranks(run.parallelism.world, losses, run, options):
        assert found == pytest.approx(expected, abs=TOLERANCE)
