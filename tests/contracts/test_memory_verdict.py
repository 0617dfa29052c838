"""Everything that says whether a run fits in memory says the same."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

from charllm.api.plan import build_space, plan
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.plan.bounds import least_need_bytes
from charllm.plan.feasible import divide_space
from charllm.plan.placement import judge_placements
from charllm.plan.rows import list_rows
from charllm.plan.share import share_blocks
from charllm.plan.space import Variant
from charllm.result.answers import answer_memory
from charllm.result.memory_verdict import RISK, MemoryVerdict, judge_memory
from charllm.result.uncertainty import intervals
from charllm.simulate.fast import predict_fast
from charllm.simulate.predict import simulate
from charllm.spec.run import RunSpec
from charllm.units import GIB
from charllm.workload.step import build_step
from tests.random_specs.strategies import sensible_requests

NAMES = ("fits", "memory_need_bytes", "memory_margin_fraction", "memory_fit_probability", "memory_rank",
         "memory_peak_bytes")  # fmt: skip


def told(metrics: Any) -> list[Any]:
    return [metrics[name] for name in NAMES]


def judged(run: RunSpec) -> MemoryVerdict:
    return judge_memory(build_step(run))


@settings(max_examples=30)
@given(sensible_requests())
def test_simulate_place_and_stored_tables_give_one_verdict(request: dict[str, Any]) -> None:
    try:
        run = resolve_run(request)
        verdict, result, fast = judged(run), simulate(run), predict_fast(run)
    except SpecError:
        assume(False)
        raise
    expected = told(verdict.as_metrics())
    assert told(result.metrics) == told(fast.metrics) == expected
    warned = [text for text in result.warnings if text.startswith("memory:")]
    assert len(warned) == (not verdict.fits_within())
    assert all(f"rank {verdict.worst.rank} (stage {verdict.worst.stage}) needs" in text for text in warned)
    assert f"needs {verdict.worst.need_bytes / GIB:.1f}" in answer_memory(result)
    assert (answer_memory(result).startswith("fits")) == verdict.fits_within()
    assert (intervals(result)["memory_need_bytes"]["high"] <= verdict.worst.gpu_bytes) == verdict.fits_within()
    row = next(row for row in result.gpus if row["rank"] == verdict.worst.rank)
    assert (row["memory_need_bytes"], row["memory_peak_bytes"]) == (expected[1], expected[5])
    assert row["memory_need_bytes"] == max(row["memory_need_bytes"] for row in result.gpus)
    table = result.table("memory")
    assert table is not None
    assert max(table["need_bytes"]) == expected[1]
    if verdict.fits:
        assert told(next(judge_placements(run)).metrics) == expected


DENSE: dict[str, Any] = {"model": "llama3-8b", "cluster": "h100x8", "gbs": 16}
SPACES: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {
    "dense": (DENSE, {"mbs": [1, 2], "recompute": ["none", "full", "full:4"]}),
    "sparse": (
        {"model": "mixtral-8x7b", "cluster": "h200x8", "gbs": 16},
        {"mbs": [1], "ep": [1, 4, 8], "recompute": ["none", "full"]},
    ),
    "fsdp": ({**DENSE, "framework": "fsdp"}, {"mbs": [1, 2]}),
    "mixed": (
        {**DENSE, "cluster": {"base": "charllm-ppt-h200", "nodes": 2, "mixed": [{"node": "hgx-h100", "nodes": [1]}]}},
        {"mbs": [1], "recompute": ["none", "full"]},
    ),
}


@pytest.mark.parametrize("name", SPACES)
def test_the_bound_of_a_plan_is_below_the_need_of_every_strategy_and_near_it(name: str) -> None:
    words, axes = SPACES[name]
    space = build_space(None, axes, words).space
    draw, ratios = np.random.default_rng(5), []
    for share in divide_space(space).shares:
        rows = list_rows(space, share.places)
        bounds = least_need_bytes(share_blocks(share.run), rows)
        for row in draw.integers(0, len(bounds), 3).tolist():
            cell = space.cell(int(rows.cell[row]))
            way = space.recomputes(cell)[int(rows.recompute[row])]
            run = space.run(cell, Variant(way, int(rows.zero[row]), int(rows.shard_size[row]), (), None, None))
            need_bytes = max(rank.need_bytes for rank in judged(run).ranks)
            assert bounds[row] <= need_bytes * (1 + 1e-9)
            ratios.append(bounds[row] / need_bytes)
    assert np.median(ratios) > 0.7


WINNERS: list[dict[str, Any]] = [
    {"model": "llama3-8b", "cluster": "h100x8", "gbs": 64, "mbs": 2},
    {"model": "llama3-8b", "cluster": "a100x8", "gbs": 64, "mbs": 4, "pp": 1},
    {"model": "llama3-70b", "cluster": "charllm-ppt-h200", "gbs": 64, "mbs": 1, "pp": 4},
    {"model": "llama2-13b", "cluster": "h100x8", "gbs": 32, "mbs": 1},
    {"model": "mixtral-8x7b", "cluster": "h200x8", "gbs": 16, "mbs": 1, "etp": 1, "pp": 1},
    {"model": "llama3-8b", "cluster": "h100x8", "gbs": 16, "framework": "fsdp", "pp": 1},
]


@pytest.mark.parametrize("words", WINNERS, ids=lambda words: f"{words['model']}-{words['cluster']}-{words['gbs']}")
def test_a_plan_recommends_nothing_that_simulate_warns_about(words: dict[str, Any]) -> None:
    found = plan(**words, cp=1, top=2)
    assert not [text for text in found.warnings if text.startswith("memory")]
    for one in found.best:
        result = simulate(one.run)
        assert told(result.metrics) == told(one.metrics)
        assert not [text for text in result.warnings if text.startswith("memory")]


TIGHT: dict[str, Any] = {"model": "llama3-8b", "gbs": 16, "tp": 8, "pp": 1, "cp": 1, "mbs": 1, "zero": 1,
                         "recompute": "full", "top": 1}  # fmt: skip


def tight(margin_fraction: float) -> dict[str, Any]:
    """Describe GPUs of which the only strategy leaves a margin."""
    own = resolve_run({"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 8},
                       "training": {"global_batch_size": 16, "recompute": "full"}})  # fmt: skip
    size = judged(own).worst.need_bytes / (1 - margin_fraction)
    return {"base": "h200x8", "node": {"gpu": {"memory_bytes": size}}}


def test_where_nothing_fits_with_the_margin_a_plan_says_so_and_lists_what_fits_with_less() -> None:
    found = plan(**TIGHT, cluster=tight(0.04))
    probability = found.best[0].metrics["memory_fit_probability"]
    assert 0.5 < probability < 1 - RISK
    (warning,) = [text for text in found.warnings if text.startswith("memory")]
    assert "no strategy fits with a probability of 95 %" in warning
    assert f"{100 * probability:.0f} %" in warning
    assert not plan(**TIGHT, cluster=tight(0.04), risk=0.4).warnings


def test_the_risk_of_a_plan_is_a_probability_below_even_odds() -> None:
    for risk in (0, 0.51, "much", True):
        with pytest.raises(SpecError, match=r"risk: got .*expected a number"):
            plan(**{**TIGHT, "risk": risk}, cluster="h200x8")
