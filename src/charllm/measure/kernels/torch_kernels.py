"""The kernels themselves, in PyTorch: each maker allocates operands once and returns a function that launches once."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from charllm.gpu.shape import KernelShape

Launch = Callable[[], Any]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp8": torch.bfloat16}
OUTLIER_FRACTION, OUTLIER_SCALE, WEIGHT_SCALE = 0.001, 20.0, 0.02
"""Trained-like operands: weights as initialised at a width of some thousands, and one activation in a thousand
twenty times larger, as trained transformers show (Dettmers 2022)."""


def make_kernel(shape: KernelShape, device: str) -> Launch:
    """Allocate the operands of a kernel and return a function that launches it once."""
    return KERNELS[shape.kind](shape, device)


def _operand(shape: KernelShape, device: str, *size: int, weight: bool = False) -> torch.Tensor:
    dtype = DTYPES[shape.precision]
    if shape.values == "zeros":
        return torch.zeros(*size, dtype=dtype, device=device)
    drawn = torch.randn(*size, dtype=dtype, device=device)
    if shape.values != "trained":
        return drawn
    if weight:
        return drawn * WEIGHT_SCALE
    outliers = torch.rand(*size, dtype=torch.float32, device=device) < OUTLIER_FRACTION
    return torch.where(outliers, drawn * OUTLIER_SCALE, drawn)


def _gemm(shape: KernelShape, device: str) -> Launch:
    batch, m, n, k = shape.dims
    if shape.precision == "fp8":
        return _fp8_gemm(shape, device)
    left, right = _operand(shape, device, batch, m, k), _operand(shape, device, batch, n, k, weight=True)
    if batch > 1:
        out = torch.empty(batch, m, n, dtype=left.dtype, device=device)
        return lambda: torch.bmm(left, right.transpose(1, 2), out=out)
    left, right = left[0], right[0].t()
    out = torch.empty(m, n, dtype=left.dtype, device=device)
    return lambda: torch.mm(left, right, out=out)


def _fp8_gemm(shape: KernelShape, device: str) -> Launch:
    _, m, n, k = shape.dims
    left = _operand(shape, device, m, k).to(torch.float8_e4m3fn)
    right = _operand(shape, device, n, k, weight=True).to(torch.float8_e4m3fn).t()
    one = torch.ones((), dtype=torch.float32, device=device)
    return lambda: torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def _grouped_gemm(shape: KernelShape, device: str) -> Launch:
    """Experts of equal load in one launch; a batched product where torch has no grouped one for the device."""
    experts, m, n, k = shape.dims
    if device == "cpu" or not hasattr(torch, "_grouped_mm"):
        return _gemm(shape, device)
    tokens = _operand(shape, device, experts * m, k)
    weights = _operand(shape, device, experts, n, k, weight=True).transpose(1, 2)
    ends = torch.arange(1, experts + 1, dtype=torch.int32, device=device) * m
    return lambda: torch._grouped_mm(tokens, weights, offs=ends)


def _attention_operands(shape: KernelShape, device: str) -> list[torch.Tensor]:
    batch, heads, kv_heads, seq, head_dim = shape.dims
    return [_operand(shape, device, batch, count, seq, head_dim) for count in (heads, kv_heads, kv_heads)]


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    grouped = query.shape[1] != key.shape[1]
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)


def _attention(shape: KernelShape, device: str) -> Launch:
    query, key, value = _attention_operands(shape, device)

    def launch() -> torch.Tensor:
        with torch.no_grad():
            return _attend(query, key, value)

    return launch


def _attention_backward(shape: KernelShape, device: str) -> Launch:
    operands = [operand.requires_grad_() for operand in _attention_operands(shape, device)]
    return _backward(_attend(*operands), operands)


def _backward(out: torch.Tensor, inputs: list[torch.Tensor]) -> Launch:
    """Return a function that runs the backward of an output again and again."""
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)


def _norm(shape: KernelShape, device: str) -> Launch:
    rows, width = shape.dims
    x, scale, shift = _operand(shape, device, rows, width), _ones(shape, device, width), _ones(shape, device, width)
    return lambda: functional.layer_norm(x, (width,), scale, shift)


def _rmsnorm(shape: KernelShape, device: str) -> Launch:
    rows, width = shape.dims
    x, scale = _operand(shape, device, rows, width), _ones(shape, device, width)
    return lambda: functional.rms_norm(x, (width,), scale)


def _norm_backward(shape: KernelShape, device: str) -> Launch:
    rows, width = shape.dims
    x, scale, shift = _operand(shape, device, rows, width), _ones(shape, device, width), _ones(shape, device, width)
    inputs = [x.requires_grad_(), scale.requires_grad_(), shift.requires_grad_()]
    return _backward(functional.layer_norm(x, (width,), scale, shift), inputs)


def _ones(shape: KernelShape, device: str, width: int) -> torch.Tensor:
    return torch.ones(width, dtype=DTYPES[shape.precision], device=device)


def _copy(shape: KernelShape, device: str) -> Launch:
    x = _operand(shape, device, *shape.dims)
    out = torch.empty_like(x)
    return lambda: out.copy_(x)


def _add(shape: KernelShape, device: str) -> Launch:
    x, y = _operand(shape, device, *shape.dims), _operand(shape, device, *shape.dims)
    out = torch.empty_like(x)
    return lambda: torch.add(x, y, out=out)


def _gelu(shape: KernelShape, device: str) -> Launch:
    x = _operand(shape, device, *shape.dims)
    return lambda: functional.gelu(x, approximate="tanh")


def _gelu_backward(shape: KernelShape, device: str) -> Launch:
    x = _operand(shape, device, *shape.dims).requires_grad_()
    return _backward(functional.gelu(x, approximate="tanh"), [x])


def _swiglu(shape: KernelShape, device: str) -> Launch:
    gate, up = _operand(shape, device, *shape.dims), _operand(shape, device, *shape.dims)
    return lambda: functional.silu(gate).mul_(up)


def _dropout_add(shape: KernelShape, device: str) -> Launch:
    x, residual = _operand(shape, device, *shape.dims), _operand(shape, device, *shape.dims)
    return lambda: functional.dropout(x, 0.1, training=True).add_(residual)


def _softmax(shape: KernelShape, device: str) -> Launch:
    x = _operand(shape, device, *shape.dims)
    return lambda: torch.softmax(x, -1)


def _cast(shape: KernelShape, device: str) -> Launch:
    x = _operand(shape, device, *shape.dims)
    return lambda: x.to(torch.float8_e4m3fn)


def _permute(shape: KernelShape, device: str) -> Launch:
    rows, _width = shape.dims
    x = _operand(shape, device, *shape.dims)
    order = torch.randperm(rows, device=device)
    return lambda: x.index_select(0, order)


def _embedding(shape: KernelShape, device: str) -> Launch:
    tokens, width = shape.dims
    table = _operand(shape, device, 32_768, width, weight=True)
    indices = torch.randint(0, 32_768, (tokens,), device=device)
    return lambda: functional.embedding(indices, table)


def _loss(shape: KernelShape, device: str) -> Launch:
    tokens, vocab = shape.dims
    logits = _operand(shape, device, tokens, vocab)
    targets = torch.randint(0, vocab, (tokens,), device=device)
    return lambda: functional.cross_entropy(logits.float(), targets)


def _optimizer(shape: KernelShape, device: str) -> Launch:
    weight = torch.nn.Parameter(torch.randn(*shape.dims, device=device))
    weight.grad = torch.randn_like(weight)
    optimizer = torch.optim.AdamW([weight], lr=1e-6, fused=device != "cpu")
    launch: Launch = optimizer.step
    return launch


KERNELS: dict[str, Callable[[KernelShape, str], Launch]] = {
    "gemm": _gemm,
    "grouped_gemm": _grouped_gemm,
    "attention": _attention,
    "attention_backward": _attention_backward,
    "norm": _norm,
    "rmsnorm": _rmsnorm,
    "norm_backward": _norm_backward,
    "copy": _copy,
    "add": _add,
    "gelu": _gelu,
    "gelu_backward": _gelu_backward,
    "swiglu": _swiglu,
    "dropout_add": _dropout_add,
    "softmax": _softmax,
    "cast": _cast,
    "permute": _permute,
    "embedding": _embedding,
    "loss": _loss,
    "optimizer": _optimizer,
}
"""Kind of kernel: what allocates its operands and returns its launch."""
