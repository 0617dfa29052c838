"""Ranks that wait for the last of their group."""

from dataclasses import replace

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.spec.run import RunSpec
from charllm.timeline.arrival import arrival_wait_s, slowest_of, straggling_fraction
from charllm.timeline.constants import TIMELINE

CONSTANTS = replace(TIMELINE, arrival_s=3e-5, uneven_host_fraction=0.2)


def run_of(tp: int) -> RunSpec:
    return resolve_run({"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": tp}})


def test_the_slowest_of_more_gpus_is_further_behind() -> None:
    behind = [slowest_of(count) for count in (1, 2, 8, 64, 1024, 16384)]
    assert behind[0] == 0
    assert behind == sorted(behind)
    # The mean of the largest of 1000 standard normal variables is 3.24.
    assert slowest_of(1000) == pytest.approx(3.24, rel=0.04)


@pytest.mark.parametrize(("count", "behind"), [(1, 0.0), (2, 0.56), (8, 1.2393), (1024, 3.1234)])
def test_the_slowest_of_some_gpus_is_where_the_gumbel_limit_lies(count: int, behind: float) -> None:
    # sqrt(2 ln n) - (ln ln n + ln 4 pi) / (2 sqrt(2 ln n)): for 8, 2.0393 - (0.7321 + 2.5310) / 4.0787;
    # for 1024, 3.7233 - (1.9361 + 2.5310) / 7.4466; for two, the mean of the larger: 1 / sqrt(pi).
    assert slowest_of(count) == pytest.approx(behind, abs=1e-3)


def test_a_rank_waits_in_seconds_whatever_is_exchanged() -> None:
    waits_s = [arrival_wait_s(run_of(tp), "tp", CONSTANTS) for tp in (1, 2, 8)]
    assert waits_s == pytest.approx([0.0, 0.56 * 3e-5, 1.2393 * 3e-5], rel=1e-3)


def test_uneven_hosts_add_to_jitter_as_independent_causes_do() -> None:
    # 0.2 x 0.2 ms of launches beside 0.03 ms: 3, 4, 5.
    assert arrival_wait_s(run_of(8), "tp", CONSTANTS, 2e-4) == pytest.approx(1.2393 * 5e-5, rel=1e-3)


def test_a_step_waits_for_the_slowest_of_all_gpus() -> None:
    assert straggling_fraction(run_of(2), CONSTANTS) == pytest.approx(CONSTANTS.straggler_fraction * slowest_of(8))
