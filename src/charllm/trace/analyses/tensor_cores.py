"""How much of the time do tensor cores work? Told by the names of kernels, so an upper bound of their activity.

Ignores: how full a kernel keeps the tensor cores; counters of the device would tell.
"""

import numpy as np

from charllm.trace.analyses.kernels import in_steps
from charllm.trace.classes import Classes
from charllm.trace.run import TracedRank


def tensor_core_seconds(rank: TracedRank, classes: Classes) -> float | None:
    """Return the seconds of a mean step in kernels that use tensor cores; None where there is no GPU."""
    if not rank.trace.has_device_events:
        return None
    here = in_steps(rank)
    uses = np.array([bool(classes.tensor_core.search(name)) for name in rank.trace.names] or [False])
    marked = uses[rank.trace.events.name[here.row]]
    return float(here.seconds[marked].sum()) / max(1, len(rank.windows))
