from dataclasses import replace
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.spec.schedules import SCHEDULES
from charllm.workload.liveness import (
    FLIGHTS,
    Flight,
    Passage,
    _put_off,
    in_flight,
    live_bytes,
    pass_through,
    rank_chunks,
)
from charllm.workload.recompute import Replay
from charllm.workload.step import Block, Chunk, Step, Weights, build_step


def flights(schedule: str, pp: int, microbatches: int, vpp: int = 1) -> list[tuple[Flight, ...]]:
    parallelism: dict[str, Any] = {"pp": pp, "vpp": vpp, "schedule": schedule, "dp": 32 // pp}
    training = {"global_batch_size": microbatches * 32 // pp}
    run = resolve_run(
        {"model": "gpt3-175b", "cluster": "charllm-ppt-h200", "parallelism": parallelism, "training": training}
    )
    return [in_flight(run, stage) for stage in range(pp)]


def whole(schedule: str, pp: int, microbatches: int, vpp: int = 1) -> list[tuple[int, ...]]:
    return [tuple(one.whole for one in stage) for stage in flights(schedule, pp, microbatches, vpp)]


def test_early_stages_run_ahead_in_1f1b() -> None:
    assert whole("1f1b", 4, 16) == [(4,), (3,), (2,), (1,)]


def test_later_stages_put_off_more_weight_passes_in_zero_bubble() -> None:
    assert [stage[0] for stage in flights("zero-bubble", 4, 16)] == [(4, 0), (3, 1), (2, 2), (1, 3)]
    assert flights("zero-bubble", 4, 2)[3] == (Flight(1, 1),)


def test_a_dualpipe_rank_holds_one_microbatch_more_than_stages_over_two_stages() -> None:
    assert whole("dualpipe", 4, 16) == [(4, 1), (3, 2), (2, 3), (1, 4)]
    assert whole("dualpipe", 4, 4) == [(2, 1), (2, 2), (2, 2), (1, 2)]


def test_no_more_than_all_microbatches_are_in_flight() -> None:
    assert whole("1f1b", 8, 3)[0] == (3,)


def test_gpipe_holds_them_all() -> None:
    assert whole("gpipe", 4, 16) == [(16,)] * 4


def test_forward_passes_alone_leave_nothing_behind() -> None:
    assert whole("forward-only", 4, 16) == [(0,)] * 4


def test_interleaving_holds_more_of_the_first_chunk() -> None:
    # Stage 0 of 4 with 2 chunks: 2 x 3 + 4 + 1 = 11 passes, in rounds of 4.
    assert whole("interleaved", 4, 16, vpp=2) == [(7, 4), (5, 4), (4, 3), (4, 1)]


@pytest.mark.parametrize("schedule", sorted(name for name in FLIGHTS if SCHEDULES[name].trains))
def test_every_schedule_that_trains_holds_something_on_every_stage(schedule: str) -> None:
    vpp = 2 if schedule == "interleaved" else 1
    for stage in flights(schedule, 4, 8, vpp):
        assert len(stage) == (2 if schedule in ("interleaved", "dualpipe") else 1)
        assert all(one.whole > 0 and sum(one) <= 8 for one in stage)


def test_weight_gradients_that_are_put_off_need_their_operands_or_what_recomputation_leaves() -> None:
    request: dict[str, Any] = {
        "model": "llama3-8b",
        "cluster": "h200x8",
        "parallelism": {"tp": 2, "pp": 4, "sp": False},
    }
    opening, *layers, head = (block for chunk in build_step(resolve_run(request)).chunks for block in chunk.blocks)
    assert _put_off(opening) == _put_off(head) == 0.0
    block = layers[0]
    # 8,192 tokens in two bytes: inputs and gradients of qkv, projection, fc1 and fc2, each cut in two by tp.
    operands = 2 * 8192 * (4096 + 3072 + 2048 + 4096 + 4096 + 14336 + 7168 + 4096)
    assert _put_off(block) == operands < block.replay.kept_bytes
    full = build_step(resolve_run({**request, "training": {"recompute": "full"}}))
    kept = next(one for chunk in full.chunks for one in chunk.blocks if one.is_layer)
    assert _put_off(kept) == kept.replay.kept_bytes < operands / 10


def test_live_bytes_are_those_kept_by_microbatches_in_flight_and_by_what_they_put_off() -> None:
    def passage(kept: float, put_off: float) -> Passage:
        return Passage(kept, put_off, 0.0, 0.0, 0.0, None, 0.0)  # type: ignore[arg-type]

    assert live_bytes([passage(10.0, 1.0), passage(100.0, 2.0)], (Flight(3, 2), Flight(1, 4))) == 30 + 2 + 100 + 8


def test_a_dualpipe_rank_holds_the_chunk_as_far_from_the_other_end() -> None:
    request: dict[str, Any] = {"model": "deepseek-v3", "cluster": {"base": "h200x32", "nodes": 16}}
    parallelism = {"pp": 4, "ep": 8, "schedule": "dualpipe", "layers_per_stage": [16, 15, 15, 15]}
    step = build_step(resolve_run({**request, "parallelism": parallelism}))
    assert [[chunk.stage for chunk in rank_chunks(step, stage)] for stage in range(4)] == [
        [0, 3],
        [1, 2],
        [2, 1],
        [3, 0],
    ]


def block(name: str, repeats: int, kept: float, forward: float, backward: float, **more: Any) -> Block:
    weights = Weights(dense=more.pop("weights", 0.0))
    return Block(name, (), repeats, Replay(kept, ()), weights, True, forward, backward, more.pop("hole", 0.0), **more)


def small_step(**changes: Any) -> Step:
    """A step whose stream of one microbatch is 1,000 bytes: what layers hand back as its gradient."""
    request = {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 1, **changes}}
    step = build_step(resolve_run({**request, "training": {"global_batch_size": 8}}))
    cut = replace(step.cut, shard_tokens=1, stream_bytes=1000 / step.run.model.hidden)
    return replace(step, cut=cut)


def test_a_microbatch_is_walked_forward_and_backward_and_its_high_waters_noted() -> None:
    layers = block("wide", 2, 100.0, 400.0, 500.0), block("narrow", 3, 50.0, 80.0, 90.0)
    head = block("head", 1, 10.0, 3000.0, 1500.0, is_layer=False, hole=7.0)
    found = pass_through(small_step(), Chunk(0, (*layers, head)), lambda _weights: 0.0)
    # Kept: 2 x 100 + 3 x 50 + 10. The highest is the head's forward pass, on top of what the layers keep.
    assert found.kept == 360.0
    assert found.peak == 350.0 + 3000.0
    # What the wide layers freed, 400 - 100, is in blocks too small for the head.
    assert found.pool_peak == 350.0 + 3000.0 + 300.0
    assert (found.put_off, found.side_pools) == (0.0, 0.0)
    # Without it, the last wide layer is, beside the gradient that the narrow ones hand it: 200 - 100 + 500 + 1000.
    alone = pass_through(small_step(), Chunk(0, layers), lambda _weights: 0.0)
    assert (alone.kept, alone.peak) == (350.0, 200.0 - 100.0 + 500.0 + 1000.0)
    # A head that is high going backward: its holes count, too.
    deep = block("head", 1, 10.0, 20.0, 5000.0, is_layer=False, hole=7.0)
    backward = pass_through(small_step(), Chunk(0, (*layers, deep)), lambda _weights: 0.0)
    assert backward.peak == 350.0 + 5000.0
    assert backward.pool_peak == 350.0 + 5000.0 + 300.0 + 7.0


def test_gradients_that_appear_on_the_way_stay_and_the_last_of_equal_layers_may_be_the_worst() -> None:
    layers = block("layer", 4, 100.0, 200.0, 300.0, weights=40.0)
    found = pass_through(small_step(), Chunk(0, (layers,)), lambda weights: 3.75 * weights.dense)
    # Going back, 100 are freed and 150 allocated for each layer: the last one holds 300 beside three other gradients.
    assert found.peak == 300.0 + 3 * 150.0
    assert found.pool_peak == 300.0 + 300.0
    all_four = pass_through(small_step(), Chunk(0, (layers,)), lambda _weights: 5000.0)
    assert all_four.peak == 20_000.0
    assert found.weights == Weights(dense=160.0)
    assert found.narrow_weights == 160.0


def test_what_is_offloaded_is_held_until_its_copy_has_ended() -> None:
    step = small_step()
    training = replace(step.run.training, activation_offload_fraction=0.25)
    step = replace(step, run=replace(step.run, training=training))
    layers, head = block("layer", 4, 100.0, 200.0, 150.0), block("head", 1, 10.0, 500.0, 20.0, is_layer=False)
    found = pass_through(step, Chunk(0, (layers, head)), lambda _weights: 0.0)
    assert found.kept == 4 * 75.0 + 10.0
    # Going back, the last layer holds 150 in place of its 75, the gradient of the head, and what is copied back.
    assert found.peak == 300.0 + (150.0 - 75.0) + 1000.0 + 25.0
    assert pass_through(step, Chunk(0, (layers,)), lambda _weights: 0.0).peak == 300.0 - 75.0 + 200.0 + 25.0
