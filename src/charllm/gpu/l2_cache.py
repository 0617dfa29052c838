"""What of a kernel's operands the last-level cache keeps, and what a product reads again because it does not.

Equation: the uncached share grows in a line from none to all between two sizes of the working set over the cache's. A
product reads m n k (1 / across + 1 / down) elements where a wave of tiles covers down x across outputs.
Source: ops on five H200 boards (benchmarks/calibrate_h200.py).
Ignores: what kernels before it left in cache (gpu/kernels.py, STEP_UNCACHED_FRACTION).
"""

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.tiles import TILE_OUTPUTS
from charllm.spec.hardware import Gpu

CACHE_LOW_FRACTION, CACHE_HIGH_FRACTION = 0.48, 0.87
"""Derived: share of the last-level cache below which operands stay in it, and above which none of them do."""
STREAM_CACHED_FRACTIONS = (0.85, 1.25)
"""Derived: size over the cache's up to which a stream stays in it, and from which none of it does: 50 MB stay in 60."""


def reread_bytes(gpu: Gpu, batch: Floats, m: Floats, n: Floats, k: Floats, operand_bytes: Floats) -> Floats:
    """Return what products read again because one wave of tiles does not hold all of their operands."""
    outputs = gpu.multiprocessors * TILE_OUTPUTS
    across = np.minimum(n, outputs / np.minimum(m, outputs**0.5))
    down = np.minimum(m, outputs / across)
    operands = (m * k + k * n) * operand_bytes
    again = np.maximum(0.0, m * n * k * (down + across) / (down * across) * operand_bytes - operands)
    return np.asarray(batch * again * uncached_fraction(gpu, operands))


def uncached_fraction(gpu: Gpu, size_bytes: Floats) -> Floats:
    """Return the share of working sets that has to come from memory each time."""
    low, high = CACHE_LOW_FRACTION * gpu.l2_bytes, CACHE_HIGH_FRACTION * gpu.l2_bytes
    if high <= low:
        return np.ones_like(size_bytes)
    return np.clip((size_bytes - low) / (high - low), 0.0, 1.0)


def uncached_stream(size_fraction: Floats) -> Floats:
    """Return the share of a stream called over and over that comes from memory, by its size over the cache's."""
    low, high = STREAM_CACHED_FRACTIONS
    return np.clip((size_fraction - low) / (high - low), 0.0, 1.0)
