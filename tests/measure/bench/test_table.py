"""What the bench found, as one row an op."""

import csv
import io
from pathlib import Path

import pytest

from charllm.gpu.shape import KernelShape
from charllm.measure.bench.run import OpRun
from charllm.measure.bench.suite import OpCase
from charllm.measure.bench.table import COLUMNS, tabulate, to_csv
from charllm.measure.recording import Recording, read_recording
from charllm.measure.window import look
from tests.measure.replays import CAPTURE, LOADED_S, make_replay

GEMM = OpCase("gemm", "g", KernelShape("gemm", (1, 32, 48, 16)), 1.0)
COPY = OpCase("memory", "c", KernelShape("copy", (1000,)), 1.0)
WAIT = OpCase("soak", "w", None, 1.0)


@pytest.fixture(scope="module")
def recording() -> Recording:
    return read_recording(CAPTURE)


def loaded(recording: Recording) -> float:
    return float(recording.fast(0).times_s[0]) + LOADED_S


def ran(case: OpCase, start_s: float, calls: int = 1000, error: str = "") -> OpRun:
    return OpRun(case.name, start_s, start_s + 1.0, calls, 0.5, error)


def test_a_row_joins_the_op_its_speed_and_its_readings(recording: Recording) -> None:
    start_s = loaded(recording)
    (row,) = tabulate([GEMM], [ran(GEMM, start_s)], recording)
    seen = look(recording, 0, start_s, start_s + 1.0)
    assert tuple(row) == COLUMNS
    assert (row["kind"], row["a"], row["b"], row["c"], row["dims"]) == ("gemm", 32, 48, 16, "1x32x48x16")
    assert row["s_per_call"] == 0.5 / 1000
    assert row["tflops_or_tbps"] == pytest.approx(2 * 32 * 48 * 16 / 0.0005 / 1e12)
    assert row["busy_fraction"] == pytest.approx(0.5)
    assert row["mean_w"] == seen.power_mean_w
    assert row["sm_mhz"] == pytest.approx((seen.clock_mean_hz or 0) / 1e6)
    assert row["instant_max_w"] == seen.power_peak_sensor_w
    assert 400 < row["mean_w"] < 800


def test_streams_are_told_in_bytes(recording: Recording) -> None:
    (row,) = tabulate([COPY], [ran(COPY, loaded(recording))], recording)
    assert row["tflops_or_tbps"] == pytest.approx(4000 / 0.0005 / 1e12)
    assert (row["a"], row["b"], row["c"]) == (1000, 0, 0)


def test_attention_is_named_by_batch_heads_and_sequence(recording: Recording) -> None:
    case = OpCase("attention", "x", KernelShape("attention", (2, 8, 4, 128, 64)), 1.0)
    (row,) = tabulate([case], [ran(case, loaded(recording))], recording)
    assert (row["a"], row["b"], row["c"]) == (2, 8, 128)


def test_nothing_has_watts_but_no_speed(recording: Recording) -> None:
    (row,) = tabulate([WAIT], [ran(WAIT, loaded(recording), calls=0)], recording)
    assert (row["kind"], row["s_per_call"]) == ("", "")
    assert row["mean_w"] > 0


def test_a_failure_keeps_its_shape_and_has_neither_speed_nor_watts(recording: Recording) -> None:
    (row,) = tabulate([GEMM], [ran(GEMM, loaded(recording), calls=0, error="no room")], recording)
    assert (row["kind"], row["dims"], row["error"]) == ("gemm", "1x32x48x16", "no room")
    assert all(row[name] == "" for name in ("s_per_call", "tflops_or_tbps", "mean_w", "sm_mhz", "temp_end_c"))


def test_readings_are_of_the_first_gpu_that_was_sampled(tmp_path: Path) -> None:
    make_replay(tmp_path / "two", gpus=2)
    both = read_recording(tmp_path / "two")
    second = Recording(both.facts, {1: both.series[1]})
    start_s = float(both.fast(1).times_s[0])
    assert tabulate([GEMM], [ran(GEMM, start_s)], second)[0]["mean_w"] > 400
    assert tabulate([GEMM], [ran(GEMM, start_s)], Recording(both.facts, {}))[0]["mean_w"] == ""


def test_a_run_of_an_unknown_case_is_left_out(recording: Recording) -> None:
    assert tabulate([COPY], [ran(GEMM, loaded(recording))], recording) == []


def test_a_window_before_the_recording_has_no_readings(recording: Recording) -> None:
    (row,) = tabulate([GEMM], [ran(GEMM, 1.0)], recording)
    assert (row["mean_w"], row["sm_mhz"], row["power_limited"]) == ("", "", "")
    assert row["calls"] == 1000


def test_csv_reads_back(recording: Recording) -> None:
    rows = tabulate([GEMM, WAIT], [ran(GEMM, loaded(recording)), ran(WAIT, loaded(recording) + 1, 0)], recording)
    back = list(csv.DictReader(io.StringIO(to_csv(rows))))
    assert [row["name"] for row in back] == ["g", "w"]
    for row, found in zip(rows, back, strict=True):
        assert tuple(found) == COLUMNS
        for name in ("mean_w", "sm_mhz", "window_s"):
            assert float(found[name]) == pytest.approx(row[name], rel=1e-5)
        assert float(found["t0"]) == row["t0"]
