"""Seconds of exchanging one weight: each rank of n sends (n - 1) / n of its gradient in fp32 and of itself in bf16."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.plan.exchanges import Rates, exchange_rates
from charllm.workload.step import build_step

LINK_BYTES_PER_S = 450e9


def rates(framework: str = "megatron", **parallelism: Any) -> Rates:
    request = {"model": "llama3-8b", "cluster": "h200x8", "framework": framework, "parallelism": parallelism}
    run = resolve_run({**request, "training": {"global_batch_size": 8}})
    return exchange_rates(build_step(run), run)


def test_gradients_are_reduced_once_a_step_and_weights_gathered_by_half_as_many_bytes() -> None:
    found = rates(zero=1)
    assert 0.7 < 4 * 7 / 8 / LINK_BYTES_PER_S / found.gradients[0] < 0.9
    assert found.weights[0] == pytest.approx(found.gradients[0] / 2, rel=1e-3)
    assert found.in_passes == (0.0, 0.0)
    assert found.gradients[1] == found.gradients[0]


def test_whole_gradients_are_reduced_in_place_of_gathering_weights() -> None:
    found = rates(zero=0)
    assert found.weights == (0.0, 0.0)
    assert found.gradients[0] < 3 * rates(zero=1).weights[0]


def test_tensor_parallel_ranks_exchange_each_their_own_weights() -> None:
    alone, cut = rates(zero=1), rates(zero=1, tp=2)
    assert (3 / 4) / (7 / 8) < cut.gradients[0] / alone.gradients[0] < 1
    # Experts are not cut by tensor parallelism here: all eight ranks hold the same.
    assert cut.gradients[1] == alone.gradients[1]


def test_what_is_exchanged_with_every_microbatch_is_no_part_of_the_steps_end() -> None:
    once = rates(zero=1)
    reduced = rates(zero=2)
    assert reduced.gradients == (0.0, 0.0)
    assert reduced.in_passes[0] == pytest.approx(once.gradients[0], rel=1e-3)
    assert reduced.weights[0] == pytest.approx(once.weights[0], rel=1e-3)
    sharded = rates("fsdp", zero=3)
    assert (sharded.gradients, sharded.weights) == ((0.0, 0.0), (0.0, 0.0))
    assert sharded.in_passes[0] == pytest.approx(once.gradients[0] + 2 * once.weights[0], rel=1e-3)


def test_a_sharded_pipeline_exchanges_once_a_step() -> None:
    found = rates("fsdp", zero=3, pp=2)
    assert found.in_passes == (0.0, 0.0)
    assert found.gradients[0] == pytest.approx(2 * found.weights[0], rel=1e-3)
