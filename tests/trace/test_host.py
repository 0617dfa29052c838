"""What launching takes the host, read from the calls of a trace."""

from itertools import chain
from pathlib import Path

import pytest

from charllm.trace.analyses.host import host_cost
from tests.trace.made import GEMM, event, launched, run_of, step

EACH_US = 30.0


def launches(count: int, late_us: float = 0.0, at: int = 5) -> list[dict[str, object]]:
    """Return launches a fixed time apart, but for one that comes later."""
    times = [10 + EACH_US * place + (late_us if place >= at else 0.0) for place in range(count)]
    return [*chain.from_iterable(launched(GEMM, us, us + 5, 4, place) for place, us in enumerate(times))]


def test_a_launch_takes_the_time_from_one_call_to_the_next(tmp_path: Path) -> None:
    (rank,) = run_of(tmp_path, [step(1, 0, 700), *launches(20)]).ranks
    found = host_cost(rank)
    assert found is not None
    assert found.each_s == pytest.approx(EACH_US * 1e-6)
    assert found.calls == 19


def test_a_wait_between_launches_is_no_launch(tmp_path: Path) -> None:
    (rank,) = run_of(tmp_path, [step(1, 0, 5700), *launches(20, late_us=5000)]).ranks
    found = host_cost(rank)
    assert found is not None
    assert found.each_s == pytest.approx(EACH_US * 1e-6)


def test_after_a_synchronising_call_the_host_begins_anew(tmp_path: Path) -> None:
    wait = event("cudaStreamSynchronize", "cuda_runtime", 10 + 4 * EACH_US + 3, 5000, correlation=99)
    (rank,) = run_of(tmp_path, [step(1, 0, 5700), *launches(20, late_us=5000), wait]).ranks
    found = host_cost(rank)
    assert found is not None
    assert found.each_s == pytest.approx(EACH_US * 1e-6, rel=0.03)


def test_without_launches_nothing_is_known_of_the_host(tmp_path: Path) -> None:
    (rank,) = run_of(tmp_path, [step(1, 0, 100), event("aten::mm", "cpu_op", 1, 50)]).ranks
    assert host_cost(rank) is None
