from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.workload.liveness import FLIGHTS, in_flight


def flights(schedule: str, pp: int, microbatches: int, vpp: int = 1) -> list[tuple[int, ...]]:
    parallelism: dict[str, Any] = {"pp": pp, "vpp": vpp, "schedule": schedule, "dp": 32 // pp}
    training = {"global_batch_size": microbatches * 32 // pp}
    run = resolve_run({"model": "gpt3-175b", "cluster": "h200x32", "parallelism": parallelism, "training": training})
    return [in_flight(run, stage) for stage in range(pp)]


def test_early_stages_run_ahead_in_1f1b() -> None:
    assert flights("1f1b", 4, 16) == [(4,), (3,), (2,), (1,)]
    # Weight passes put off keep what they need: as much on every stage as 1F1B on its first.
    assert flights("zero-bubble", 4, 16) == [(4,)] * 4


def test_no_more_than_all_microbatches_are_in_flight() -> None:
    assert flights("1f1b", 8, 3)[0] == (3,)


def test_gpipe_holds_them_all() -> None:
    assert flights("gpipe", 4, 16) == [(16,)] * 4


def test_interleaving_holds_more_of_the_first_chunk() -> None:
    # Stage 0 of 4 with 2 chunks: 2 x 3 + 4 + 1 = 11 passes, in rounds of 4.
    assert flights("interleaved", 4, 16, vpp=2) == [(7, 4), (5, 4), (4, 3), (4, 1)]


@pytest.mark.parametrize("schedule", sorted(FLIGHTS))
def test_every_schedule_holds_something_on_every_stage(schedule: str) -> None:
    vpp = 2 if schedule == "interleaved" else 1
    for stage in flights(schedule, 4, 8, vpp):
        assert len(stage) == vpp
        assert all(0 < count <= 8 for count in stage)
