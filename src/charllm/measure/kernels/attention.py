"""Attention in PyTorch: forward, backward, and of one token of each sequence over a cache."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from charllm.gpu.shape import KernelShape
from charllm.measure.kernels.operands import Operands

Launch = Callable[[], Any]


def _attention_operands(shape: KernelShape, operands: Operands) -> list[torch.Tensor]:
    batch, heads, kv_heads, seq, head_dim = shape.dims
    return [operands.read(shape, batch, count, seq, head_dim) for count in (heads, kv_heads, kv_heads)]


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, flash2: bool) -> torch.Tensor:
    grouped = query.shape[1] != key.shape[1]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION) if flash2 else contextlib.nullcontext():
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)


def _is_flash2(shape: KernelShape, operands: Operands) -> bool:
    """Torch has FlashAttention-2; its first form runs as that."""
    return shape.variant in ("flash2", "flash1") and operands.device != "cpu"


def attend(shape: KernelShape, operands: Operands) -> Launch:
    """Attend forward, causally."""
    query, key, value = _attention_operands(shape, operands)
    return partial(_attend, query, key, value, flash2=_is_flash2(shape, operands))


def attend_cache(shape: KernelShape, operands: Operands) -> Launch:
    """Attend from one token of each sequence to all that its cache holds."""
    batch, heads, kv_heads, keys, width = shape.dims
    sizes = ((heads, 1), (kv_heads, keys), (kv_heads, keys))
    query, key, value = (operands.read(shape, batch, *size, width) for size in sizes)
    return partial(functional.scaled_dot_product_attention, query, key, value, enable_gqa=heads != kv_heads)


def attend_backward(shape: KernelShape, operands: Operands) -> Launch:
    """Go back through attention, whose forward pass is kept."""
    inputs = [operand.detach().requires_grad_() for operand in _attention_operands(shape, operands)]
    return backward_of(_attend(*inputs, flash2=_is_flash2(shape, operands)), inputs)


def backward_of(out: torch.Tensor, inputs: list[torch.Tensor]) -> Launch:
    """Return a function that runs the backward of an output again and again."""
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)
