"""Which kernel, on what: the part of an op that decides what runs."""

from typing import NamedTuple


class KernelShape(NamedTuple):
    """A kernel of a kind (a key of KERNELS) with its dimensions.

    gemm, grouped_gemm: batch, m, n, k. attention, attention_backward: batch, heads, kv_heads, queries, head_dim.
    norm, norm_backward: rows, width. embedding, loss: tokens, vocab or width. Streams: elements.
    """

    kind: str
    dims: tuple[int, ...]
    precision: str = "bf16"
    values: str = "random"
    """random (normal), trained (small weights, activations with outliers) or zeros."""

    @property
    def label(self) -> str:
        """Name it in a table."""
        return f"{self.kind} {'x'.join(map(str, self.dims))} {self.precision}" + (
            "" if self.values == "random" else f" {self.values}"
        )


def work(shape: KernelShape) -> tuple[float, float]:
    """Return the FLOPs and the fewest bytes of one call: each input read once, each output written once."""
    size = {"fp8": 1.0, "fp32": 4.0}.get(shape.precision, 2.0)
    dims = shape.dims
    if shape.kind in ("gemm", "grouped_gemm"):
        batch, m, n, k = dims
        return 2.0 * batch * m * n * k, batch * ((m * k + n * k) * size + m * n * 2.0)
    if shape.kind.startswith("attention"):
        batch, heads, kv_heads, seq, head_dim = dims
        forward = 2.0 * batch * heads * seq * seq * head_dim
        tokens = batch * seq * head_dim * size
        backward = shape.kind == "attention_backward"
        return forward * (2.5 if backward else 1.0), tokens * (2 * heads + 2 * kv_heads) * (2.0 if backward else 1.0)
    rows_width = float(dims[0] * (dims[1] if len(dims) > 1 else 1))
    return 0.0, rows_width * BYTES_PER_ELEMENT[shape.kind]


BYTES_PER_ELEMENT = {
    "norm": 4.0,
    "rmsnorm": 4.0,
    "norm_backward": 6.0,
    "copy": 4.0,
    "add": 6.0,
    "gelu": 4.0,
    "gelu_backward": 6.0,
    "swiglu": 6.0,
    "dropout_add": 7.0,
    "softmax": 4.0,
    "cast": 3.0,
    "permute": 4.0,
    "embedding": 4.0,
    "loss": 10.0,
    "optimizer": 28.0,
}
"""Streaming kernel: bytes read and written for each element, in bf16 (optimizer: fp32 weight, gradient, moments)."""
