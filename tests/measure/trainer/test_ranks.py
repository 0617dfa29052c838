"""Ranks for tests: they talk to each other, and one that fails or hangs is told with its reason."""

import os
import time

import pytest
import torch
import torch.distributed as dist

from tests.measure.trainer.ranks import RankFailed, run_ranks


def add_up(factor: int) -> tuple[int, int, int]:
    total = torch.tensor(factor * dist.get_rank())
    dist.all_reduce(total)
    return dist.get_rank(), int(total), torch.get_num_threads()


def test_ranks_talk_to_each_other_on_one_thread_each() -> None:
    assert run_ranks(3, add_up, 10) == [(0, 30, 1), (1, 30, 1), (2, 30, 1)]


def fail_on_one() -> None:
    if dist.get_rank() == 1:
        raise ValueError("a wrong turn")
    dist.barrier()


def test_a_rank_that_raises_fails_the_test_with_its_traceback() -> None:
    with pytest.raises(RankFailed, match=r"rank 1 failed:(.|\n)*fail_on_one(.|\n)*a wrong turn"):
        run_ranks(2, fail_on_one)


def die_on_one() -> None:
    if dist.get_rank() == 1:
        os._exit(9)
    time.sleep(300)


def test_a_rank_that_dies_is_named() -> None:
    with pytest.raises(RankFailed, match="rank 1 died"):
        run_ranks(2, die_on_one)


def test_ranks_that_hang_are_ended_in_time() -> None:
    began_s = time.monotonic()
    with pytest.raises(RankFailed, match="ranks 0, 1 did not end in time"):
        run_ranks(2, time.sleep, 300, timeout_s=1.0, connect=False)
    assert time.monotonic() - began_s < 100
