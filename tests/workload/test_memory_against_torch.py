"""Peak memory of small models equals what torch's MemTracker sees on the CPU, within 3 %."""

from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from charllm.catalog.resolve import resolve_run
from charllm.spec.model import Model
from charllm.workload.memory import WORKSPACE_BYTES, rank_memories
from charllm.workload.step import build_step
from tests.workload.torch_reference import Transformer

SEQ = 256
GPT = Model(
    name="gpt", layers=4, hidden=256, ffn=704, heads=8, kv_heads=8, head_dim=32, vocab=2048,
    activation="gelu", norm="layernorm", position="none", bias="all",
)  # fmt: skip
LLAMA = Model(
    name="llama", layers=6, hidden=512, ffn=1408, heads=8, kv_heads=4, head_dim=64, vocab=512, norm="layernorm"
)
CASES = [
    pytest.param(GPT, 2, {}, id="gpt, small batch"),
    pytest.param(GPT, 8, {}, id="gpt, large batch"),
    pytest.param(GPT, 8, {"recompute": "full"}, id="gpt, recomputed"),
    pytest.param(GPT, 4, {"attention": "unfused"}, id="gpt, unfused attention"),
    pytest.param(LLAMA, 1, {}, id="llama, states dominate"),
    pytest.param(LLAMA, 8, {}, id="llama, activations dominate"),
    pytest.param(LLAMA, 8, {"recompute": "full"}, id="llama, recomputed"),
    pytest.param(replace(LLAMA, vocab=8192), 4, {}, id="llama, logits dominate"),
    pytest.param(replace(LLAMA, layers=2, hidden=768, heads=12, kv_heads=12), 4, {}, id="wide and shallow"),
]


@pytest.mark.parametrize(("model", "batch", "settings"), CASES)
def test_peak_matches_the_tracker(model: Model, batch: int, settings: dict[str, Any]) -> None:
    # Fake tensors have sizes and lifetimes but no numbers, so that nothing is computed.
    with FakeTensorMode():
        measured = tracked_peak_bytes(model, batch, settings)
    assert predicted_peak_bytes(model, batch, settings) == pytest.approx(measured, rel=0.03)


def tracked_peak_bytes(model: Model, batch: int, settings: dict[str, Any]) -> float:
    torch.set_default_dtype(torch.bfloat16)
    try:
        network = Transformer(
            model,
            fused=settings.get("attention") != "unfused",
            recompute=settings.get("recompute") == "full",
        )
    finally:
        torch.set_default_dtype(torch.float32)
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    tracker = MemTracker()
    tracker.track_external(network, optimizer)
    tokens = torch.randint(0, model.vocab, (batch, SEQ))
    with tracker:
        for step in range(2):
            network(tokens, tokens).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 0:
                # The optimizer's states exist only after the first step.
                tracker.reset_mod_stats()
    snapshot = tracker.get_tracker_snapshot("peak")
    return float(snapshot[torch.device("cpu")]["Total"])


def predicted_peak_bytes(model: Model, batch: int, settings: dict[str, Any]) -> float:
    table = {key: value for key, value in asdict(model).items() if value is not None}
    training: dict[str, Any] = {"seq_length": SEQ, "global_batch_size": batch, "micro_batch_size": batch}
    training["recompute"] = settings.get("recompute", "none")
    framework = {"base": "pytorch-eager", "attention": settings.get("attention", "flash")}
    request = {"model": table, "cluster": "h200x1", "framework": framework, "training": training}
    # The tracker sees tensors, not the workspaces of libraries.
    return rank_memories(build_step(resolve_run(request)))[0].allocated_bytes - WORKSPACE_BYTES
