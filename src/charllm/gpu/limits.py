"""What holds a clock down, as the readings of a GPU and simulated signals name it."""

CAUSES = ("power", "thermal", "brake")
"""Why a clock is below the one asked for, as metrics spell it."""
LIMITS = {"idle": 1, "power": 2, "thermal": 4, "brake": 8, "other": 16}
"""Bits of `limits`. power: the power cap; thermal: temperature, soft or hard; brake: an outside signal or a hardware
slowdown that is not thermal; other: application clocks, sync boost, board and reliability limits."""
