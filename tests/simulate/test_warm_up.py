"""The warm-up of a run from a cold start, as a table."""

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.simulate.cold import tabulate_warm_up
from charllm.simulate.predict import predict
from tests.simulate.runs import done

FOUND = predict(
    resolve_run(
        {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 2}, "training": {"global_batch_size": 8}}
    )
)


def test_gpus_warm_up_from_idle_to_the_steady_state() -> None:
    assert FOUND.machine is not None
    table = tabulate_warm_up(FOUND.machine, 300.0)
    mean_c = [value for value in table["temperature_c_mean"] if value is not None]
    assert table["t_s"][0] == 0.0
    assert table["t_s"][-1] == 300.0
    assert 25 < mean_c[0] < 45
    # Where a step meets the governor's ticks moves its mean by a twentieth of a kelvin.
    assert min(np.diff(mean_c)) > -0.1
    assert mean_c[-1] == pytest.approx(FOUND.result.metrics["temperature_mean_c"], abs=1.0)
    assert table["power_w_mean"][0] is None
    assert table["clock_hz_mean"][-1] == pytest.approx(FOUND.result.metrics["clock_mean_hz"], rel=0.01)


def test_lowest_mean_and_highest_are_in_order() -> None:
    assert FOUND.machine is not None
    table = tabulate_warm_up(FOUND.machine, 20.0)
    for signal in ("power_w", "temperature_c", "clock_hz"):
        for low, mean, high in zip(*(table[f"{signal}_{end}"] for end in ("low", "mean", "high")), strict=True):
            if low is not None and mean is not None and high is not None:
                assert low <= mean * (1 + 1e-12)
                assert mean <= high * (1 + 1e-12)


def test_steps_that_are_not_simulated_are_told_by_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    # Under a cap the clock still falls when the sinks are half a kelvin from where they go.
    capped = resolve_run({
        "model": "llama3.2-1b", "cluster": "h200x1", "conditions": {"seconds_s": 40.0, "power_cap_w": 450.0},
        "training": {"global_batch_size": 16, "micro_batch_size": 2, "seq_length": 4096},
    })  # fmt: skip
    found = done(capped).metrics
    monkeypatch.setattr("charllm.simulate.cold.MOVED_K", 0.02)
    finer = done(capped).metrics
    for metric in ("step_time_s", "clock_mean_hz", "power_mean_w"):
        assert found[metric] == pytest.approx(finer[metric], rel=5e-3)
