"""Equal microbatches repeat: a part of a long step tells the rest of it."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.simulate import long_step
from charllm.simulate.predict import predict
from charllm.spec.request import merge

GPT3: dict[str, Any] = {
    "model": "gpt3-175b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 8, "pp": 4},
    "training": {"global_batch_size": 300},
}  # fmt: skip
LLAMA: dict[str, Any] = {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 2, "pp": 4}}
CASES: dict[str, dict[str, Any]] = {
    "1f1b": {},
    "interleaved": {"parallelism": {"vpp": 4}},
    "zero-bubble": {"parallelism": {"schedule": "zero-bubble"}},
    "under a cap": {"conditions": {"power_cap_w": 300.0}},
    "with a weak GPU": {"conditions": {"weak_gpus": [3]}},
}


@pytest.mark.parametrize("case", CASES)
def test_an_extended_step_is_the_simulated_one(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = resolve_run(merge(GPT3, CASES[case]))
    monkeypatch.setattr(long_step, "MOST_SLICES", 1e9)
    whole = predict(run)
    monkeypatch.setattr(long_step, "MOST_SLICES", 100_000)
    part = predict(run)
    assert whole.simulated is not None
    assert part.simulated is not None
    assert whole.simulated.step.run.microbatches == 300
    assert 32 <= part.simulated.step.run.microbatches < 200
    assert part.simulated.step.run.microbatches % 4 == 0
    for name in ("step_time_s", "energy_per_step_j", "mfu"):
        assert part.result.metrics[name] == pytest.approx(whole.result.metrics[name], rel=2e-3)
    # So few microbatches end before the fastest temperatures do.
    assert part.result.metrics["clock_mean_hz"] == pytest.approx(whole.result.metrics["clock_mean_hz"], rel=1.5e-2)
    for name in ("temperature_mean_c", "temperature_peak_c"):
        assert part.result.metrics[name] == pytest.approx(whole.result.metrics[name], abs=0.6)
    step_time_s = whole.result.metrics["step_time_s"]
    for label, seconds in whole.result.metrics["breakdown_s"].items():
        assert part.result.metrics["breakdown_s"][label] == pytest.approx(seconds, abs=8e-3 * step_time_s)
    assert sum(part.result.metrics["breakdown_s"].values()) == pytest.approx(part.result.metrics["step_time_s"])
    assert part.result.metrics["microbatches"] == 300
    assert f"{part.simulated.step.run.microbatches} of 300 were simulated" in " ".join(part.result.warnings)


def test_a_step_of_millions_of_microbatches_takes_no_longer_than_one_of_thousands() -> None:
    few, many = (
        predict(resolve_run(merge(LLAMA, {"training": {"global_batch_size": batch}}))) for batch in (80_000, 8_000_000)
    )
    assert few.simulated is not None
    assert many.simulated is not None
    assert few.simulated.step.run.microbatches == many.simulated.step.run.microbatches < 4000
    assert many.result.metrics["step_time_s"] == pytest.approx(100 * few.result.metrics["step_time_s"], rel=1e-3)
    assert many.result.metrics["mfu"] == pytest.approx(few.result.metrics["mfu"], rel=1e-3)
