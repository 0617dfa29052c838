from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.workload.liveness import FLIGHTS, Flight, in_flight


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


def test_interleaving_holds_more_of_the_first_chunk() -> None:
    # Stage 0 of 4 with 2 chunks: 2 x 3 + 4 + 1 = 11 passes, in rounds of 4.
    assert whole("interleaved", 4, 16, vpp=2) == [(7, 4), (5, 4), (4, 3), (4, 1)]


@pytest.mark.parametrize("schedule", sorted(FLIGHTS))
def test_every_schedule_holds_something_on_every_stage(schedule: str) -> None:
    vpp = 2 if schedule == "interleaved" else 1
    for stage in flights(schedule, 4, 8, vpp):
        assert len(stage) == (2 if schedule in ("interleaved", "dualpipe") else 1)
        assert all(one.whole > 0 and sum(one) <= 8 for one in stage)
