"""The inner loop, as machine code, against the equations it writes out."""

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_cluster
from charllm.gpu.board import Energy, standing_w, working_w
from charllm.gpu.heat import network
from charllm.simulate.one_gpu import SingleGpu
from charllm.simulate.slices import BOARD_J, COLUMNS, CORE_J, CYCLES, FIXED, MATRIX_J

ONE = resolve_cluster("h200x1")
SHORT_S = 0.004
"""Within one box, so that neither clock nor temperature move."""


@pytest.mark.parametrize("energy", [Energy(1.0, 0.0, 0.0), Energy(0.0, 0.7, 0.2), Energy(0.9, 0.4, 0.3)])
@pytest.mark.parametrize("silicon", [1.0, 1.2])
def test_a_slice_draws_what_the_board_equation_says(energy: Energy, silicon: float) -> None:
    single = SingleGpu(ONE.gpu, network(ONE.node, ONE.cooling), ONE.cooling.inlet_of(0), silicon=silicon)
    clock_hz = ONE.gpu.clock_max_hz
    matrix_hz = ONE.gpu.governor.burst_clock_fraction * clock_hz
    row = np.zeros(COLUMNS)
    row[CYCLES], row[FIXED] = SHORT_S / 2 * clock_hz, SHORT_S / 2
    row[MATRIX_J], row[CORE_J], row[BOARD_J] = energy
    single.spend(row[None, None])
    seen, power = single.seen(), ONE.gpu.power
    # Before any work the die stands at the rises of its rest; leakage of a die scales with it.
    rest_c = seen.temperature_mean_c
    standing = standing_w(power, clock_hz, clock_hz, power.reference_c)
    leaking = silicon * power.leakage_w_per_k * (rest_c - power.reference_c)
    working = working_w(power, energy, SHORT_S, clock_hz, matrix_hz, silicon)
    assert seen.seconds_s == pytest.approx(SHORT_S, rel=1e-9)
    assert seen.power_mean_w == pytest.approx(standing + leaking + working, rel=1e-9)
