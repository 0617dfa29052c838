"""Which kernel, on what: the part of an op that decides what runs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from charllm.errors import SpecError, unknown_name
from charllm.gpu.memory_bound import STREAMS

GROUPED = ("grouped_gemm", "grouped_wgrad")
PRODUCTS = ("gemm", *GROUPED)
TILED = "tiled"
"""Variant of a product of 8-bit blocks that Triton runs tile by tile, each block scaled beside the matrix units."""
UNTUNED = "untuned"
"""Variant of a product of experts whose tiles read weights, too, at its rate."""
ROW_KINDS = ("norm", "rmsnorm", "norm_backward", "rmsnorm_backward", "permute", "index_add", "embedding", "loss")
"""Kernels that work on rows of a width."""
OPERAND_BYTES = {
    "bf16": 2.0, "fp16": 2.0, "fp32": 4.0, "tf32": 4.0, "fp8": 1.0, "mxfp8": 1.0 + 1 / 32, "nvfp4": 0.5 + 1 / 16,
}  # fmt: skip
"""Bytes of a matrix operand, block scales included (one byte for 32 values in mxfp8, for 16 in nvfp4)."""
PRECISIONS = tuple(OPERAND_BYTES)
DIMENSIONS = {
    **dict.fromkeys(PRODUCTS, (4,)),
    "attention": (5,),
    "attention_backward": (5,),
    "attention_both": (5,),
    "cached_attention": (5,),
    **dict.fromkeys(ROW_KINDS, (2,)),
    **{kind: (1, 2) for kind in STREAMS if kind not in ROW_KINDS},
}
"""Kind of kernel: how many dimensions it may have."""


class KernelShape(NamedTuple):
    """A kernel of a kind (a key of DIMENSIONS) with its dimensions.

    gemm, grouped_gemm: batch, m, n, k. attention, attention_backward, attention_both (through autograd): batch, heads,
    kv_heads, queries, head_dim. cached_attention: batch, heads, kv_heads, keys, head_dim, one query for each sequence.
    norm, norm_backward: rows, width. embedding, loss: tokens, vocab or width. Streams: elements.
    """

    kind: str
    dims: tuple[int, ...]
    precision: str = "bf16"
    values: str = "random"
    """random (normal), trained (small weights, activations with outliers), zeros, or unknown."""
    variant: str = "best"
    """Attention: the GPU's best kernel, FlashAttention-2 (flash2), or its first form in Triton (flash1). GEMM:
    wgrad, a weight gradient; accumulated, one added to what is there in fp32; tiled, untuned. Grouped GEMM: uneven,
    rows drawn from a Dirichlet distribution (2) over the groups. Norms and updates: waiting, PyTorch's own, held up by
    latency."""
    rate: float = 1.0
    """GEMM: rate of the library over the GPU's best."""

    @property
    def label(self) -> str:
        """Name it in a table."""
        return f"{self.kind} {'x'.join(map(str, self.dims))} {self.precision}" + (
            "" if self.values == "random" else f" {self.values}"
        )


def check_shape(shape: KernelShape, field: str) -> None:
    """Refuse what is no kernel: an unknown kind or precision, dimensions that are missing or not counts."""
    if shape.kind not in DIMENSIONS:
        raise unknown_name(field, str(shape.kind), DIMENSIONS)
    counts = DIMENSIONS[shape.kind]
    whole = isinstance(shape.dims, tuple) and all(type(size) is int and size > 0 for size in shape.dims)
    if not whole or len(shape.dims) not in counts:
        raise SpecError(
            field, f"{shape.kind} {shape.dims}", f"{' or '.join(map(str, counts))} dimensions of at least 1"
        )
    if shape.precision not in PRECISIONS:
        raise unknown_name(field, str(shape.precision), PRECISIONS)


def read_shape(parts: Sequence[Any], field: str) -> KernelShape:
    """Read a kernel as a file lists it: kind, dimensions, precision and so on."""
    if not 2 <= len(parts) <= len(KernelShape._fields):
        raise SpecError(field, str(parts), "kernels as kind, dimensions, precision")
    shape = KernelShape(*parts)
    check_shape(shape, field)
    return shape


def work(shape: KernelShape) -> tuple[float, float]:
    """Return the FLOPs and the fewest bytes of one call: each input read once, each output written once.

    Attention is causal: half of the products that a full mask, and torch's counter, would have.
    """
    size = OPERAND_BYTES[shape.precision]
    dims = shape.dims
    if shape.kind in PRODUCTS:
        batch, m, n, k = dims
        # A gradient added in place is read and written in fp32.
        output_bytes = 8.0 if shape.variant == "accumulated" else max(size, 2.0)
        return 2.0 * batch * m * n * k, batch * ((m * k + n * k) * size + m * n * output_bytes)
    if shape.kind.startswith("attention"):
        batch, heads, kv_heads, seq, head_dim = dims
        forward = 2.0 * batch * heads * seq * seq * head_dim
        tokens = batch * seq * head_dim * size
        times = {"attention_backward": (2.5, 2.0), "attention_both": (3.5, 3.0)}.get(shape.kind, (1.0, 1.0))
        return forward * times[0], tokens * (2 * heads + 2 * kv_heads) * times[1]
    if shape.kind == "cached_attention":
        batch, heads, kv_heads, keys, head_dim = dims
        return 4.0 * batch * heads * keys * head_dim, batch * keys * head_dim * 2.0 * kv_heads * size
    rows_width = float(dims[0] * (dims[1] if len(dims) > 1 else 1))
    return 0.0, rows_width * STREAMS[shape.kind].element_bytes
