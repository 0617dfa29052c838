"""What a sweep adds to its simulations; benchmarks/sweep_speed.py measures it on 10,000 runs."""

from pathlib import Path

from benchmarks.sweep_speed import MOST_OVERHEAD_S, measure

BUSY = 4.0
"""Processors that others use, too, take so much longer for the same."""


def test_storing_a_case_takes_milliseconds_and_two_workers_give_the_same_table(tmp_path: Path) -> None:
    found = measure(48, tmp_path)
    assert 0 < found["overhead_cpu_s"] < BUSY * MOST_OVERHEAD_S
    assert found["simulation_cpu_s"] > found["overhead_cpu_s"]
