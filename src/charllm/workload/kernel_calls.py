"""Kernels as an op launches them, and the few ways in which lists of them are made."""

from collections.abc import Iterable
from typing import NamedTuple

from charllm.gpu.memory_bound import STREAMS
from charllm.gpu.shape import KernelShape

SMALL_CALLS = 0.4
"""Measured: host time of an op on a small tensor without a module around it (add 11 us, cast 13, sort 8 a kernel) over
the 29 us that a kernel of a whole step takes (evaluate/h200/readings/host_ops.csv, host_steps.csv)."""
ELEMENT_BYTES = 2.0


class Launched(NamedTuple):
    """Equal kernels that an op launches one after the other."""

    shape: KernelShape
    times: int = 1
    calls: float = 1.0
    """Launches of the host for each kernel: more where a library prepares or splits it."""
    looped: float = 0.0
    """Launches from a loop inside the library, for each kernel."""


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
    return Launched(KernelShape("tiny", (1024,)), times, SMALL_CALLS)
