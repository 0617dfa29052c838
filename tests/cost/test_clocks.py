import pytest

from charllm.catalog.resolve import resolve_cluster
from charllm.cost.clocks import time_factor
from charllm.spec.run import Conditions

GPU = resolve_cluster("h200x1").gpu


def test_the_delivered_cap_changes_nothing() -> None:
    assert time_factor(GPU, Conditions(), 0.74) == 1.0
    assert time_factor(GPU, Conditions(power_cap_w=GPU.power_cap_w), 0.74) == pytest.approx(1.0)


def test_a_lower_cap_is_never_faster() -> None:
    factors = [time_factor(GPU, Conditions(power_cap_w=cap), 0.74) for cap in (200, 300, 400, 500, 600, 700)]
    assert factors == sorted(factors, reverse=True)
    assert factors[0] > 1.5


def test_a_clock_cap_above_the_clock_in_use_changes_nothing() -> None:
    assert time_factor(GPU, Conditions(clock_cap_hz=1.9e9), 0.74) == 1.0
    assert time_factor(GPU, Conditions(clock_cap_hz=0.99e9), 0.74) == pytest.approx(0.74 / 0.5)
