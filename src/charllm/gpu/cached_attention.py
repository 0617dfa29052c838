"""Attention of one new token of each sequence over its key-value cache.

Equation: t = floor + turns x cycles / clock + max(bytes / bandwidth, FLOP / rate), with turns = max(1, sequences x key
heads / multiprocessors).
Source: AIConfigurator's tables of attention in the generation phase: fitted on vLLM 0.24 on an H200 (51 points, 7 %
median, 13 % at the 90th percentile). Held out, the same fit gives 8.4 us and 3.23 us a turn on H100, 7.8 and 1.2 on
B200, 17 and 2.9 on A100.
Ignores: few long sequences that too few blocks share; page sizes of the cache.
"""

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.formats import matrix_rate
from charllm.spec.hardware import Gpu

FLOOR_S, TURN_CYCLES, BANDWIDTH_FRACTION = 9.2e-6, 6200.0, 0.975
"""Derived: seconds of an empty cache, cycles of one key head of a sequence on a multiprocessor (3.15 us at 1980 MHz),
share of a copy's rate."""


def time_cached(flop: Floats, size_bytes: Floats, blocks: Floats, gpu: Gpu, clock_hz: Floats) -> tuple[Floats, Floats]:
    """Return the seconds of attention over caches by so many blocks, and the share of them that follows the clock."""
    bandwidth = BANDWIDTH_FRACTION * gpu.kernels.memory_fraction * gpu.memory_bandwidth_bytes_per_s
    turns = np.maximum(1.0, blocks / gpu.multiprocessors)
    rate = gpu.kernels.attention_fraction * gpu.multiprocessors * matrix_rate(gpu) * clock_hz
    moved_s, computed_s, turned_s = size_bytes / bandwidth, flop / rate, turns * TURN_CYCLES / clock_hz
    seconds = FLOOR_S + turned_s + np.maximum(moved_s, computed_s)
    return seconds, (turned_s + np.where(computed_s > moved_s, computed_s, 0.0)) / seconds
