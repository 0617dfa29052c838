"""Runs of forward passes alone: evaluation, log-probabilities, reward models."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.simulate.predict import simulate

RUN: dict[str, Any] = {"model": "llama3-8b", "cluster": "h200x8", "training": {"global_batch_size": 64}}
FORWARD = {"schedule": "forward-only"}
CUTS: list[dict[str, Any]] = [{}, {"tp": 4}, {"tp": 2, "pp": 2}, {"pp": 4, "vpp": 2}, {"zero": 3}]


def run_of(cut: dict[str, Any], **training: Any) -> dict[str, Any]:
    return {**RUN, "parallelism": {**cut, **FORWARD}, "training": {**RUN["training"], **training}}


@pytest.mark.parametrize("cut", CUTS)
def test_a_forward_run_takes_a_third_of_a_training_step_and_far_less_memory(cut: dict[str, Any]) -> None:
    forward = simulate(resolve_run(run_of(cut))).metrics
    training = simulate(resolve_run({**RUN, "parallelism": cut}), ignore_memory=True).metrics
    assert 0.25 < forward["step_time_s"] / training["step_time_s"] < 0.45
    assert forward["memory_need_bytes"] < 0.5 * training["memory_need_bytes"]
    assert forward["memory_breakdown_bytes"]["gradients"] == forward["memory_breakdown_bytes"]["optimizer"] == 0
    assert forward["model_flop"] == pytest.approx(training["model_flop"] / 3)
    assert forward["breakdown_s"]["optimizer"] == forward["breakdown_s"]["recompute"] == 0
    assert sum(forward["breakdown_s"].values()) == pytest.approx(forward["step_time_s"])


def test_a_forward_run_exchanges_no_gradients() -> None:
    traffic = simulate(resolve_run(run_of({}))).metrics["axis_bytes"]
    assert traffic["dp"] == 0


@pytest.mark.parametrize(
    ("field", "training"),
    [("training.optimizer", {"optimizer": "adam"}), ("training.recompute", {"recompute": "full"})],
)
def test_settings_of_training_are_refused_by_name(field: str, training: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=f"{field}: .* in a forward-only run"):
        resolve_run(run_of({}, **training))


def test_sharded_optimizers_are_refused_without_an_optimizer() -> None:
    with pytest.raises(SpecError, match=r"parallelism.zero: got 1; expected 0, or 3"):
        resolve_run(run_of({"zero": 1}))
