"""The kernels themselves, in PyTorch: each maker takes operands once and returns a function that launches once.

Streams larger than an operand may be are several launches over as much memory (operands.py).
Ignores: formats of blocks (mxfp8 and nvfp4 run as fp8 with one scale a tensor); convolution and scan of Mamba-2, for
which PyTorch has no kernels (strided copies of as many bytes).
"""

import warnings
from collections.abc import Callable
from functools import partial
from math import ceil, prod
from typing import Any

import torch
from torch.nn import functional

from charllm.gpu.shape import KernelShape
from charllm.measure.device import fp8_type
from charllm.measure.kernels.attention import Launch, attend, attend_backward, attend_cache, backward_of
from charllm.measure.kernels.operands import DTYPES, Operands

Maker = Callable[[KernelShape, Operands], Launch]

NARROW = ("fp8", "mxfp8", "nvfp4")
ALIGNED, NARROW_ALIGNED = 8, 16
"""Elements of 16 bits, and of 8, in the 16 bytes that rows of grouped and of 8-bit products must be multiples of."""
USUAL_WIDTH, HEADS, HEAD_DIM = 4096, 32, 128
"""Rows of streams that have none, and how views of heads are cut from them."""
TABLE_ROWS = 32_768
FEW_EXPERTS = 64
OPTIMIZER_TENSORS = 4
"""Weights, gradients and two moments, which an optimizer allocates for itself."""


def make_kernel(shape: KernelShape, device: str, operands: Operands | None = None) -> Launch:
    """Take the operands of a kernel, its own unless they are shared, and return a function that launches it once."""
    return KERNELS[shape.kind](shape, operands or Operands(device))


# ------------------------------------------------------------------------------------------------------------ products


def _gemm(shape: KernelShape, operands: Operands) -> Launch:
    batch, m, n, k = shape.dims
    if shape.precision in NARROW:
        return _narrow_gemm(shape, operands)
    if shape.variant == "accumulated":
        # A weight's gradient: both operands have the summed dimension, tokens, first.
        left, right = operands.read(shape, batch, k, m), operands.read(shape, batch, k, n)
        return _accumulated(left.transpose(1, 2), right, operands)
    left, right = operands.read(shape, batch, m, k), operands.read(shape, batch, n, k, weight=True)
    out = operands.write(left.dtype, batch, m, n)
    if batch > 1:
        return partial(torch.bmm, left, right.transpose(1, 2), out=out)
    return partial(torch.mm, left[0], right[0].t(), out=out[0])


def _accumulated(left: torch.Tensor, right: torch.Tensor, operands: Operands) -> Launch:
    """Add products to what is there in fp32, in place where torch can: on a GPU since 2.8, in one kernel."""
    total = operands.write(torch.float32, left.shape[0], left.shape[1], right.shape[2])
    if operands.device == "cpu" or left.dtype == torch.float32:
        return lambda: total.add_(torch.bmm(left, right))
    aten = torch.ops.aten
    if left.shape[0] > 1:
        in_place: Launch = partial(aten.baddbmm.dtype_out, total, left, right, torch.float32, out=total)
    else:
        # The very same tensor twice: of another view of it torch would make a copy first.
        only = total[0]
        in_place = partial(aten.addmm.dtype_out, only, left[0], right[0], torch.float32, out=only)
    return _first_working(in_place, lambda: total.add_(torch.bmm(left, right)))


