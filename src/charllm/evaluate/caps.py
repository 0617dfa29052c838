"""Published H100 runs under power caps, and what the model says.

Clocks: inference of a ViT-L/16 on an H100 with 94 GB (arXiv:2604.11391, figures 6b and 9b). Tokens a second:
pretraining of Llama 3 8B on four of them (arXiv:2603.16164, table 4), over those at 700 W, taken to
follow the clock. Each workload has one activity, joules a cycle at the reference voltage, fitted at 300, 500 and 700 W;
the others are predicted. The voltage curve is the catalog's.
"""

from collections.abc import Mapping

import numpy as np

from charllm.catalog.resolve import resolve_cluster
from charllm.evaluate.points import Point
from charllm.gpu.physics import Energy, board_of, operating_point, working_w
from charllm.spec.hardware import Gpu
from charllm.spec.run import Conditions
from charllm.units import GIGA, MEGA

CLOCK_MHZ = {200: 625, 300: 1132, 400: 1501, 500: 1731, 600: 1889, 700: 1969}
TOKENS_PER_S = {200: 9699.3, 300: 17982.3, 400: 24853.4, 500: 27705.3, 600: 29250.0, 700: 30271.0}
FITTED = (300, 500, 700)
HIGHEST_W = 700
SAID = tuple(cap for cap in CLOCK_MHZ if cap not in FITTED or cap == HIGHEST_W)
BOARD_C = 50.0
"""Temperature of the boards. Assumed; 10 K move the clock by 1 %."""
SPLIT = "one activity fitted at 300, 500, 700 W"


def clock_hz(gpu: Gpu, cap_w: float, activity_j: float) -> float:
    """Return the highest clock at which a workload stays at or below what the governor holds."""
    board = board_of(gpu, Conditions(power_cap_w=cap_w))
    low, high = board.clock_min_hz, board.asked_clock_hz
    if power_w(gpu, high, activity_j) <= board.hold_w:
        return high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if power_w(gpu, middle, activity_j) <= board.hold_w else (low, middle)
    return low


def power_w(gpu: Gpu, hz: float, activity_j: float) -> float:
    """Return board power of a workload that takes some joules a cycle."""
    board = board_of(gpu)
    return float(working_w(board, operating_point(board, hz, hz), BOARD_C, Energy(core_j=activity_j), 1 / hz))


def fit_activity(gpu: Gpu, read: Mapping[int, float], over_highest: bool) -> float:
    """Return the activity that fits clocks at some caps best, or clocks over the one at 700 W."""
    tried = np.geomspace(100.0, 400.0, 600) / GIGA

    def off(activity_j: float) -> float:
        said = {cap: clock_hz(gpu, cap, activity_j) for cap in FITTED}
        scale = said[700] if over_highest else 1.0
        return sum((said[cap] / scale - read[cap]) ** 2 for cap in FITTED)

    return float(min(tried, key=off))


def relative(cap: int) -> float:
    """Return published tokens a second over those at 700 W."""
    return TOKENS_PER_S[cap] / TOKENS_PER_S[700]


def cap_readings() -> list[tuple[str, int, str, float, float]]:
    """Return source, cap, quantity, prediction and reading at the caps that no activity was fitted at, and at 700 W.

    Times are of a token over that at 700 W.
    """
    gpu = resolve_cluster("h100x1").gpu
    activity = fit_activity(gpu, {cap: mhz * MEGA for cap, mhz in CLOCK_MHZ.items()}, over_highest=False)
    training = fit_activity(gpu, {cap: relative(cap) for cap in TOKENS_PER_S}, over_highest=True)
    highest = clock_hz(gpu, HIGHEST_W, training)
    clocks = [("arXiv:2604.11391", cap, "clock", clock_hz(gpu, cap, activity), CLOCK_MHZ[cap] * MEGA) for cap in SAID]
    times = [("arXiv:2603.16164", cap, "step time", highest / clock_hz(gpu, cap, training), 1 / relative(cap))
             for cap in SAID]  # fmt: skip
    return clocks + times


def cap_points() -> list[Point]:
    """Score the caps that no activity was fitted at."""
    return [
        Point("power caps", SPLIT, quantity, f"{cap} W", said, read)
        for _source, cap, quantity, said, read in cap_readings()
        if cap not in FITTED
    ]
