from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.spec.schedules import SCHEDULES
from charllm.workload.liveness import FLIGHTS, Flight, Passage, _put_off, in_flight, live_bytes, rank_chunks
from charllm.workload.step import build_step


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