def _narrow_gemm(shape: KernelShape, operands: Operands) -> Launch:
    """8-bit products with one scale a tensor, an expert after the other; sizes are padded as the library asks."""
    batch, m, n, k = (shape.dims[0], *(_padded(size, NARROW_ALIGNED) for size in shape.dims[1:]))
    left = operands.read(shape, batch, m, k).to(fp8_type())
    right = operands.read(shape, batch, n, k, weight=True).to(fp8_type())
    one = torch.ones((), dtype=torch.float32, device=operands.device)
    products = [
        partial(torch._scaled_mm, left[place], right[place].t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        for place in range(batch)
    ]
    return products[0] if batch == 1 else lambda: [product() for product in products]


def _grouped_gemm(shape: KernelShape, operands: Operands) -> Launch:
    """Experts of equal load in one launch; a batched product where torch has no grouped one for the device.

    Rows of each expert, and widths, are padded to multiples of 16 bytes, which grouped products ask for.
    """
    if _ungrouped(shape, operands) or shape.variant == "accumulated":
        return _gemm(shape, operands)
    experts, m, n, k = (shape.dims[0], *(_padded(size) for size in shape.dims[1:]))
    tokens = operands.read(shape, experts * m, k)
    weights = operands.read(shape, experts, n, k, weight=True).transpose(1, 2)
    return partial(torch._grouped_mm, tokens, weights, offs=_ends(experts, m, operands))


def _grouped_wgrad(shape: KernelShape, operands: Operands) -> Launch:
    """Gradients of experts' weights: [m, rows] x [rows, n] for each expert's own rows, which lie one after the other.

    Added in place they are one batched product: torch's grouped one writes 16 bits only.
    """
    experts, m, n, k = (shape.dims[0], *(_padded(size) for size in shape.dims[1:]))
    if shape.precision in NARROW:
        return _narrow_gemm(shape, operands)
    gradients, tokens = operands.read(shape, experts * k, m), operands.read(shape, experts * k, n)
    if _ungrouped(shape, operands) or shape.variant == "accumulated":
        left, right = gradients.view(experts, k, m).transpose(1, 2), tokens.view(experts, k, n)
        if shape.variant == "accumulated":
            return _accumulated(left, right, operands)
        return partial(torch.bmm, left, right, out=operands.write(left.dtype, experts, m, n))
    return partial(torch._grouped_mm, gradients.t(), tokens, offs=_ends(experts, k, operands))


def _ungrouped(shape: KernelShape, operands: Operands) -> bool:
    return operands.device == "cpu" or not hasattr(torch, "_grouped_mm") or shape.precision != "bf16"


def _ends(experts: int, rows: int, operands: Operands) -> torch.Tensor:
    return torch.arange(1, experts + 1, dtype=torch.int32, device=operands.device) * rows


def _padded(size: int, multiple: int = ALIGNED) -> int:
    return ceil(size / multiple) * multiple


def _first_working(*launches: Launch) -> Launch:
    """Return the first launch that this torch and GPU can do."""
    for launch in launches[:-1]:
        try:
            launch()
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError) as error:
            warnings.warn(f"a slower kernel is launched instead: {str(error).splitlines()[0]}", stacklevel=2)
            continue
        return launch
    return launches[-1]


# ------------------------------------------------------------------------------------------------------------- streams


def _in_pieces(kind: Callable[[KernelShape, Operands, int, int], Launch], value_bytes: int = 2) -> Maker:
    """Make a kernel on rows of a width; more rows than an operand may have are several equal launches.

    One dimension is cut into rows of the usual width, rounded up.
    """

    def make(shape: KernelShape, operands: Operands) -> Launch:
        width = shape.dims[1] if len(shape.dims) == 2 else min(USUAL_WIDTH, shape.dims[0])
        rows = ceil(prod(shape.dims) / width)
        pieces = max(1, ceil(rows * width * value_bytes / operands.largest_bytes))
        launch = kind(shape, operands, ceil(rows / pieces), width)
        return launch if pieces == 1 else lambda: [launch() for _ in range(pieces)][-1]

    return make


