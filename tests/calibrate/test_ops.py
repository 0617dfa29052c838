"""Constants of power and kernels come back from ops that the model itself made."""

from functools import lru_cache

import numpy as np
import pytest

from charllm.calibrate.ops import Bench, apply, fit_identified, fit_ops, folds_by_shape, gather, predict
from charllm.errors import SpecError
from charllm.evaluate.h200.tables import READINGS
from charllm.evaluate.ops import bench_machine, predict_ops
from charllm.evaluate.ops_table import Measured, OpRow, read_ops

READ = READINGS / "ops.csv"
TRUTH = {
    "power.flop_j": 0.80e-12,
    "power.memory_byte_j": 50e-12,
    "kernels.matrix_fraction": 0.86,
    "kernels.attention_fraction": 0.60,
    "kernels.memory_fraction": 0.85,
}


def made_rows(kinds: tuple[str, ...] = (), silicon: float = 1.0) -> list[OpRow]:
    """Ops as a GPU of other constants would show them, with the noise of readings."""
    cluster = bench_machine("h200")
    rows = [row for row in read_ops(str(READ))[0] if not row.on_s and (not kinds or row.shape.kind in kinds)]
    other = apply(cluster.gpu, TRUTH)
    bench = gather([rows], cluster)
    said = predict(bench._replace(board=np.zeros(len(rows), dtype=np.int64)), other, {"board.0": silicon})
    noise = np.random.default_rng(2).normal(1.0, 0.003, (3, len(rows)))
    seconds, watts, clock = (said[name] * noise[at] for at, name in enumerate(("seconds", "watts", "clock")))
    return [
        row._replace(measured=Measured(float(seconds[place]), float(watts[place]), float(clock[place]), None))
        for place, row in enumerate(rows)
    ]


@lru_cache
def made_bench(kinds: tuple[str, ...] = ()) -> Bench:
    return gather([made_rows(kinds)], bench_machine("h200"))


def test_known_constants_are_recovered_from_noisy_ops() -> None:
    found = {each.name: each for each in fit_ops(made_bench(), bench_machine("h200").gpu).found}
    for name, truth in TRUTH.items():
        assert found[name].value == pytest.approx(truth, rel=max(0.03, 4 * found[name].error_fraction)), name
        assert found[name].identified, name


def test_without_attention_its_constants_are_flagged_and_stay() -> None:
    gpu = bench_machine("h200").gpu
    found = {each.name: each for each in fit_identified(made_bench(("gemm", "copy", "add")), gpu).found}
    for name in ("kernels.attention_fraction", "kernels.tile_ramp", "power.softmax_flop_fraction", "power.fp4_flop_j"):
        if name in found:
            assert not found[name].identified, name
            assert found[name].value == found[name].prior
    assert found["kernels.matrix_fraction"].identified


def test_boards_are_told_apart_by_their_silicon() -> None:
    cluster = bench_machine("h200")
    kinds = ("gemm", "copy", "add")
    bench = gather([made_rows(kinds), made_rows(kinds, silicon=1.06)], cluster)
    values = fit_ops(bench, cluster.gpu).values()
    assert values["board.1"] / values["board.0"] == pytest.approx(1.06, abs=0.01)


def test_one_board_has_no_factor_of_its_own() -> None:
    cluster = bench_machine("h200")
    bench = gather([made_rows(("gemm",))[:12]], cluster)
    assert not any(each.name.startswith("board.") for each in fit_ops(bench, cluster.gpu).found)


def test_too_few_ops_name_the_parameter_and_what_is_needed() -> None:
    with pytest.raises(SpecError, match=r"power\.flop_j.*at least 10 ops.*1 minute"):
        gather([made_rows()[:5]], bench_machine("h200"))


def test_no_shape_is_both_fitted_and_judged() -> None:
    bench = made_bench()
    fold = folds_by_shape(bench, 4)
    where: dict[object, set[int]] = {}
    for row, number in zip(bench.rows, fold, strict=True):
        where.setdefault((row.shape.kind, row.shape.dims, row.shape.precision), set()).add(int(number))
    assert set(fold.tolist()) == {0, 1, 2, 3}
    assert all(len(numbers) == 1 for numbers in where.values())


def test_calibration_and_validation_predict_alike() -> None:
    cluster = bench_machine("h200")
    rows = [row for row in read_ops(str(READ))[0] if not row.on_s]
    bench = gather([rows], cluster)
    said = predict(bench, cluster.gpu, {})
    alone = predict_ops(bench.rows, cluster)
    assert said["seconds"] == pytest.approx([each.seconds_s for each in alone], rel=0.005)
    assert said["watts"] == pytest.approx([each.power_w for each in alone], rel=0.01)
