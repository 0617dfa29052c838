"""Kernels as an op launches them, and the few ways in which lists of them are made."""

from collections.abc import Iterable
from typing import NamedTuple

from charllm.gpu.memory_bound import STREAMS
from charllm.gpu.shape import KernelShape
from charllm.workload.op import Op

SMALL_S = 11.6e-6
"""Measured: host time of an op on a small tensor without a module around it: add 11 us, cast 13, sort 8 a kernel
(evaluate/h200/readings/host_ops.csv)."""
LOOPED_S = 5.5e-6
"""Published: Transformer Engine's grouped linear layer launches a GEMM for each expert from C++, at 5 to 6 us each."""
ELEMENT_BYTES = 2.0


class Launched(NamedTuple):
    """Equal kernels that an op launches one after the other."""

    shape: KernelShape
    times: int = 1
    calls: float = 1.0
    """Launches of the host for each kernel, with the framework's modules around them: more where a library prepares or
    splits it."""
    looped: float = 0.0
    """Launches from a loop inside the library, for each kernel."""
    small: float = 0.0
    """Launches of ops without a module around them, for each kernel."""
    events: float = 1.0
    """What a profiler shows on the device for each kernel: with memory clears and second kernels of a library."""

    def host_s(self, launch_s: float) -> float:
        """Return the host's time for one of these kernels, with what a launch takes in the framework."""
        return self.calls * launch_s + self.looped * LOOPED_S + self.small * SMALL_S


def moving(size_bytes: float, kind: str = "copy") -> Launched:
    """Return a kernel of a kind that moves so many bytes."""
    return Launched(KernelShape(kind, (max(1, round(size_bytes / STREAMS[kind].element_bytes)),)))


def chain(elements: float, parts: Iterable[tuple[str, float]]) -> tuple[Launched, ...]:
    """Return kernels of kinds on some share of the elements each."""
    return tuple(Launched(KernelShape(kind, (max(1, round(share * elements)),))) for kind, share in parts)


def sized(kind: str, size: tuple[int, ...], times: int = 1) -> Launched:
    """Return kernels of a size."""
    return Launched(KernelShape(kind, size), times)


def tiny(times: int) -> Launched:
    """Return kernels on a few numbers each."""
    return Launched(KernelShape("tiny", (1024,)), times, calls=0.0, small=1.0)


def rows_of(kind: str, op: Op) -> Launched:
    """Return one kernel over the rows of an op."""
    rows, width = (max(1, size) for size in op.shape)
    return Launched(KernelShape(kind, (rows, width)))
