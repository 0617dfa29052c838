"""Equal microbatches repeat: a part of a long step tells the rest of it."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.simulate import long_step
from charllm.simulate.predict import predict
from charllm.simulate.recorded import Path, PathPart
from charllm.spec.request import merge
from charllm.workload.step import build_step

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


def test_a_part_of_a_step_has_whole_rounds_of_the_pipeline_and_eight_at_least() -> None:
    run = resolve_run(GPT3)
    # 300 microbatches on four stages: what is left out is a multiple of four.
    assert long_step._fewer(run, 0.5) == 148
    assert long_step._fewer(run, 0.333) == 96
    assert long_step._fewer(run, 0.01) == 32
    assert long_step._fewer(run, 1.5) == 300
    assert long_step._fewer(run, 0.995) == 296
    few = resolve_run(merge(GPT3, {"training": {"global_batch_size": 20}}))
    assert long_step._fewer(few, 0.1) == 20


def test_half_of_a_step_leaves_out_whole_rounds_too() -> None:
    step = build_step(resolve_run(GPT3))
    assert long_step.halve(step).run.microbatches == 300 - 4 * 37
    odd = build_step(resolve_run(merge(GPT3, {"training": {"global_batch_size": 37}})))
    assert long_step.halve(odd).run.microbatches == 37 - 4 * 4
    # 2,048 passes are 256 microbatches on four stages in two directions.
    assert long_step.first_part(step, 2048).run.microbatches == 256
    assert long_step.first_part(step, 2400) is step


def test_a_critical_path_grows_on_the_stages_on_which_it_grew() -> None:
    far = Path([PathPart(0, 0, 10.0), PathPart(1, 0, 4.0), PathPart(2, 1, 1.0)], 100, 7, 2.0)
    near = Path([PathPart(0, 0, 6.0), PathPart(1, 0, 4.5)], 60, 5, 1.5)
    found = long_step._extended_path(far, near, 1.5)
    assert found.parts == [PathPart(0, 0, 16.0), PathPart(1, 0, 4.0), PathPart(2, 1, 2.5)]
    assert (found.passes, found.crossings, found.transfer_s) == (160, 10, 2.75)


def test_times_lie_on_the_line_through_two_lengths_and_labels_add_up() -> None:
    step = build_step(resolve_run(merge(GPT3, {"training": {"global_batch_size": 64}})))
    far = long_step.execute(step, 100.0).timed
    near = far._replace(
        step_time_s=far.step_time_s - 2.0, op_events=far.op_events - 1000,
        stages=[{name: 0.9 * seconds for name, seconds in stage.items()} for stage in far.stages],
        hidden_s={name: 0.5 * seconds for name, seconds in far.hidden_s.items()},
    )  # fmt: skip
    found = long_step.extend_times(far, near, 3.0)
    assert found.step_time_s == pytest.approx(far.step_time_s + 6.0)
    assert found.op_events == far.op_events + 3000
    for before, after in zip(far.stages, found.stages, strict=True):
        assert sum(after.values()) == pytest.approx(found.step_time_s)
        scale = found.step_time_s / sum(before.values())
        assert after == pytest.approx({name: scale * seconds for name, seconds in before.items()})
    assert found.hidden_s == pytest.approx({name: 2.5 * seconds for name, seconds in far.hidden_s.items()})
    assert sum(found.breakdown_s.values()) == pytest.approx(found.step_time_s)
