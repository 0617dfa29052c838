"""Layers with a state: Mamba-2's products equal those of a plain chunked scan in torch; ranks share heads."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from charllm.spec.model import Model
from charllm.spec.parallelism import Parallelism
from charllm.spec.training import Training
from charllm.workload.cut import PLAIN, Cut, cut_model
from charllm.workload.model_flop import _module_flop
from charllm.workload.recompute import kept_bytes
from charllm.workload.recurrence import CHUNK, DELTA_CHUNK, RECURRENCES, delta_flop, recurrence, scan_flop
from tests.workload.torch_reference import Mamba

BATCH, SEQ = 2, 2 * CHUNK
MODEL = Model(
    name="hybrid", layers=2, pattern="M-", hidden=48, ffn=64, heads=4, kv_heads=2, head_dim=12, vocab=96,
    ssm_heads=8, ssm_head_dim=16, ssm_state=32, ssm_groups=2,
)  # fmt: skip


def cut(model: Model = MODEL, **degrees: Any) -> Cut:
    training = Training(seq_length=SEQ, global_batch_size=BATCH, micro_batch_size=BATCH)
    return cut_model(model, training, PLAIN, Parallelism(**degrees))


def test_the_products_are_those_of_a_plain_scan_but_for_the_causal_half() -> None:
    block = Mamba(MODEL, CHUNK)
    x = torch.randn(BATCH, SEQ, MODEL.hidden, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        out = block(x)
        forward = counter.get_total_flops()
        out.sum().backward()
    modules = recurrence(cut(), "M")
    half = BATCH * SEQ * CHUNK * MODEL.ssm_heads * MODEL.ssm_head_dim
    assert sum(op.flop for module in modules for op in module.forward) == forward - half
    assert sum(_module_flop(module) for module in modules) == counter.get_total_flops() - 3 * half


def test_the_weights_are_those_of_the_plain_block() -> None:
    plain = sum(weight.numel() for weight in Mamba(MODEL, CHUNK).parameters())
    assert sum(module.weights for module in recurrence(cut(), "M")) == plain


def test_backward_runs_parts_of_forward_again() -> None:
    flop = scan_flop((4096, 64, 8, 64, 128))
    assert 2 * flop.forward < flop.backward < 3 * flop.forward


def test_ranks_share_heads_and_keep_their_share() -> None:
    whole, shared = recurrence(cut(), "M"), recurrence(cut(tp=2, sp=True), "M")
    for one, part in zip(whole, shared, strict=True):
        assert sum(op.flop for op in part.forward) == sum(op.flop for op in one.forward) / 2
        assert part.weights == one.weights / 2
    assert kept_bytes(shared) == kept_bytes(whole) / 2
    assert any(op.group == "tp" for module in shared for op in module.forward)


def test_ranks_that_share_a_sequence_exchange_it_for_channels() -> None:
    exchanged = [op for module in recurrence(cut(cp=2), "M") for op in module.forward if op.group == "cp"]
    assert [op.kind for op in exchanged] == ["all_to_all", "all_to_all"]


def test_frozen_weights_have_no_gradient_of_their_own() -> None:
    training = Training(seq_length=SEQ, global_batch_size=BATCH, micro_batch_size=BATCH, lora_rank=4)
    frozen = recurrence(cut_model(MODEL, training, PLAIN, Parallelism()), "M")
    assert sum(module.weights for module in frozen) == 0
    assert sum(module.frozen_weights for module in frozen) == sum(module.weights for module in recurrence(cut(), "M"))


def test_a_larger_state_costs_traffic_between_chunks() -> None:
    small, large = (recurrence(cut(replace(MODEL, ssm_state=state)), "M")[2].forward[0] for state in (32, 64))
    assert large.read_bytes + large.written_bytes > small.read_bytes + small.written_bytes


@pytest.mark.parametrize("letter", RECURRENCES)
def test_every_recurrence_is_shared_by_ranks(letter: str) -> None:
    whole, shared = recurrence(cut(), letter), recurrence(cut(tp=2, sp=True), letter)
    for one, part in zip(whole, shared, strict=True):
        assert sum(op.flop for op in part.forward) == sum(op.flop for op in one.forward) / 2
    assert any(op.group == "tp" for module in shared for op in module.forward)


def test_the_delta_rule_has_the_weights_of_gated_delta_net() -> None:
    """q, k, v, z and two numbers for each head; a filter for q, k and v; two numbers; a norm; the way back."""
    hidden, heads, width, groups, state = 48, 8, 16, 2, 32
    inner, keys = heads * width, groups * state
    projected = hidden * (2 * inner + 2 * keys + 2 * heads) + inner * hidden
    expected = projected + 4 * (inner + 2 * keys) + 2 * heads + width
    assert sum(module.weights for module in recurrence(cut(), "D")) == expected


def test_lightning_attention_has_no_filter() -> None:
    model = replace(MODEL, ssm_groups=8, ssm_state=16, ssm_conv=1)
    inner = 8 * 16
    expected = 48 * 4 * inner + inner + inner * 48
    assert sum(module.weights for module in recurrence(cut(model), "L")) == expected


def test_the_delta_rule_counts_the_products_of_its_chunks() -> None:
    """One chunk of a plain form in torch, causal halves and the inverse aside, is twice five and three products."""
    tokens, width, state = DELTA_CHUNK, 16, 32
    key, query = torch.randn(tokens, state), torch.randn(tokens, state)
    value, memory = torch.randn(tokens, width), torch.randn(state, width)
    with FlopCounterMode(display=False) as counter:
        triangle = key @ key.T
        corrected_keys, corrected_values = triangle @ key, triangle @ value
        new = corrected_values - corrected_keys @ memory
        out = query @ memory + (query @ key.T) @ new
        memory = memory + key.T @ new
    assert out.shape == (tokens, width)
    inside = tokens * DELTA_CHUNK * (3 * state + 2 * width)
    inverse = tokens * DELTA_CHUNK**2 / 3
    assert delta_flop((tokens, 1, 1, width, state)).forward == counter.get_total_flops() - inside + inverse
    flop = delta_flop((4096, 32, 16, 128, 128))
    assert 2 * flop.forward < flop.backward < 3 * flop.forward
