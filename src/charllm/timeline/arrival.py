"""Ranks that work together do not arrive together: how long a typical one waits for the last.

Equation: wait = spread x slowest_of(n), arrivals being normal around a common time. At a collective inside a pass
spread^2 = arrival_s^2 + (uneven_host_fraction x launches)^2, with the seconds that its host launched since it last
waited for its GPU, which is all of a sparse layer's; hosts that run ahead bring no spread of their own. Over a step
the spread is straggler_fraction of it. A GPU that waits polls (simulate/slices.py) and draws what polling draws.
Source: timeline/constants.py; extreme value theory.
Ignores: tails longer than the normal distribution's; that one rank may be late again and again; waits for sends, which
are the schedule's.
"""

import numpy as np

from charllm.layout.grid import Grid
from charllm.spec.run import RunSpec
from charllm.timeline.constants import TimelineConstants


def slowest_of(count: int) -> float:
    """Return how many standard deviations the last of some equal ones is expected to be behind.

    Equation: where the largest of n normal variables lies, sqrt(2 ln n) - (ln ln n + ln 4 pi) / (2 sqrt(2 ln n)); at
    least 0.56, the mean of the larger of two.
    Source: extreme value theory, the location of the Gumbel limit.
    Ignores: that the mean lies 0.58 / sqrt(2 ln n) above it; paces that are correlated.
    """
    if count < 2:
        return 0.0
    root = float(np.sqrt(2 * np.log(count)))
    return max(0.56, root - (float(np.log(np.log(count))) + 2.531) / (2 * root))


CAPTURED_TOKENS = 512
"""Published: tokens of the largest step that vLLM captures in a CUDA graph (max_cudagraph_capture_size)."""


def arrival_wait_s(run: RunSpec, group: str, constants: TimelineConstants, launched_s: float = 0.0) -> float:
    """Return the wait for the last rank of a group, after hosts that cannot run ahead launched for some seconds."""
    tokens = run.training.micro_batch_size * run.training.seq_length
    if run.generation and run.framework.graphs == "full" and tokens <= CAPTURED_TOKENS:
        # Ranks of a captured step meet every few tens of microseconds, and no host comes between.
        return 0.0
    spread_s = float(np.hypot(constants.arrival_s, constants.uneven_host_fraction * launched_s))
    return spread_s * slowest_of(Grid(run.parallelism).degree(group))


def straggling_fraction(run: RunSpec, constants: TimelineConstants) -> float:
    """Return how far the slowest GPU of a run is behind, over the step."""
    return constants.straggler_fraction * slowest_of(run.parallelism.world)
