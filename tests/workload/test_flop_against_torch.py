"""FLOPs of every kind of block equal what torch's FlopCounterMode counts, exactly."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from charllm.spec.framework import Framework
from charllm.spec.model import Model
from charllm.spec.parallelism import Parallelism
from charllm.spec.training import Training
from charllm.workload.attention import attention
from charllm.workload.cut import Cut, cut_model
from charllm.workload.feedforward import feedforward
from charllm.workload.layer import LayerKind, layer
from charllm.workload.moe import moe
from charllm.workload.op import MATRIX_KINDS, Module
from charllm.workload.recompute import replay
from charllm.workload.vocabulary import head
from tests.workload.torch_reference import Attention, Checkpointed, FeedForward, LatentAttention, Layer, Moe

BATCH, SEQ = 2, 32
DENSE = Model(
    name="small", layers=2, hidden=48, ffn=80, heads=6, kv_heads=2, head_dim=8, vocab=96, causal=False, norm="layernorm"
)
GELU = replace(DENSE, activation="gelu", bias="all", kv_heads=6)
LATENT = replace(
    DENSE, kv_heads=6, attention="mla", q_lora_rank=20, kv_lora_rank=12, rope_head_dim=4, v_head_dim=10, norm="rmsnorm"
)
SPARSE = replace(DENSE, experts=4, topk=2, expert_ffn=24, shared_ffn=40)


def cut(model: Model, *, attention: str = "flash", lora_rank: int = 0, full_recompute: str = "all") -> Cut:
    training = Training(seq_length=SEQ, global_batch_size=BATCH, micro_batch_size=BATCH, lora_rank=lora_rank)
    framework = Framework(
        name="plain", attention=attention, full_recompute=full_recompute, reserve_fraction=0.0, bucket_bytes=0.0
    )
    return cut_model(model, training, framework, Parallelism())


def our_flop(modules: tuple[Module, ...]) -> tuple[float, float]:
    forward = sum(op.flop for module in modules for op in module.forward if op.kind in MATRIX_KINDS)
    backward = sum(op.flop for module in modules for op in module.backward if op.kind in MATRIX_KINDS)
    return forward, backward


def with_all_heads(key: list[int], query: list[int]) -> list[int]:
    return [key[0], query[1], *key[2:]]


def flash_flop(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, with_all_heads(key, query), with_all_heads(value, query)))


def flash_backward_flop(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(grad, query, with_all_heads(key, query), with_all_heads(value, query)))


# The CPU's flash kernels are not in torch's registry, so its own formulas are named for them.
CPU_FLASH = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: flash_flop,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: flash_backward_flop,
}


def torch_flop(block: nn.Module, width: int) -> tuple[float, float]:
    x = torch.randn(BATCH, SEQ, width, requires_grad=True)
    with FlopCounterMode(display=False, custom_mapping=CPU_FLASH) as counter:
        out: Tensor = block(x)
        forward = counter.get_total_flops()
        out.sum().backward()
    return float(forward), float(counter.get_total_flops() - forward)


@pytest.mark.parametrize("model", [DENSE, GELU], ids=["gqa", "mha"])
@pytest.mark.parametrize("kind", ["flash", "unfused"])
def test_attention(model: Model, kind: str) -> None:
    ours = our_flop(attention(cut(model, attention=kind), window=0))
    assert ours == torch_flop(Attention(model, fused=kind == "flash"), model.hidden)


@pytest.mark.parametrize("model", [LATENT, replace(LATENT, q_lora_rank=0)], ids=["compressed", "plain queries"])
def test_latent_attention(model: Model) -> None:
    ours = our_flop(attention(cut(model, attention="unfused"), window=0))
    assert ours == torch_flop(LatentAttention(model), model.hidden)


@pytest.mark.parametrize("model", [DENSE, GELU], ids=["swiglu", "gelu"])
def test_feed_forward(model: Model) -> None:
    assert our_flop(feedforward(cut(model), model.ffn)) == torch_flop(FeedForward(model, model.ffn), model.hidden)


def test_experts_router_and_shared_experts() -> None:
    assert our_flop(moe(cut(SPARSE))) == torch_flop(Moe(SPARSE), SPARSE.hidden)


@pytest.mark.parametrize("model", [DENSE, GELU, SPARSE], ids=["swiglu", "gelu", "sparse"])
def test_whole_layer(model: Model) -> None:
    ours = our_flop(layer(cut(model), LayerKind(sparse=model.experts > 0, window=0)))
    assert ours == torch_flop(Layer(model), model.hidden)


@pytest.mark.parametrize("model", [DENSE, GELU], ids=["swiglu", "gelu"])
@pytest.mark.parametrize(("full_recompute", "reentrant"), [("all", True), ("saved", False)])
def test_recomputed_layer(model: Model, full_recompute: str, reentrant: bool) -> None:
    described = cut(model, full_recompute=full_recompute)
    modules = layer(described, LayerKind(sparse=False, window=0))
    again = sum(op.flop for op in replay(described, modules, "full").ops if op.kind in MATRIX_KINDS)
    forward, backward = our_flop(modules)
    assert (forward, backward + again) == torch_flop(Checkpointed(Layer(model), reentrant=reentrant), model.hidden)


def test_lm_head() -> None:
    ours = our_flop(head(cut(DENSE), owns_weight=True))
    assert ours == torch_flop(nn.Linear(DENSE.hidden, DENSE.vocab, bias=False), DENSE.hidden)


def test_lora_has_no_gradient_of_frozen_weights() -> None:
    ours = our_flop(layer(cut(DENSE, lora_rank=4), LayerKind(sparse=False, window=0)))
    assert ours == torch_flop(Layer(DENSE, rank=4), DENSE.hidden)


def test_causal_flash_attention_is_half_of_full() -> None:
    full, causal = (attention(cut(model), window=0)[-2] for model in (DENSE, replace(DENSE, causal=True)))
    assert causal.name == "core attention"
    assert our_flop((causal,)) == tuple(flop / 2 for flop in our_flop((full,)))
