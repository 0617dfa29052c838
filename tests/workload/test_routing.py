from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.spec.request import merge
from charllm.workload.cut import Cut, cut_run
from charllm.workload.moe import expert_tokens
from charllm.workload.routing import busiest_of_many, natural_skew, skew, visited
from charllm.workload.step import build_step
from tests.timeline.unlimited import time_at_highest_clock

REQUEST: dict[str, Any] = {
    "model": "qwen3-30b-a3b",
    "cluster": "charllm-ppt-h100",
    "parallelism": {"ep": 64},
    "training": {"seq_length": 4096, "global_batch_size": 64},
}
IN_TURN = {"framework": {"base": "megatron", "forced_routing": "in-turn"}}


def cut(changes: dict[str, Any] | None = None) -> Cut:
    return cut_run(resolve_run(merge(REQUEST, changes or {})))


def visits(name: str, parts: int, **software: str) -> float:
    run = resolve_run({"model": name, "cluster": "charllm-ppt-h100", "framework": {"base": "megatron", **software}})
    return visited(run.model, run.training, run.framework, parts)


@given(st.integers(1, 4096), st.floats(1, 1e7))
def test_the_busiest_rank_never_has_less_than_the_mean_nor_more_than_all(ranks: int, mean: float) -> None:
    assert 1.0 <= busiest_of_many(mean, ranks) <= max(1.0, ranks)


@given(st.integers(2, 2048), st.floats(1, 1e6))
def test_more_ranks_are_less_even_and_more_tokens_more_so(ranks: int, mean: float) -> None:
    assert busiest_of_many(mean, 2 * ranks) >= busiest_of_many(mean, ranks)
    assert busiest_of_many(2 * mean, ranks) <= busiest_of_many(mean, ranks)


@pytest.mark.parametrize(("ranks", "mean"), [(8, 2048), (64, 2048), (64, 32768)])
def test_the_busiest_of_many_is_as_drawn(ranks: int, mean: int) -> None:
    drawn = np.random.default_rng(0).multinomial(ranks * mean, [1 / ranks] * ranks, size=400)
    excess = drawn.max(axis=1).mean() / mean - 1
    # The equation is the leading term, an upper bound that many ranks come near.
    assert excess < busiest_of_many(mean, ranks) - 1 < 1.6 * excess


def test_one_rank_a_fixed_capacity_and_experts_in_turn_have_no_busiest() -> None:
    assert skew(cut({"parallelism": {"ep": 1}})) == 1.0
    assert skew(cut({"training": {"capacity_factor": 1.0}})) == 1.0
    assert skew(cut(IN_TURN)) == 1.0


def test_what_is_asked_for_counts_and_a_router_leaves_more_than_chance() -> None:
    forced, natural, asked = (
        skew(cut({"training": training})) for training in ({}, {"routing": "natural"}, {"routing_skew": 3.0})
    )
    assert 1.0 < forced < natural == pytest.approx(natural_skew(cut().model, 64) * forced)
    assert asked == 3.0
    assert skew(cut(merge(IN_TURN, {"training": {"routing": "natural"}}))) == pytest.approx(natural)


def test_the_busiest_rank_works_on_whole_rows_for_every_expert() -> None:
    for ep in (2, 8, 64):
        one = cut({"parallelism": {"ep": ep}})
        local = one.model.experts // ep
        even = one.shard_tokens * one.model.topk
        assert expert_tokens(one) % local == 0
        assert even * skew(one) <= expert_tokens(one) < even * skew(one) + local


def test_a_step_waits_for_the_busiest_rank() -> None:
    def seconds(**training: Any) -> float:
        return time_at_highest_clock(build_step(resolve_run(merge(REQUEST, {"training": training})))).step_time_s

    even, forced, natural = seconds(routing_skew=1.0), seconds(), seconds(routing="natural")
    assert even < forced < natural < natural_skew(cut().model, 64) * forced


def test_random_experts_lie_on_few_of_few_and_on_others_of_many() -> None:
    assert visits("qwen3-30b-a3b", 1) == 1.0
    assert visits("qwen3-30b-a3b", 8) == pytest.approx(8 * (1 - (7 / 8) ** 8))
    assert 7 < visits("qwen3-30b-a3b", 128) < 8


def test_groups_keep_a_token_on_few_nodes() -> None:
    run = resolve_run({"model": "deepseek-v3", "cluster": "charllm-ppt-h100", "parallelism": {"ep": 64}})
    free = replace(run.model, expert_groups=1, groups_per_token=1)
    # Four of eight groups on eight nodes: four nodes can have some of eight experts.
    limited = visited(run.model, run.training, run.framework, 8)
    assert limited == pytest.approx(4 * (1 - (3 / 4) ** 8))
    assert limited < visited(free, run.training, run.framework, 8)
    # Two groups a node: a token misses it when all four groups lie elsewhere.
    assert visited(run.model, run.training, run.framework, 4) < 4 * (1 - 15 / 70)


@pytest.mark.parametrize(("parts", "expected"), [(1, 1.0), (8, 1.0), (16, 1.0), (32, 2.0), (64, 4.0)])
def test_experts_in_turn_are_neighbours(parts: int, expected: float) -> None:
    assert visits("qwen3-30b-a3b", parts, forced_routing="in-turn") == expected


def test_a_learned_router_is_less_even_with_fewer_experts_a_rank_and_more_even_with_biases() -> None:
    qwen = cut().model
    # Megatron-MoE-ModelZoo: 128 experts on eight ranks.
    assert natural_skew(qwen, 8) == pytest.approx(1.6, rel=0.01)
    assert 1.0 < natural_skew(qwen, 4) < natural_skew(qwen, 8) < natural_skew(qwen, 64) < 64
    biased = replace(qwen, balancing="bias")
    assert natural_skew(biased, 8) - 1 == pytest.approx((natural_skew(qwen, 8) - 1) / 2)
    assert resolve_run({"model": "deepseek-v3", "cluster": "h200x32"}).model.balancing == "bias"
