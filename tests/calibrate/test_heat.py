"""Poles come back from a trace the network made, and recordings that cannot tell them are refused."""

from dataclasses import replace

import numpy as np
import pytest

from charllm.calibrate.heat import check_trace, fit_heat
from charllm.errors import SpecError
from charllm.evaluate.heat import predict
from charllm.evaluate.heat_trace import Trace
from charllm.evaluate.ops import bench_machine
from charllm.gpu.heat import network


def trace_of(power_w: np.ndarray, step_s: float = 0.1) -> Trace:
    """A GPU with more resistance than the catalog's, to a tenth of a degree."""
    cluster = bench_machine("h200")
    heat = replace(cluster.gpu.heat, die_resistance_k_per_w=0.036, base_time_s=2.6)
    gpu = replace(cluster.gpu, heat=heat)
    times = np.linspace(0.0, step_s * (len(power_w) - 1), len(power_w))
    start = Trace(times, power_w[:, None], np.full((len(times), 1), 40.0), None, (0,), None, 0.0)
    shown = predict(start, network(replace(cluster.node, gpu=gpu), cluster.cooling), gpu)[0]
    return replace(start, temperature_c=np.round(shown, 1))


def steps(seconds: int = 90) -> np.ndarray:
    power = np.full(seconds * 10, 120.0)
    for begin in range(50, len(power), 160):
        power[begin : begin + 60] = 690.0
    return power


def test_poles_are_recovered_from_load_and_rest() -> None:
    found = {each.name: each for each in fit_heat([trace_of(steps())], bench_machine("h200")).fit.found}
    assert found["heat.die_resistance_k_per_w"].value == pytest.approx(0.036, rel=0.05)
    assert found["heat.base_time_s"].value == pytest.approx(2.6, rel=0.2)
    assert found["heat.die_resistance_k_per_w"].identified


@pytest.mark.parametrize(
    ("power", "field"),
    [
        (steps(12), "heat.sink_time_s"),
        (np.full(900, 300.0), "heat.die_resistance_k_per_w"),
        (np.where(np.arange(900) == 400, 225.0, 120.0), "heat.base_resistance_k_per_w"),
    ],
    ids=["too short", "power that never changes", "too cold"],
)
def test_what_cannot_tell_is_refused_with_how_long_is_needed(power: np.ndarray, field: str) -> None:
    with pytest.raises(SpecError, match=r"30 s") as raised:
        check_trace(trace_of(power), bench_machine("h200"))
    assert raised.value.field == field
    assert "charllm bench ops" in raised.value.possible


def test_another_number_of_gpus_is_refused() -> None:
    trace = trace_of(steps())
    with pytest.raises(SpecError, match="RUN"):
        check_trace(replace(trace, gpus=(0, 1)), bench_machine("h200"))
