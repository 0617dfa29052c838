"""Published runs of H100s under power caps: fitted at three of them, the other three predicted."""

import pytest

from charllm.catalog.resolve import resolve_cluster
from charllm.evaluate.caps import CLOCK_MHZ, FITTED, TOKENS_PER_S, clock_hz, fit_activity, relative
from charllm.units import MEGA

PREDICTED = [cap for cap in CLOCK_MHZ if cap not in FITTED]


def test_clocks_under_other_caps_are_within_60_mhz() -> None:
    gpu = resolve_cluster("h100x1").gpu
    activity = fit_activity(gpu, {cap: mhz * MEGA for cap, mhz in CLOCK_MHZ.items()}, over_highest=False)
    for cap in PREDICTED:
        assert clock_hz(gpu, cap, activity) / MEGA == pytest.approx(CLOCK_MHZ[cap], abs=60), cap


def test_relative_tokens_a_second_under_other_caps_are_within_3_points() -> None:
    gpu = resolve_cluster("h100x1").gpu
    activity = fit_activity(gpu, {cap: relative(cap) for cap in TOKENS_PER_S}, over_highest=True)
    for cap in PREDICTED:
        said = clock_hz(gpu, cap, activity) / clock_hz(gpu, 700, activity)
        assert said == pytest.approx(relative(cap), abs=0.03), cap
