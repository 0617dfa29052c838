"""What board power does, whatever the numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_cluster
from charllm.gpu.l2_cache import reread_bytes, uncached_fraction
from charllm.gpu.physics import Energy, board_of, operating_point, standing_w, voltage, working_w
from charllm.spec.hardware import Gpu

GPUS = [resolve_cluster(name).gpu for name in ("h200x8", "h100x8", "a100x8", "b200x8", "mi250x8", "mi300x8")]
CLOCKS = st.floats(2e8, 1.9e9)


@given(st.sampled_from(GPUS), CLOCKS, CLOCKS, st.floats(20, 95))
def test_a_higher_clock_never_draws_less(gpu: Gpu, one_hz: float, other_hz: float, degrees_c: float) -> None:
    low, high = sorted((one_hz, other_hz))
    board, work = board_of(gpu), Energy(3.0, 2.0, 1.0)
    assert voltage(board, low) <= voltage(board, high)
    watts = [
        working_w(board, operating_point(board, clock, clock), degrees_c, work, low / clock) for clock in (low, high)
    ]
    assert watts[0] <= watts[1]


@given(st.sampled_from(GPUS), CLOCKS, st.floats(20, 95), st.floats(0.1, 30))
def test_a_warmer_board_draws_its_leakage_more(gpu: Gpu, clock_hz: float, degrees_c: float, warmer_k: float) -> None:
    board = board_of(gpu)
    level = operating_point(board, clock_hz, clock_hz).level
    cool, warm = (standing_w(board, level, at_c) for at_c in (degrees_c, degrees_c + warmer_k))
    assert warm - cool == pytest.approx(gpu.power.leakage_w_per_k * warmer_k, abs=1e-9)


def test_energies_add_up() -> None:
    one, other = Energy(1.0, 2.0, 3.0), Energy(0.5, 0.25, 0.125)
    assert one.plus(other, 4) == Energy(3.0, 3.0, 3.5)


@given(st.integers(1, 20000), st.integers(1, 20000), st.integers(1, 20000))
def test_what_fits_in_cache_is_not_read_again(m: int, n: int, k: int) -> None:
    gpu = GPUS[0]
    one, rows, columns, depth, size = (np.array([float(value)]) for value in (1, m, n, k, 2))
    again = float(reread_bytes(gpu, one, rows, columns, depth, size)[0])
    assert again >= 0
    if 2.0 * (m * k + k * n) < 0.4 * gpu.l2_bytes:
        assert again == 0
    assert 0 <= uncached_fraction(gpu, np.array([2.0 * (m * k + k * n)]))[0] <= 1
