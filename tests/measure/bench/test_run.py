"""Cases run one after the other, on the CPU: order, windows, failures, a record cut short."""

import json
import os
import time
from pathlib import Path

import pytest

from charllm.gpu.shape import KernelShape
from charllm.measure.bench.run import MODES, RUNS_FILE, OpRun, read_runs, run_suite, shuffled
from charllm.measure.bench.suite import OpCase, full_suite

GEMM = KernelShape("gemm", (1, 32, 32, 32))
STEADY = OpCase("a", "steady", GEMM, 0.05)
IDLE = OpCase("a", "idle", None, 0.05)
BURST = OpCase("a", "burst", GEMM, 0.3, "burst", on_s=0.005, period_s=0.05)
BESIDE = OpCase("a", "beside", GEMM, 0.05, "beside", beside="spin", blocks=4)
BROKEN = OpCase("a", "broken", KernelShape("attention", (1, 4, 3, 8, 8)), 0.05)


def run(folder: Path, *cases: OpCase, seed: int = 0) -> dict[str, OpRun]:
    return {case.name: outcome for case, outcome in run_suite(list(cases), folder, "cpu", seed)}


def test_the_order_is_random_by_seed_and_the_soak_stays_last() -> None:
    suite = full_suite()
    orders = [[case.name for case in shuffled(suite, seed)] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(case.name for case in suite)
    assert all(order[-3:] == ["soak", "cool-down", "idle"] for order in orders)


def test_an_op_runs_for_its_time_and_its_calls_are_counted(tmp_path: Path) -> None:
    before_s = time.monotonic()
    outcome = run(tmp_path, STEADY)["steady"]
    assert before_s < outcome.start_s < outcome.end_s < time.monotonic()
    assert 0.05 <= outcome.end_s - outcome.start_s < 2.0
    assert outcome.calls >= 1
    assert outcome.on_s == outcome.end_s - outcome.start_s
    assert outcome.error == ""


def test_nothing_can_be_run_too(tmp_path: Path) -> None:
    outcome = run(tmp_path, IDLE)["idle"]
    assert (outcome.calls, outcome.on_s, outcome.error) == (0, 0.0, "")
    assert outcome.end_s - outcome.start_s >= 0.05


def test_a_burst_is_on_for_a_part_of_each_period(tmp_path: Path) -> None:
    outcome = run(tmp_path, BURST)["burst"]
    length_s = outcome.end_s - outcome.start_s
    assert 0.3 <= length_s < 3.0
    assert 0 < outcome.on_s < length_s * 0.9
    assert outcome.calls > 0


def test_one_that_fails_is_a_row_with_its_reason_and_the_rest_run(tmp_path: Path) -> None:
    outcomes = run(tmp_path, STEADY, BESIDE, BROKEN, BURST._replace(name="empty", shape=None), IDLE)
    assert outcomes["beside"].error == "beside: needs a GPU"
    assert outcomes["broken"].error
    assert "\n" not in outcomes["broken"].error
    assert outcomes["empty"].error == "empty: a burst needs a kernel"
    assert all(not outcomes[name].error for name in ("steady", "idle"))
    assert all(outcomes[name].calls == 0 for name in ("beside", "broken", "empty"))


def test_an_error_without_words_is_told_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_case: OpCase, _device: str) -> OpRun:
        raise ValueError

    monkeypatch.setitem(MODES, "steady", fail)
    assert run(tmp_path, STEADY)["steady"].error == "ValueError"


def test_what_was_run_is_on_disk_as_soon_as_it_has_run(tmp_path: Path) -> None:
    for number, (_, outcome) in enumerate(run_suite([STEADY, IDLE, BESIDE], tmp_path, "cpu", 0), start=1):
        found = read_runs(tmp_path)
        assert len(found) == number
        assert found[-1] == outcome


def test_a_record_cut_short_still_reads(tmp_path: Path) -> None:
    whole = list(run(tmp_path, STEADY, IDLE).values())
    path = tmp_path / RUNS_FILE
    size = path.stat().st_size
    for cut in (1, 30, 60):
        os.truncate(path, size - cut)
        assert read_runs(tmp_path) == whole[:1]
    assert json.loads(path.read_text().splitlines()[0])["name"] == whole[0].name
