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
    arrival_s: float = 40e-6
    """Standard deviation of when a rank reaches a collective inside a pass: gaps between launches, jitter of hosts,
    unequal kernels. Assumed: between 27 us (5,700 all-gathers of 8 ranks in LUMI's logs, at the median 30 to 40 us
    longer than the shortest) and 55 us, which published step times would give if it were fitted."""
    uneven_host_fraction: float = 0.172
    """Standard deviation of a host's time to launch a sparse layer, over that time: its ranks meet in every layer, and
    hosts that wait for counts cannot run ahead. Fitted."""


TIMELINE = TimelineConstants()
