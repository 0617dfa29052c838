from math import exp
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.result.memory_verdict import MOST_RISK, RISK, MemoryVerdict, judge_memory, least_margin_fraction
from charllm.result.uncertainty import errors
from charllm.spec.request import merge
from charllm.units import GIB
from charllm.workload.step import build_step

SATURATED: dict[str, Any] = {
    "model": "llama3-30b",
    "cluster": "charllm-ppt-h200",
    "parallelism": {"tp": 1, "pp": 2, "vpp": 2},
    "training": {"micro_batch_size": 4, "global_batch_size": 128, "recompute": "full"},
}
SMALL: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"base": "charllm-ppt-h200", "nodes": 2},
    "parallelism": {"pp": 2},
    "training": {"global_batch_size": 32},
}


def judged(request: dict[str, Any]) -> MemoryVerdict:
    return judge_memory(build_step(resolve_run(request)))


def with_gpu(memory_bytes: float) -> MemoryVerdict:
    """Judge a run on GPUs with some memory."""
    return judged(
        {**SMALL, "cluster": {"base": "charllm-ppt-h200", "nodes": 2, "node": {"gpu": {"memory_bytes": memory_bytes}}}}
    )


def test_the_worst_rank_needs_most_although_the_device_shows_as_much_on_others() -> None:
    verdict = judged(SATURATED)
    first, second = verdict.ranks
    assert first.total_bytes == pytest.approx(second.total_bytes) == pytest.approx(verdict.worst.gpu_bytes)
    assert (verdict.worst.rank, verdict.worst.stage) == (16, 1)
    assert first.need_bytes / GIB == pytest.approx(131.9, abs=0.05)
    assert verdict.worst.need_bytes / GIB == pytest.approx(136.3, abs=0.05)
    assert verdict.fits
    assert not verdict.fits_within()
    assert verdict.fit_probability == pytest.approx(0.737, abs=0.001)


def test_a_run_that_needs_just_what_there_is_fits_with_even_odds() -> None:
    need_bytes = judged(SMALL).worst.need_bytes
    just, short = with_gpu(need_bytes), with_gpu(need_bytes * (1 - 1e-9))
    assert just.fit_probability == pytest.approx(0.5)
    assert (just.fits, short.fits) == (True, False)


@pytest.mark.parametrize("risk", [0.001, RISK, 0.2, MOST_RISK])
def test_the_least_margin_leaves_just_the_risk(risk: float) -> None:
    need_bytes, margin = judged(SMALL).worst.need_bytes, least_margin_fraction(risk)
    for more, fits in ((1e-9, True), (-1e-9, False)):
        verdict = with_gpu(need_bytes / (1 - margin - more))
        assert verdict.fits_within(risk) is fits
        assert verdict.fit_probability == pytest.approx(1 - risk, abs=1e-6)


def test_the_spread_is_that_of_held_out_errors() -> None:
    bounds, need_bytes = errors()["memory"]["allocated"], judged(SMALL).worst.need_bytes
    # One in twenty predictions is too low by as much as `low`, and one too high by as much as `high`.
    for factor, probability in ((exp(-bounds["low"]), 0.95), (exp(-bounds["high"]), 0.05)):
        assert with_gpu(need_bytes * factor).fit_probability == pytest.approx(probability, abs=1e-4)


def mixed(node: int, **settings: dict[str, Any]) -> MemoryVerdict:
    """Judge a run of which one node has H100s."""
    cluster = {"base": "charllm-ppt-h200", "nodes": 2, "mixed": [{"node": "hgx-h100", "nodes": [node]}]}
    return judged(merge(SMALL, {"cluster": cluster, **settings}))


def test_in_a_mixed_cluster_the_worst_rank_is_the_one_with_the_least_margin() -> None:
    first, second = judged(SMALL).ranks
    assert first.need_bytes > second.need_bytes
    verdict = mixed(1)
    assert (verdict.worst.rank, verdict.worst.stage) == (8, 1)
    assert verdict.worst.need_bytes < verdict.ranks[0].need_bytes
    assert (mixed(0).worst.rank, mixed(0).worst.stage) == (0, 0)


def test_a_rank_is_judged_by_the_gpu_that_it_runs_on() -> None:
    larger = {"training": {"micro_batch_size": 2}}
    small_bytes = mixed(0).ranks[0].gpu_bytes
    assert mixed(0, **larger).ranks[0].need_bytes > small_bytes > mixed(1, **larger).ranks[1].need_bytes
    assert not mixed(0, **larger).fits
    assert mixed(1, **larger).fits


def test_a_stage_on_both_kinds_of_nodes_is_judged_on_each() -> None:
    verdict = mixed(1, parallelism={"pp": 1})
    assert [(one.stage, one.rank, one.node_kind) for one in verdict.ranks] == [(0, 0, 0), (0, 8, 1)]
    assert verdict.worst.rank == 8
