from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.result.memory_verdict import RISK, judge_memory
from charllm.simulate.misfit import memory_warnings, nearest_change
from charllm.spec.request import merge, parse_settings
from charllm.spec.run import RunSpec
from charllm.workload.step import build_step


def run(model: str, cluster: Any, *settings: str) -> RunSpec:
    return resolve_run(merge({"model": model, "cluster": cluster}, parse_settings(settings)))


def warnings_of(spec: RunSpec) -> list[str]:
    return memory_warnings(spec, judge_memory(build_step(spec)))


@pytest.mark.parametrize(
    ("model", "cluster", "settings", "flags"),
    [
        ("gpt3-175b", "charllm-ppt-h200", ["parallelism.tp=1", "parallelism.pp=32"], "--recompute full"),
        ("llama3-8b", "h200x8", ["training.micro_batch_size=16"], "--mbs 1"),
        ("llama3-70b", "charllm-ppt-h200", ["training.recompute=full"], "--zero 3"),
        ("gpt3-175b", "charllm-ppt-h200", ["training.lora_rank=8", "training.micro_batch_size=4"], "--tp"),
        ("llama3-70b", "h200x8", [], "--recompute full --set training.optimizer_offload_fraction=1"),
        ("llama3-70b", "h200x8", ["training.micro_batch_size=2", "training.recompute=full"], "offload_fraction=1"),
    ],
)
def test_the_mildest_change_that_fits_is_named(model: str, cluster: Any, settings: list[str], flags: str) -> None:
    change = nearest_change(run(model, cluster, *settings))
    assert change is not None
    assert flags in change.flags
    assert change.memory.fit_probability >= 1 - RISK


def test_the_named_change_really_fits() -> None:
    misfit = run("gpt3-175b", "charllm-ppt-h200", "parallelism.tp=1", "parallelism.pp=32")
    assert not judge_memory(build_step(misfit)).fits
    change = nearest_change(misfit)
    assert change is not None
    mended = run("gpt3-175b", "charllm-ppt-h200", "parallelism.tp=1", "parallelism.pp=32", "training.recompute=full")
    assert not warnings_of(mended)
    assert change.memory == judge_memory(build_step(mended))


def test_where_nothing_fits_safely_the_change_with_the_highest_probability_is_named() -> None:
    full = judge_memory(build_step(run("llama3-8b", "h200x1", "training.recompute=full"))).worst.need_bytes
    away = ("training.recompute=full", "training.optimizer_offload_fraction=1.0")
    least = judge_memory(build_step(run("llama3-8b", "h200x1", *away))).worst.need_bytes
    assert least < 0.8 * full
    tight = run("llama3-8b", {"base": "h200x1", "node": {"gpu": {"memory_bytes": 1.02 * least}}})
    change = nearest_change(tight)
    assert change is not None
    assert "optimizer_offload" in change.flags
    assert 0.5 < change.memory.fit_probability < 1 - RISK


def test_where_nothing_helps_that_is_said() -> None:
    hopeless = run("llama3-405b", "a100x1")
    assert nearest_change(hopeless) is None
    assert "none of the changes tried makes it fit" in warnings_of(hopeless)[0]


@pytest.mark.parametrize(
    ("margin_fraction", "said"),
    [(0.1, ""), (0.03, "the run may not fit (probability of fitting: 7"), (-0.03, "more than"), (-0.5, "under 1 %")],
)
def test_a_run_that_may_not_fit_is_warned_of(margin_fraction: float, said: str) -> None:
    need_bytes = judge_memory(build_step(run("llama3-8b", "h200x8"))).worst.need_bytes
    size = {"memory_bytes": need_bytes / (1 - margin_fraction)}
    warnings = warnings_of(run("llama3-8b", {"base": "h200x8", "node": {"gpu": size}}))
    assert len(warnings) == bool(said)
    assert all(said in warning for warning in warnings)
