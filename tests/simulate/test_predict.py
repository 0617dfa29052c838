from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.result.metrics import missing
from charllm.simulate.predict import simulate

REQUEST: dict[str, Any] = {
    "model": "gpt3-175b",
    "cluster": "charllm-ppt-h200",
    "parallelism": {"tp": 8, "pp": 4},
    "training": {"global_batch_size": 128},
}


def test_every_unknown_metric_has_a_reason() -> None:
    result = simulate(resolve_run(REQUEST))
    reasons = " ".join(result.warnings)
    assert all(name in reasons for name in missing(result.metrics))


def test_every_gpu_is_described() -> None:
    result = simulate(resolve_run(REQUEST))
    assert [row["rank"] for row in result.gpus] == list(range(32))
    assert (result.gpus[9]["node"], result.gpus[9]["slot"], result.gpus[9]["stage"]) == (1, 1, 1)
    assert max(row["memory_peak_bytes"] for row in result.gpus) == result.metrics["memory_peak_bytes"]


def test_a_run_that_does_not_fit_says_who_what_and_what_would() -> None:
    result = simulate(resolve_run({**REQUEST, "parallelism": {"tp": 1, "pp": 32}}))
    assert result.metrics["fits"] is False
    (reason,) = [warning for warning in result.warnings if warning.startswith("memory")]
    assert "rank 0 (stage 0)" in reason
    assert "activations" in reason
    assert "with --recompute full it fits" in reason


def test_a_simulation_is_the_same_each_time() -> None:
    run = resolve_run(REQUEST)
    assert simulate(run) == simulate(run)


@pytest.mark.parametrize("cluster", ["h200x1", "charllm-ppt-mi250", "gb200-nvl72"])
def test_other_machines_work_too(cluster: str) -> None:
    assert simulate(resolve_run({"model": "llama3-8b", "cluster": cluster})).metrics["memory_peak_bytes"] > 0


def test_heat_beyond_what_boards_were_read_at_is_said() -> None:
    hot = {**REQUEST, "cluster": {"base": "charllm-ppt-h200", "cooling": {"inlet_c": 70.0}}}
    mild, warned = simulate(resolve_run(REQUEST)), simulate(resolve_run(hot))
    assert not [text for text in mild.warnings if text.startswith("temperature")]
    assert [text for text in warned.warnings if text.startswith("temperature")]
    assert warned.metrics["clock_loss_fraction"]["thermal"] > 0
