"""Does the host keep up? How far launches run ahead of the device, and how much of a step waits for them."""

from typing import NamedTuple

import numpy as np

from charllm.trace.analyses.kernels import in_steps
from charllm.trace.events import NONE
from charllm.trace.run import TracedRank


class Launches(NamedTuple):
    """Launches of a mean step of one rank; None where the trace does not join launches to kernels."""

    kernels: float
    """Events on the device."""
    kernel_median_s: float | None
    """Median length of an event."""
    queue_median_s: float | None
    """Median time from the end of a launch call to the start of what it launched."""
    call_median_s: float | None
    """Median length of a launch call on the host."""


def count_launches(rank: TracedRank) -> Launches:
    """Return how launches and kernels of a rank go together."""
    here = in_steps(rank)
    joined = here.take(here.call != NONE)
    events = rank.trace.events
    queued_s = joined.start_s - events.end_s[joined.call]
    return Launches(
        len(here.row) / max(1, len(rank.windows)),
        _median(here.seconds),
        _median(np.maximum(queued_s, 0.0)),
        _median(events.duration_s[joined.call]),
    )


def _median(values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float | None:
    return float(np.median(values)) if len(values) else None
