"""Clocks of nodes against the head's: offset, drift, and how far a time may be off."""

import random
from pathlib import Path

import numpy as np
import pytest

from charllm.measure import clock as module
from charllm.measure.clock import CLOCK_FILE, Clock, Comparison, compare, read_clock

AHEAD_NS, WALL_AHEAD_NS = 7_000_000_000, -3_000_000_000


class HandClock:
    """Clocks of a node that are moved by hand."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    def time_ns(self) -> int:
        return self.now_ns + 5_000_000_000

    def monotonic(self) -> float:
        return self.now_ns / 1e9


def test_the_shortest_of_many_round_trips_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    wait, clock = random.Random(1), HandClock()
    monkeypatch.setattr(module, "time", clock)

    def ask() -> tuple[int, int]:
        clock.now_ns += 100_000 + wait.choice((0, 2_000_000))
        stamp = clock.monotonic_ns() + AHEAD_NS, clock.time_ns() + WALL_AHEAD_NS
        clock.now_ns += 150_000 + wait.choice((0, 5_000_000))
        return stamp

    found = compare(ask, 30)
    assert found.round_trips == 30
    assert found.uncertainty_s < 0.001
    assert found.monotonic_s == pytest.approx(7.0, abs=2 * found.uncertainty_s)
    assert found.wall_s == pytest.approx(-3.0, abs=2 * found.uncertainty_s + 1e-4)


def test_times_between_two_comparisons_are_shifted_along_the_drift() -> None:
    clock = Clock(Comparison(100.0, 5.0, 50.0, 1e-4, 50), Comparison(200.0, 5.1, 50.1, 3e-4, 50))
    assert clock.drift_fraction == pytest.approx(0.001)
    assert list(clock.to_head(np.array([100.0, 150.0, 200.0]))) == pytest.approx([105.0, 155.05, 205.1])
    assert list(clock.to_head_wall(np.array([1000.0]), np.array([150.0]))) == pytest.approx([1050.05])
    assert clock.uncertainty_s(200.0) == 3e-4


def test_a_clock_that_was_compared_once_is_less_sure_the_longer_ago_that_is() -> None:
    clock = Clock(Comparison(100.0, 5.0, 50.0, 1e-4, 50))
    assert clock.moment(400.0) == 405.0
    assert clock.uncertainty_s(100.0) == 1e-4
    assert clock.uncertainty_s(1100.0) == pytest.approx(0.1001)


def test_a_clock_that_was_never_compared_is_the_heads_own(tmp_path: Path) -> None:
    assert read_clock(tmp_path) == Clock()
    assert Clock().moment(3.0) == 3.0
    assert Clock().uncertainty_s(3.0) is None
    (tmp_path / CLOCK_FILE).write_text('{"start": 1}')
    assert read_clock(tmp_path) == Clock()


def test_a_clock_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    clock = Clock(Comparison(100.0, 5.0, 50.0, 1e-4, 50), None)
    clock.write(tmp_path)
    assert read_clock(tmp_path) == clock
