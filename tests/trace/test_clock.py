"""The clock of a trace is found from ranges whose names tell the monotonic clock."""

from pathlib import Path

import numpy as np
import pytest

from charllm.profile import CLOCK
from charllm.trace.clock import read_clock
from charllm.trace.kineto import read_kineto
from tests.trace.made import GEMM, event, kernel, text

OFFSET_US = 5_000_000


def test_the_offset_lies_between_the_end_of_one_range_and_the_start_of_the_next(tmp_path: Path) -> None:
    ticks = [event(f"{CLOCK}{(start + OFFSET_US - 2) * 1000}", "user_annotation", start, 3)
             for begin in (100, 900_000) for start in range(begin, begin + 40, 10)]  # fmt: skip
    (tmp_path / "rank-0.json").write_text(text([*ticks, kernel(GEMM, 500, 100)]))
    trace = read_kineto(tmp_path / "rank-0.json")
    clock = read_clock(trace)
    assert clock is not None
    assert clock.error_s < 4e-6
    origin_s = trace.origin_ns * 1e-9
    (mid_s,) = clock.monotonic_s(np.array([500e-6 - origin_s]))
    assert mid_s == pytest.approx(500e-6 + OFFSET_US * 1e-6, abs=5e-6)


def test_without_such_ranges_the_wall_clock_serves_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "rank-0.json").write_text(text([kernel(GEMM, 500, 100)]))
    trace = read_kineto(tmp_path / "rank-0.json")
    assert read_clock(trace) is None
    clock = read_clock(trace, wall_less_monotonic_s=100.0)
    assert clock is not None
    assert clock.source == "wall clock"
