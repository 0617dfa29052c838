"""The inner loop, as machine code, against the equations that it calls."""

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_cluster, resolve_run
from charllm.gpu.heat import network
from charllm.gpu.physics import Energy, board_of, operating_point, working_w
from charllm.simulate.one_gpu import SingleGpu
from charllm.simulate.predict import predict
from charllm.simulate.recorded import WAIT
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
    seen, board = single.seen(), board_of(ONE.gpu)
    at = operating_point(board, clock_hz, matrix_hz)
    drawn_w = working_w(board, at, seen.temperature_mean_c, energy, SHORT_S, silicon)
    assert seen.seconds_s == pytest.approx(SHORT_S, rel=1e-9)
    assert seen.power_mean_w == pytest.approx(drawn_w, rel=1e-9)


def test_members_of_every_group_wait_for_the_last_of_them_and_others_do_not() -> None:
    request = {
        "model": "llama3-8b", "cluster": {"base": "h200x8", "node": {"upstream": []}}, "parallelism": {"tp": 2},
        "training": {"global_batch_size": 8},
    }  # fmt: skip
    waits = {}
    for capped in (0, 7):
        run = resolve_run({**request, "conditions": {"capped_gpus": [capped], "capped_power_w": 350.0}})
        simulated = predict(run).simulated_step
        assert simulated is not None
        waits[capped] = simulated.passes[:, :, WAIT].sum(axis=0)
    assert waits[7][6] > 0.05
    assert waits[7][6] == pytest.approx(waits[0][1], rel=0.02)
    assert waits[7][:6].max() < 0.1 * waits[7][6]
    assert waits[7][7] < 0.1 * waits[7][6]
