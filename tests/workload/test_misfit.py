from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.spec.request import merge, parse_settings
from charllm.workload.memory import worst_memory
from charllm.workload.misfit import ERROR_FRACTION, explain_misfit, fits, memory_warnings, nearest_change
from charllm.workload.step import build_step


def run(model: str, cluster: Any, *settings: str) -> Any:
    return resolve_run(merge({"model": model, "cluster": cluster}, parse_settings(settings)))


@pytest.mark.parametrize(
    ("model", "cluster", "settings", "flags"),
    [
        ("gpt3-175b", "h200x32", ["parallelism.tp=1", "parallelism.pp=32"], "--recompute full"),
        ("llama3-8b", "h200x8", ["training.micro_batch_size=16"], "--mbs 2"),
        ("llama3-70b", "h200x32", ["training.recompute=full"], "--zero 3"),
        ("gpt3-175b", "h200x32", ["training.lora_rank=8", "training.micro_batch_size=4"], "--tp"),
    ],
)
def test_the_mildest_change_that_fits_is_named(model: str, cluster: Any, settings: list[str], flags: str) -> None:
    change = nearest_change(run(model, cluster, *settings))
    assert change is not None
    assert flags in change.flags


def test_the_named_change_really_fits() -> None:
    misfit = run("gpt3-175b", "h200x32", "parallelism.tp=1", "parallelism.pp=32")
    assert not fits(misfit, worst_memory(build_step(misfit)))
    change = nearest_change(misfit)
    assert change is not None
    mended = run("gpt3-175b", "h200x32", "parallelism.tp=1", "parallelism.pp=32", "training.recompute=full")
    memory = worst_memory(build_step(mended))
    assert fits(mended, memory)
    assert change.memory_peak_bytes == memory.total_bytes


def test_where_nothing_helps_that_is_said() -> None:
    hopeless = run("llama3-405b", "a100x1")
    assert nearest_change(hopeless) is None
    assert "none of the single changes" in explain_misfit(hopeless, worst_memory(build_step(hopeless)))


def test_a_run_within_the_error_of_the_limit_is_warned_of() -> None:
    roomy = run("llama3-8b", "h200x8")
    needs = worst_memory(build_step(roomy)).least_bytes
    for has, said in (
        (needs * (1 + 2 * ERROR_FRACTION), ""),
        (needs * (1 + ERROR_FRACTION / 2), "the run may not fit"),
        (needs * (1 - ERROR_FRACTION / 2), "it may fit"),
        (needs / 2, "needs"),
    ):
        cluster = {"base": "h200x8", "node": {"gpu": {"memory_bytes": has}}}
        tight = run("llama3-8b", cluster)
        warnings = memory_warnings(tight, worst_memory(build_step(tight)))
        assert len(warnings) == bool(said)
        assert all(said in warning for warning in warnings)
        assert ("error of predicted memory" in "".join(warnings)) == (
            said.endswith("may not fit") or said == "it may fit"
        )
