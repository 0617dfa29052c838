"""Kernels that stand for communication: a spin of a given length, and a copy that uses only some multiprocessors.

A collective occupies a few blocks (NCCL: up to 32) that move data or poll for a peer. A spin of that many blocks draws
what waiting draws, a copy of that many blocks what moving draws. Both are compiled by the driver's run-time compiler
through torch, so that no toolkit is needed; only how they read the time differs between CUDA and HIP.
"""

from collections.abc import Callable
from functools import lru_cache
from math import ceil
from typing import Any

import torch

from charllm.errors import CharllmError
from charllm.measure.device import platform
from charllm.units import GIGA

THREADS = 512

NOW_NS = {
    "cuda": '#define NOW_NS(now) asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now))\n',
    "hip": "#define NOW_NS(now) now = 10ull * wall_clock64()\n",
}
"""Nanoseconds by platform: MI200 and MI300 have a wall clock of 100 MHz (hipDeviceAttributeWallClockRate)."""

SPIN = r"""
extern "C" __global__ void spin(long long length_ns) {
    unsigned long long start, now;
    NOW_NS(start);
    do {
        NOW_NS(now);
    } while ((long long)(now - start) < length_ns);
}
"""

COPY = r"""
extern "C" __global__ void limited_copy(const float4* source, float4* target, long long vectors, long long length_ns,
                                        long long most) {
    unsigned long long start, now;
    NOW_NS(start);
    long long stride = (long long)gridDim.x * blockDim.x;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    double moved = 0.0, elapsed = 0.0;
    do {
        // What is to be moved is spread evenly over the time; between pieces the kernel polls.
        if (moved * (double)length_ns <= (double)most * elapsed) {
            // Some microseconds between two looks at the clock; the buffer as a whole does not fit in cache.
            for (int turn = 0; turn < 16; turn++) {
                target[i] = source[i];
                i += stride;
                if (i >= vectors) i -= vectors;
            }
            moved += 16.0;
        }
        NOW_NS(now);
        elapsed = (double)(now - start);
    } while ((long long)(now - start) < length_ns);
}
"""
UNLIMITED = 2**31 - 1
LONGEST_S = 1.0
"""Lengths reach a kernel in 32 bits of nanoseconds: longer ones are several launches."""


def make_spin(blocks: int, length_s: float) -> Callable[[], Any]:
    """Return a launch of a kernel that polls on some blocks for a time."""
    kernel = _compile(SPIN, "spin")
    launches, length_ns = _pieces(length_s)
    return lambda: [kernel(grid=(blocks, 1, 1), block=(THREADS, 1, 1), args=[length_ns]) for _ in range(launches)]


def make_limited_copy(
    blocks: int, size_bytes: int, length_s: float, moved_bytes: float | None = None
) -> Callable[[], Any]:
    """Return a launch of a kernel that copies on some blocks until a time is up: so many bytes, or all it can."""
    kernel = _compile(COPY, "limited_copy")
    vectors = max(1, size_bytes // 16)
    source, target = _copied(vectors)
    launches, length_ns = _pieces(length_s)
    each_thread = UNLIMITED if moved_bytes is None else round(moved_bytes / launches / 16 / (blocks * THREADS))
    return lambda: [
        kernel(grid=(blocks, 1, 1), block=(THREADS, 1, 1), args=[source, target, vectors, length_ns, each_thread])
        for _ in range(launches)
    ]


@lru_cache(maxsize=2)
def _copied(vectors: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what is copied, and to where: all copies of a size share them."""
    source = torch.randn(vectors * 4, device="cuda")
    return source, torch.empty_like(source)


def _pieces(length_s: float) -> tuple[int, int]:
    """Cut a length into launches: how many, and the nanoseconds of each."""
    launches = max(1, ceil(length_s / LONGEST_S))
    return launches, int(length_s / launches * GIGA)


_compiled: dict[str, Any] = {}


def _compile(source: str, name: str) -> Any:
    compiler = getattr(torch.cuda, "_compile_kernel", None)
    if compiler is None:
        raise CharllmError("emulating communication needs a torch that can compile kernels (2.9 or newer)")
    if name not in _compiled:
        _compiled[name] = compiler(NOW_NS["hip" if platform() == "hip" else "cuda"] + source, name)
    return _compiled[name]