def _unary(call: Callable[[torch.Tensor], Any]) -> Maker:
    """Make a kernel that reads one tensor."""

    def make(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
        return partial(call, operands.read(shape, rows, width))

    return _in_pieces(make)


def _binary(call: Callable[[torch.Tensor, torch.Tensor], Any]) -> Maker:
    """Make a kernel that reads two tensors."""

    def make(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
        return partial(call, operands.read(shape, rows, width), operands.read(shape, rows, width))

    return _in_pieces(make)


def _ones(shape: KernelShape, operands: Operands, width: int) -> torch.Tensor:
    return torch.ones(width, dtype=DTYPES[shape.precision], device=operands.device)


def _norm(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    x, scale = operands.read(shape, rows, width), _ones(shape, operands, width)
    return partial(functional.layer_norm, x, (width,), scale, scale.clone())


def _rmsnorm(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    x, scale = operands.read(shape, rows, width), _ones(shape, operands, width)
    return partial(functional.rms_norm, x, (width,), scale)


def _norm_backward(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    x, scale = operands.read(shape, rows, width), _ones(shape, operands, width)
    shift, gradient = scale.clone(), operands.read(shape, rows, width)
    _out, mean, inverse = torch.native_layer_norm(x, (width,), scale, shift, 1e-5)
    return partial(torch.ops.aten.native_layer_norm_backward, gradient, x, [width], mean, inverse, scale, shift,
                   [True, True, True])  # fmt: skip


def _rmsnorm_backward(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    x = operands.read(shape, rows, width).detach().requires_grad_()
    scale = _ones(shape, operands, width).requires_grad_()
    return backward_of(functional.rms_norm(x, (width,), scale), [x, scale])


def _copy(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    x = operands.read(shape, rows, width)
    return partial(operands.write(x.dtype, rows, width).copy_, x)


def _add(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    x, y = operands.read(shape, rows, width), operands.read(shape, rows, width)
    return partial(torch.add, x, y, out=operands.write(x.dtype, rows, width))


def _heads(shape: KernelShape, operands: Operands, rows: int, width: int) -> torch.Tensor:
    """Return as many values as [tokens, heads, width of a head] with heads brought first, as a view."""
    dim = min(HEAD_DIM, width)
    heads = max(1, min(HEADS, width // dim))
    return operands.read(shape, ceil(rows * width / (heads * dim)), heads, dim).transpose(0, 1)


def _strided(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    x = _heads(shape, operands, rows, width)
    return partial(operands.write(x.dtype, *x.shape).copy_, x)


def _strided_add(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    x = _heads(shape, operands, rows, width)
    return partial(torch.add, x, operands.read(shape, *x.shape), out=operands.write(x.dtype, *x.shape))


def _cat(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    """Join halves of heads."""
    half = max(1, min(HEAD_DIM, width) // 2)
    count = ceil(rows * width / (2 * half))
    x, y = operands.read(shape, count, half), operands.read(shape, count, half)
    return partial(torch.cat, (x, y), -1)


def _strided_cat(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    """Swap halves of heads, as rotary embeddings do."""
    x = _heads(shape, operands, rows, width)
    half = max(1, x.shape[-1] // 2)
    return partial(torch.cat, (x[..., half:], x[..., :half]), -1)


def _to_fp32(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    x = operands.read(shape, rows, width)
    return partial(operands.write(torch.float32, rows, width).copy_, x)


def _to_16bit(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    x = operands.read(shape, rows, width, dtype=torch.float32)
    return partial(operands.write(torch.bfloat16, rows, width).copy_, x)


def _accumulate(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    return partial(operands.write(torch.float32, rows, width).add_, operands.read(shape, rows, width))


def _outer_product(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    """Multiply a 16-bit row by an fp32 column, as a bias by each token's probability."""
    column = torch.rand(rows, 1, device=operands.device)
    return partial(torch.mul, _ones(shape, operands, width), column, out=operands.write(torch.float32, rows, width))


def _scaled_rows(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    x, column = operands.read(shape, rows, width, dtype=torch.float32), torch.rand(rows, 1, device=operands.device)
    return partial(torch.mul, x, column, out=operands.write(torch.float32, rows, width))


def _fill(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    return partial(operands.write(DTYPES[shape.precision], rows, width).zero_)


def _gelu_backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.gelu_backward(gradient, x, approximate="tanh")


def _permute(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    x = operands.read(shape, rows, width)
    order = torch.randperm(rows, device=operands.device)
    return partial(torch.index_select, x, 0, order, out=operands.write(x.dtype, rows, width))


def _index_add(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    """Add rows to those of a quarter as many tokens: each is added to by some experts."""
    x, tokens = operands.read(shape, rows, width), max(1, rows // 4)
    owners = torch.randint(0, tokens, (rows,), device=operands.device)
    return partial(operands.write(x.dtype, tokens, width).index_add_, 0, owners, x)


def _embedding(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    table = operands.read(shape, min(TABLE_ROWS, max(rows, 1)), width, weight=True)
    indices = torch.randint(0, table.shape[0], (rows,), device=operands.device)
    return partial(functional.embedding, indices, table)


def _embedding_backward(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    """Sort and add gradients into a table of as many rows as tokens; clearing a larger one is a kernel of its own."""
    gradient = operands.read(shape, rows, width)
    indices = torch.randint(0, rows, (rows,), device=operands.device)
    return partial(torch.ops.aten.embedding_dense_backward, gradient, indices, rows, -1, False)


def _loss(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    logits, targets = operands.read(shape, rows, width), torch.randint(0, width, (rows,), device=operands.device)
    return lambda: functional.cross_entropy(logits.float(), targets)


def _loss_backward(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    logits = operands.read(shape, rows, width).detach().requires_grad_()
    targets = torch.randint(0, width, (rows,), device=operands.device)
    return backward_of(functional.cross_entropy(logits.float(), targets), [logits])


def _optimizer(dtype: torch.dtype) -> Maker:
    """AdamW in one kernel, on weights, gradients and moments of one format that are this kernel's own."""

    def make(_shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
        weight = torch.nn.Parameter(torch.randn(rows, width, dtype=dtype, device=operands.device))
        weight.grad = torch.randn_like(weight)
        launch: Launch = torch.optim.AdamW([weight], lr=1e-6, fused=operands.device != "cpu").step
        return launch

    return _in_pieces(make, OPTIMIZER_TENSORS * dtype.itemsize)


def _topk(shape: KernelShape, operands: Operands, rows: int, width: int) -> Launch:
    """Choose 8 of many experts, 2 of few, by scores in fp32."""
    scores = operands.read(shape, rows, width, dtype=torch.float32)
    return partial(torch.topk, scores, min(width, 2 if width < FEW_EXPERTS else 8), -1)


KERNELS: dict[str, Maker] = {
    "gemm": _gemm,
    "grouped_gemm": _grouped_gemm,
    "grouped_wgrad": _grouped_wgrad,
    "attention": attend,
    "attention_backward": attend_backward,
    "cached_attention": attend_cache,
    "copy": _in_pieces(_copy),
    "add": _in_pieces(_add),
    "gelu": _unary(partial(functional.gelu, approximate="tanh")),
    "gelu_backward": _binary(_gelu_backward),
    "silu": _unary(functional.silu),
    "silu_backward": _binary(lambda gradient, x: torch.ops.aten.silu_backward(gradient, x)),
    "strided": _in_pieces(_strided),
    "strided_add": _in_pieces(_strided_add),
    "cat": _in_pieces(_cat),
    "strided_cat": _in_pieces(_strided_cat),
    "to_fp32": _in_pieces(_to_fp32, 4),
    "to_16bit": _in_pieces(_to_16bit, 4),
    "accumulate": _in_pieces(_accumulate, 4),
    "fill": _in_pieces(_fill),
    "column_sum": _unary(lambda x: x.sum(0)),
    "norm_of_tensor": _unary(lambda x: torch._foreach_norm([x])[0]),
    "outer_product": _in_pieces(_outer_product, 4),
    "scaled_rows": _in_pieces(_scaled_rows, 4),
    "scale": _unary(lambda x: torch._foreach_mul([x], 0.5)),
    "rmsnorm": _in_pieces(_rmsnorm),
    "rmsnorm_backward": _in_pieces(_rmsnorm_backward),
    "norm": _in_pieces(_norm),
    "norm_backward": _in_pieces(_norm_backward),
    "softmax": _unary(lambda x: torch.softmax(x, -1)),
    "swiglu": _binary(lambda gate, up: functional.silu(gate).mul_(up)),
    "dropout": _unary(lambda x: torch.native_dropout(x, 0.1, True)),
    "dropout_add": _binary(lambda x, residual: functional.dropout(x, 0.1, training=True).add_(residual)),
    "cast": _unary(lambda x: x.to(fp8_type())),
    "permute": _in_pieces(_permute),
    "topk": _in_pieces(_topk, 4),
    "index_add": _in_pieces(_index_add),
    "embedding": _in_pieces(_embedding),
    "embedding_backward": _in_pieces(_embedding_backward),
    "loss": _in_pieces(_loss, 4),
    "loss_backward": _in_pieces(_loss_backward, 4),
    "optimizer": _optimizer(torch.float32),
    "optimizer_16bit": _optimizer(torch.bfloat16),
    **dict.fromkeys(("convolution", "convolution_backward", "scan", "scan_backward"), _in_pieces(_strided)),
    "tiny": _in_pieces(_add),
}
"""Kind of kernel: what takes its operands and returns its launch."""
