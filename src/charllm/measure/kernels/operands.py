"""Tensors that kernels read and write: each its own, or regions of a few large ones that all kernels of a rank share.

A rank of a sparse model has hundreds of distinct kernels, whose operands together would not fit in a GPU. From pools
each kernel gets regions of its own as far as they go, so that what one has just touched another rarely finds in cache.
What kernels write is never read as an operand by another: values stay as they were drawn.
"""

from math import ceil, prod

import torch

from charllm.gpu.shape import KernelShape

DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp8": torch.bfloat16,
    "mxfp8": torch.bfloat16,
    "nvfp4": torch.bfloat16,
}
"""Format operands are drawn in; narrow ones are cast from it."""
OUTLIER_FRACTION, OUTLIER_SCALE, WEIGHT_SCALE = 0.001, 20.0, 0.02
"""Trained-like operands: weights as initialised at a width of some thousands, and one activation in a thousand
twenty times larger, as trained transformers show (Dettmers 2022)."""
LARGEST_BYTES = 1 << 30
"""Of one operand of a kernel that streams: larger ones are several launches over as much."""
POOL_BYTES = {"cuda": 4 * LARGEST_BYTES, "cpu": 1 << 22}
OPERANDS = 4
"""Most operands of one kernel: a pool holds as many of the largest without overlap."""
ALIGNED_BYTES = 256


class Operands:
    """Hands out tensors on a device: fresh ones, or with `pool_bytes` regions of shared ones."""

    def __init__(self, device: str, pool_bytes: int = 0) -> None:
        self.device, self._pool_bytes = device, pool_bytes
        self.largest_bytes = pool_bytes // OPERANDS if pool_bytes else LARGEST_BYTES
        self._pools: dict[tuple[object, ...], torch.Tensor] = {}
        self._cursors: dict[tuple[object, ...], int] = {}

    def read(
        self, shape: KernelShape, *size: int, weight: bool = False, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Return values to read, drawn as the shape says."""
        dtype = dtype or DTYPES[shape.precision]
        return self._region(("read", dtype, shape.values, weight and shape.values == "trained"), dtype, size)

    def write(self, dtype: torch.dtype, *size: int) -> torch.Tensor:
        """Return room to write, or to add to: zeros at first."""
        return self._region(("write", dtype, "zeros", False), dtype, size)

    def _region(self, key: tuple[object, ...], dtype: torch.dtype, size: tuple[int, ...]) -> torch.Tensor:
        count, room = prod(size), self._pool_bytes // dtype.itemsize
        values, weight = str(key[2]), bool(key[3])
        if not self._pool_bytes:
            return _drawn(count, dtype, values, self.device, weight=weight).view(size)
        if count * dtype.itemsize > self.largest_bytes:
            # Kernels of a size share these.
            exact = (*key, count, key[0])
            if exact not in self._pools:
                self._pools[exact] = _drawn(count, dtype, values, self.device, weight=weight)
            return self._pools[exact].view(size)
        if key not in self._pools:
            self._pools[key] = _drawn(room, dtype, values, self.device, weight=weight)
            self._cursors[key] = 0
        start = self._cursors[key] if self._cursors[key] + count <= room else 0
        step = ALIGNED_BYTES // dtype.itemsize
        self._cursors[key] = start + ceil(count / step) * step
        return self._pools[key][start : start + count].view(size)


def _drawn(count: int, dtype: torch.dtype, values: str, device: str, *, weight: bool) -> torch.Tensor:
    if values == "zeros":
        return torch.zeros(count, dtype=dtype, device=device)
    drawn = torch.randn(count, dtype=dtype, device=device)
    if values != "trained":
        return drawn
    if weight:
        return drawn * WEIGHT_SCALE
    outliers = torch.rand(count, dtype=torch.float32, device=device) < OUTLIER_FRACTION
    return torch.where(outliers, drawn * OUTLIER_SCALE, drawn)
