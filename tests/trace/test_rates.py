"""Rates of products and copies by shape, beside the model's."""

from pathlib import Path
from typing import Any

import pytest

from charllm.report.trace import render_trace
from charllm.trace.analyses.kernels import kernel_rows
from charllm.trace.analyses.rates import gpu_of, rate_rows, read_work
from charllm.trace.run import TracedRank
from charllm.trace.summary import summarize
from tests.trace.made import GEMM, Event, event, launched, run_of, step

BF16 = "c10::BFloat16"


def call(operator: str, at_us: float, kernels_us: list[float], number: int, dims: Any, types: Any) -> list[Event]:
    """Return an operator on these operands, and the kernels that it launches."""
    found = [event(operator, "cpu_op", at_us, 9, **{"External id": number, "Input Dims": dims, "Input type": types})]
    for place, length_us in enumerate(kernels_us):
        launch, kernel = launched(GEMM, at_us + 1 + place, at_us + 10 + 100 * place, length_us, 100 * number + place)
        launch["args"]["External id"] = number
        found += [launch, kernel]
    return found


def traced(folder: Path, *calls: list[Event]) -> TracedRank:
    return run_of(folder, [step(1, 0, 5000), *(one for each in calls for one in each)]).ranks[0]


def test_a_product_takes_the_time_of_all_its_operators_kernels(tmp_path: Path) -> None:
    dims, types = [[4096], [8192, 1024], [1024, 4096], [], []], [BF16, BF16, BF16, "Scalar", "Scalar"]
    rank = traced(
        tmp_path,
        call("aten::addmm", 0, [90, 30], 1, dims, types),
        call("aten::addmm", 500, [120], 2, dims, types),
    )
    assert [row.operator for row in kernel_rows(rank)] == ["aten::addmm"]
    gpu = gpu_of(rank)
    assert gpu is not None
    (row,) = rate_rows(rank, gpu)
    assert (row.operator, row.shape, row.calls) == ("aten::addmm", "8192x4096x1024", 2)
    assert row.seconds == pytest.approx(240e-6)
    assert row.flop_per_s == pytest.approx(2 * 8192 * 4096 * 1024 / 120e-6)
    assert row.predicted_seconds is not None
    # 69 GFLOP a call at 640 to 800 TFLOP/s on an H200.
    assert 2 * 69e9 / 800e12 < row.predicted_seconds < 2 * 69e9 / 640e12


def test_an_operator_that_moves_memory_reads_its_inputs_and_writes_the_largest_again(tmp_path: Path) -> None:
    large = [4096, 8192]
    rank = traced(
        tmp_path,
        call("aten::add", 0, [50], 1, [large, large, []], [BF16, BF16, "Scalar"]),
        call("aten::copy_", 500, [50], 2, [large, large, []], ["float", BF16, ""]),
    )
    by = {row.operator: row for row in rate_rows(rank, None)}
    elements = 4096 * 8192
    assert by["aten::add"].bytes_per_s == pytest.approx(3 * 2 * elements / 50e-6)
    assert by["aten::copy_"].bytes_per_s == pytest.approx((4 + 2) * elements / 50e-6)
    assert by["aten::add"].predicted_seconds is None


@pytest.mark.parametrize(
    ("operator", "operands"),
    [
        ("aten::mm", "[[8, 4], [5, 2]] ['float', 'float']"),
        ("aten::mm", "[[8, 4]] ['float']"),
        ("aten::mm", "[[8, 4], [4, 2]] ['float']"),
        ("aten::mm", "[[8, -4], [4, 2]] ['float', 'float']"),
        ("aten::bmm", "[[3, 8, 4], [2, 4, 2]] ['float', 'float']"),
        ("aten::add", f"[[8, 4], [8, 4]] ['{BF16}', '{BF16}']"),
        ("aten::add", "[[4096, 8192], [1]] ['float', 'NewType']"),
        ("aten::mm", "[[8, 4], [4, 2]"),
        ("aten::mm", "None None"),
        ("aten::mm", "[" * 999 + "] ["),
    ],
)
def test_operands_that_say_no_size_of_work_have_no_rate(operator: str, operands: str) -> None:
    assert read_work(operator, operands) is None


def test_an_id_that_stands_for_several_operands_has_none(tmp_path: Path) -> None:
    first, second = [[8, 4], [4, 2]], [[16, 4], [4, 2]]
    rank = traced(
        tmp_path,
        call("aten::mm", 0, [10], 1, first, ["float"] * 2),
        call("aten::mm", 500, [10], 1, second, ["float"] * 2),
        call("aten::mm", 900, [10], 2, second, ["float"] * 2),
    )
    assert [(row.shape, row.calls) for row in rate_rows(rank, None)] == [("16x2x4", 1)]


def test_a_slow_kernel_is_seen_beside_the_model_and_missing_operands_are_said(tmp_path: Path) -> None:
    dims, types = [[8192, 1024], [1024, 4096]], [BF16, BF16]
    events = [step(1, 0, 5000), *call("aten::mm", 0, [400], 1, dims, types)]
    told = render_trace(summarize(run_of(tmp_path, events)))
    line = next(line for line in told.splitlines() if line.startswith("mm "))
    assert "8192x4096x1024" in line
    assert float(line.split()[-1]) > 3
    bare = summarize(run_of(tmp_path, [step(1, 0, 5000), *launched(GEMM, 1, 20, 400, 7)]))
    assert any(text.startswith("rates: no operands") for text in bare["warnings"])


def test_kernels_of_an_unknown_device_are_said(tmp_path: Path) -> None:
    found = summarize(run_of(tmp_path, [step(1, 0, 5000), *launched("pe_exe", 1, 20, 400, 7)]))
    assert any("100% of the work is of kernels whose names are not known" in text for text in found["warnings"])
