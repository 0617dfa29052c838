"""A trace that is played again gives its own step time; changed, what depends on the change moves."""

from functools import cache
from pathlib import Path

import pytest

from charllm.errors import SpecError
from charllm.report.replay import render_replay
from charllm.trace.replay import Edits, replay
from charllm.trace.run import TracedRun, read_run
from tests.trace.made import GEMM, collective, event, launched, run_of, step

EXAMPLE = Path(__file__).parents[2] / "examples" / "h200-moe"


@cache
def example() -> TracedRun:
    return read_run([EXAMPLE])


def test_an_unchanged_replay_gives_the_traces_own_step_time() -> None:
    found = replay(example().ranks, Edits())
    assert abs(found.error_fraction) < 0.01
    assert found.traced_s == pytest.approx(0.1168, rel=0.01)


@pytest.mark.parametrize(
    ("edits", "least", "most"),
    [
        (Edits(scale={"gemm": 0.8}), -0.13, -0.09),
        (Edits(clock_full={0: 0.88}), -0.10, -0.05),
        (Edits(launch=0.5), -0.10, -0.02),
        (Edits(scale={"gemm": 1.5}), 0.25, 0.32),
    ],
)
def test_a_change_moves_the_step_by_what_lies_on_its_path(edits: Edits, least: float, most: float) -> None:
    assert least < replay(example().ranks, edits).change_fraction < most


def two_ranks(folder: Path) -> TracedRun:
    """Rank 1 computes for 300 us, rank 0 for 100 us, then both reduce for 50 us after the last has come."""
    ranks = []
    for busy_us in (100, 300):
        events = [step(1, 0, 400), *launched(GEMM, 10, 20, busy_us, 1)]
        start = 20 + busy_us
        events.append(collective("allreduce", start, 320 + 50 - start, ranks=[0, 1], description="data_parallel"))
        events.append(event("cudaStreamSynchronize", "cuda_runtime", 30, 345, correlation=9))
        ranks.append(events)
    return run_of(folder, *ranks)


def test_collectives_whose_peers_have_no_trace_keep_their_time_and_are_counted(tmp_path: Path) -> None:
    run = two_ranks(tmp_path)
    both, one = replay(run.ranks, Edits()), replay(run.ranks[:1], Edits())
    assert (both.kept, both.kept_s) == (0, 0.0)
    assert one.kept == 1
    # Rank 0 waits 200 us for rank 1, then transfers for 50.
    assert one.kept_s == pytest.approx(250e-6)
    assert "1 collective of a step" in render_replay(one, Edits())
    assert "traced time" not in render_replay(both, Edits())


def test_a_faster_network_shortens_transfers_and_not_waits(tmp_path: Path) -> None:
    run = two_ranks(tmp_path)
    before = replay(run.ranks, Edits())
    faster = replay(run.ranks, Edits(nic=2.0, gpus_per_node=1))
    hidden = replay(run.ranks, Edits(hide=("dp",)))
    assert before.unchanged_s == pytest.approx(before.traced_s)
    assert faster.changed_s == pytest.approx(before.traced_s - 25e-6, abs=2e-6)
    assert hidden.changed_s == pytest.approx(before.traced_s - 50e-6, abs=2e-6)


def test_a_faster_straggler_lets_the_others_end_earlier(tmp_path: Path) -> None:
    found = replay(two_ranks(tmp_path).ranks, Edits(clock_full={1: 0.5}))
    assert found.changed_s == pytest.approx(found.traced_s - 150e-6, abs=2e-6)


def test_changes_of_what_a_trace_does_not_have_are_refused() -> None:
    for edits in (Edits(hide=("dp",)), Edits(scale={"gem": 0.5}), Edits(clock_full={7: 0.9}), Edits(nic=2.0)):
        with pytest.raises(SpecError):
            replay(example().ranks, edits)
