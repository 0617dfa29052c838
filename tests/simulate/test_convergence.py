"""The loop ends at the same place from any start, by any step, and along the way from cold."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.simulate import cold, slices, steady, step_loop
from charllm.simulate.cold import MOVED_K
from charllm.simulate.steady import MOST_ROUNDS, simulate_to_steady, start_state
from charllm.spec.request import merge
from tests.simulate.runs import GPT3, REPLICAS, cooled, done, ran, under

SAME, SAME_HOT = 0.004, 0.01
"""Where heat cuts clocks, they hunt around the limit."""
HOT = {**GPT3, "cluster": {"base": "charllm-ppt-h200", "cooling": {"inlet_c": 50.0}}}


@settings(max_examples=12, deadline=None)
@given(st.floats(50, 1000), st.floats(0.2, 1), st.sampled_from(["one replica", "replicas", "hot"]))
def test_the_loop_converges_to_the_same_from_any_start(power_w: float, clock_fraction: float, name: str) -> None:
    found = ran(base={"one replica": GPT3, "replicas": REPLICAS, "hot": HOT}[name])
    again = simulate_to_steady(found.machine, start_state(found.machine, power_w, clock_fraction))
    assert again.rounds < MOST_ROUNDS or name == "hot"
    same = SAME_HOT if name == "hot" else SAME
    assert again.step_time_s == pytest.approx(found.simulated_step.step_time_s, rel=same)
    assert again.sums[:, step_loop.ENERGY].sum() == pytest.approx(
        found.simulated_step.sums[:, step_loop.ENERGY].sum(), rel=same
    )
    assert again.sink_k == pytest.approx(found.simulated_step.sink_k, abs=0.3)


@pytest.fixture
def slice_s(request: pytest.FixtureRequest) -> Iterator[float]:
    before = slices.SLICE_S
    slices.SLICE_S = request.param
    yield request.param
    slices.SLICE_S = before


METRICS = ("step_time_s", "power_mean_w", "temperature_mean_c", "clock_mean_hz")
CAPPED = [under(power_cap_w=cap_w) for cap_w in (380.0, 390.0, 400.0, 410.0, 420.0)]
"""Under a cap the clock of one step dithers by half a per cent; its mean over several caps must not move."""


@pytest.mark.parametrize("slice_s", [0.00125, 0.0025], indirect=True)
@pytest.mark.parametrize("cases", [[{}], [cooled(inlet_c=55.0)], CAPPED], ids=["mild", "hot", "capped"])
def test_means_do_not_depend_on_how_finely_a_step_is_cut(cases: list[dict[str, Any]], slice_s: float) -> None:
    finer = [done(resolve_run(merge(GPT3, case))).metrics for case in cases]
    usual = [ran(case).metrics for case in cases]
    for name in METRICS:
        ratios = [one[name] / other[name] for one, other in zip(finer, usual, strict=True)]
        assert np.mean(ratios) == pytest.approx(1, abs=SAME), name
        assert name == "clock_mean_hz" or ratios == pytest.approx([1] * len(cases), abs=SAME), name


@pytest.mark.parametrize("seconds", [1.0, 8.0])
def test_means_do_not_depend_on_how_often_a_step_is_played(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = ran(base=REPLICAS)
    monkeypatch.setattr(steady, "LEAST_ROUND_S", seconds)
    other = done(usual.machine.run)
    for name in METRICS:
        assert other.metrics[name] == pytest.approx(usual.metrics[name], rel=SAME), name


def test_a_run_from_cold_warms_up_to_its_steady_state() -> None:
    warm = ran().metrics
    runs = [ran(under(steps=steps)).metrics for steps in (1, 10, 100, 10_000)]
    means_c = [metrics["temperature_mean_c"] for metrics in runs]
    assert means_c == sorted(means_c)
    assert means_c[0] < warm["temperature_mean_c"] - 10
    last = runs[-1]
    assert last["temperature_mean_c"] == pytest.approx(warm["temperature_mean_c"], abs=MOVED_K)
    for name in ("step_time_s", "power_mean_w", "clock_mean_hz"):
        assert last[name] == pytest.approx(warm[name], rel=SAME), name


def test_a_run_from_cold_ends_even_where_temperatures_never_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold, "MOST_ROUNDS", 3)
    assert ran(under(steps=1_000_003)).simulated_step.rounds == 3


def test_seconds_and_steps_of_the_same_length_are_the_same_run() -> None:
    by_steps = ran(under(steps=20)).metrics
    by_seconds = ran(under(seconds_s=20 * by_steps["step_time_s"])).metrics
    for name in ("step_time_s", "power_mean_w", "temperature_mean_c", "clock_mean_hz"):
        assert by_seconds[name] == pytest.approx(by_steps[name], rel=SAME), name


def test_a_sink_that_begins_cold_follows_its_own_time_constant() -> None:
    found = ran(under(seconds_s=30.0))
    final = ran()
    share = found.simulated_step.sink_k / final.simulated_step.sink_k
    assert np.all((share > 0.3) & (share < 0.95))


def test_the_same_run_twice_is_the_same() -> None:
    first, again = ran(), done(replace(ran().machine.run))
    assert first.metrics == again.metrics
    assert first.gpus == again.gpus
