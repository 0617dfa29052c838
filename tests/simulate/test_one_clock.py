"""The one clock at which a run settles."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.simulate.one_clock import solve_step
from charllm.spec.request import merge
from charllm.timeline.step_time import StepTime
from charllm.workload.step import build_step
from tests.simulate.runs import GPT3, REPLICAS, done
from tests.timeline.unlimited import time_at_highest_clock

BUSY: dict[str, Any] = {"model": "llama3-8b", "cluster": "h200x8", "training": {"global_batch_size": 64}}
WAITING: dict[str, Any] = {
    "model": {"name": "tiny", "layers": 4, "hidden": 256, "ffn": 512, "heads": 4, "vocab": 512},
    "cluster": "h200x8",
    "training": {"seq_length": 64, "global_batch_size": 8},
}
"""So small that GPUs wait for their host and draw little."""


def solved(base: dict[str, Any], **conditions: Any) -> StepTime:
    return solve_step(build_step(resolve_run(merge(base, {"conditions": conditions}))))


@pytest.mark.parametrize("base", [BUSY, GPT3, REPLICAS], ids=["one stage", "a pipeline", "replicas"])
def test_a_lower_cap_gives_a_lower_clock_and_a_longer_step(base: dict[str, Any]) -> None:
    found = [solved(base, power_cap_w=cap_w) for cap_w in (700.0, 600.0, 500.0, 400.0, 300.0)]
    clocks, times_s = [one.costs.clock_hz for one in found], [one.step_time_s for one in found]
    assert clocks == sorted(clocks, reverse=True)
    assert times_s == sorted(times_s)
    assert clocks[-1] < 0.7 * clocks[0]
    assert times_s[-1] > 1.2 * times_s[0]


def test_a_cap_does_nothing_to_a_run_that_draws_less() -> None:
    free, capped = solved(WAITING), solved(WAITING, power_cap_w=400.0)
    assert free.costs.clock_hz == capped.costs.clock_hz == resolve_run(WAITING).cluster.gpu.clock_max_hz
    assert free.step_time_s == capped.step_time_s


@pytest.mark.parametrize("mhz", [600.0, 1000.0, 1400.0, 1900.0])
@pytest.mark.parametrize("base", [BUSY, WAITING], ids=["busy", "waiting"])
def test_a_clock_is_never_above_a_clock_cap(base: dict[str, Any], mhz: float) -> None:
    assert solved(base, clock_cap_hz=mhz * 1e6).costs.clock_hz <= mhz * 1e6
    assert solved(base, clock_cap_hz=mhz * 1e6, power_cap_w=300.0).costs.clock_hz <= mhz * 1e6


def test_at_the_highest_clock_a_step_is_never_slower() -> None:
    for base in (BUSY, GPT3, REPLICAS):
        step = build_step(resolve_run(base))
        assert time_at_highest_clock(step).step_time_s <= solve_step(step).step_time_s * (1 + 1e-9)


@pytest.mark.parametrize("base", [BUSY, GPT3, REPLICAS], ids=["one stage", "a pipeline", "replicas"])
@pytest.mark.parametrize("cap_w", [700.0, 500.0])
def test_the_loop_takes_about_as_long_at_about_this_clock(base: dict[str, Any], cap_w: float) -> None:
    found = solved(base, power_cap_w=cap_w)
    simulated = done(resolve_run(merge(base, {"conditions": {"power_cap_w": cap_w}}))).metrics
    assert found.step_time_s == pytest.approx(simulated["step_time_s"], rel=0.06)
