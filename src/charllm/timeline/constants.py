"""Constants of a step's timeline that belong to no GPU, framework or link."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimelineConstants:
    """What happens where work meets: compute beside communication, and many GPUs that wait for each other."""

    contention_fraction: float = 0.28
    """Time that compute takes longer for each second of communication beside it. Measured: emulated ranks on an H200, a
    transfer on 24 blocks: 0.28 beside GEMMs of milliseconds, 0.7 beside ones of 0.2 ms."""
    overlap_chunks: float = 4.0
    """Pieces into which a tensor- or expert-parallel exchange is cut to hide under compute; the first stays exposed.
    Published: Transformer Engine's user buffers split a GEMM into 4 by default."""
    straggler_fraction: float = 0.011
    """Standard deviation of a GPU's pace. Derived: three H200 boards differ by 3 % in the energy of equal work, and
    0.37 of that reaches the step time under the power cap."""
    exposed_factor: float = 1.2
    """Time of a collective within a step over that of a benchmark that repeats it: members arrive unevenly. Assumed."""
    uneven_host_fraction: float = 0.219
    """Wait of a sparse layer's exchanges for the slowest of the expert ranks' hosts, over the host's time to launch the
    layer: ranks meet in every layer, and hosts that wait for counts cannot run ahead. Fitted."""


TIMELINE = TimelineConstants()
